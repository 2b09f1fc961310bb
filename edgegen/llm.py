"""LLM: a bundle, ready to generate from Python."""

import secrets
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from operator import index
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeGuard, Unpack, cast, overload

from edgegen.bundle import Bundle
from edgegen.chat import ChatTemplate, Conversation, Message
from edgegen.constraint import ConstraintCompiler, ConstraintWatch, Grammar, RowConstraint, read_response_format
from edgegen.engine import Engine
from edgegen.errors import PromptTooLongError, UsageError
from edgegen.logits import LogitsPipeline
from edgegen.options import EngineOptions, GenerationOptions, GenerationOverrides
from edgegen.ort_session import PairedSession, TwoSessions, require_version
from edgegen.runners import Runner, make_runner
from edgegen.sampler import Sampler
from edgegen.sequence import Sequence, SequenceGroup
from edgegen.stopping import FinishReason, TextWatcher
from edgegen.store import DEFAULT_MODEL, BundleStore
from edgegen.tokenizer import StreamingDetokenizer, Tokenizer

Prompt = str | Ids[int]
"""A text, or the token ids it would have."""

Messages = Ids[Message] | Conversation
"""What has been said: messages with a ``role`` and a ``content``."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds and tokens of one request.

    ``prompt_seconds``: from the start of its first step to its first token; ``decode_seconds``: from then to its last.
    """

    prompt_tokens: int
    prompt_seconds: float
    decode_tokens: int
    decode_seconds: float

    @property
    def prompt_tokens_per_second(self) -> float:
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first, over the time they took."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, slots=True)
class GenerationChunk:
    """A piece of a streamed answer: final text, the ids since the last chunk, and, in the last, why it ended.

    Text can lag behind its ids: part of a character or of a possible stop string is held back.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """A whole answer.

    ``matched``: the stop string or end-of-sequence id that ended it; ``seed``: the one drawn with, if any.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    matched: str | int | None
    seed: int | None
    timings: Timings


@dataclass(slots=True, eq=False)
class _Request:
    """A group, the text of its sequence, and the chunks that wait for their reader."""

    group: SequenceGroup
    watcher: TextWatcher
    seed: int | None
    chunks: deque[GenerationChunk] = field(default_factory=deque[GenerationChunk])

    @property
    def sequence(self) -> Sequence:
        return self.group.sequences[0]

    def result(self, text: str) -> GenerationResult:
        """The answer so far; the group has ended. Raises what made it fail, if something did."""
        sequence, finish = self.sequence, self.sequence.finish
        if sequence.error is not None:
            raise sequence.error
        assert finish is not None
        generated = sequence.generated
        timings = Timings(
            prompt_tokens=sequence.prompt_length,
            prompt_seconds=max(0.0, sequence.first_token - sequence.started),
            decode_tokens=max(0, len(generated) - 1),
            decode_seconds=max(0.0, sequence.last_token - sequence.first_token) if generated else 0.0,
        )
        return GenerationResult(text, tuple(generated), finish.reason, finish.matched, self.seed, timings)


class LLM:
    """A model of one bundle. Requests from several threads are served in the order of arrival."""

    def __init__(
        self, bundle: Bundle, tokenizer: Tokenizer | None, runner: Runner[Any], options: EngineOptions
    ) -> None:
        self.bundle = bundle
        self.tokenizer = tokenizer
        self.max_context = bundle.manifest.model.max_context
        config = bundle.json(bundle.manifest.generation_config)
        self.generation_options = GenerationOptions.from_config(config)
        bos = config.get("bos_token_id")
        known = isinstance(bos, int) and 0 <= bos < bundle.manifest.model.vocab_size
        self._bos_token_id: int | None = bos if known else None
        self._chat_template: ChatTemplate | None = None
        self._compiler: ConstraintCompiler | None = None
        self._engine = Engine(runner, options.prefill_chunk)
        self._requests: dict[Sequence, _Request] = {}
        self._lock = Lock()

    @classmethod
    def load(
        cls, model: str | Path = DEFAULT_MODEL, *, options: EngineOptions | None = None, verify: bool = True
    ) -> Self:
        """Open a bundle by path or name; without one, the embedded default model.

        Raises:
            BundleNotFoundError: nothing under that name or path.
            ManifestError: its ``edgegen.json`` is malformed.
            VerificationError: a file is missing or damaged; ONNX Runtime never sees it.
        """
        options = options or EngineOptions()
        bundle = Bundle.open(BundleStore().resolve(model))
        if verify:
            bundle.verify_once()
        tokenizer = bundle.manifest.tokenizer
        return cls(
            bundle,
            Tokenizer.from_file(bundle.file(tokenizer)) if tokenizer else None,
            open_runner(bundle, options),
            options,
        )

    @overload
    def generate(
        self, prompt: Prompt, options: GenerationOptions | None = None, **overrides: Unpack[GenerationOverrides]
    ) -> GenerationResult: ...

    @overload
    def generate(
        self, prompt: list[str], options: GenerationOptions | None = None, **overrides: Unpack[GenerationOverrides]
    ) -> list[GenerationResult]: ...

    def generate(
        self,
        prompt: Prompt | list[str],
        options: GenerationOptions | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> GenerationResult | list[GenerationResult]:
        """The whole answer to a prompt, or to each of a list of texts.

        ``options`` replaces the bundle's own; keyword arguments override either, as in
        ``generate("Once", max_new_tokens=40, temperature=0.8)``.

        Raises:
            OptionError: an option is unknown, wrong, or contradicts another.
            PromptTooLongError: the prompt does not fit the model's context.
        """
        chosen = (options or self.generation_options).override(overrides)
        if _is_batch(prompt):
            requests = [self._request(text, chosen) for text in prompt]
            try:
                for request in requests:
                    self._add(request)
                return [self._finish(request) for request in requests]
            finally:
                for request in requests:  # after an error or Ctrl-C, nobody waits for the rest
                    self._cancel(request)
        request = self._request(cast(Prompt, prompt), chosen)
        self._add(request)
        return self._finish(request)

    def stream(
        self, prompt: Prompt, options: GenerationOptions | None = None, **overrides: Unpack[GenerationOverrides]
    ) -> "TextStream":
        """The answer in pieces, as it is made; arguments and errors are those of :meth:`generate`."""
        request = self._request(prompt, (options or self.generation_options).override(overrides))
        self._add(request)
        return self._open_stream(request)

    def chat(
        self,
        conversation: Messages,
        options: GenerationOptions | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> GenerationResult:
        """The assistant's answer to a conversation: a list of messages, or a :class:`~edgegen.Conversation`.

        Written out by the model's chat template, or as a plain transcript for a model that has none
        (:attr:`chat_template`). What is said in it never becomes a control token. The answer also ends where the
        template ends a turn, unless ``eos_token_id`` is given.

        Raises:
            ConversationError: the messages are malformed, or the template refuses them.
            OptionError, PromptTooLongError: as :meth:`generate`.
        """
        request = self._chat_request(conversation, options, overrides)
        self._add(request)
        return self._finish(request)

    def stream_chat(
        self,
        conversation: Messages,
        options: GenerationOptions | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> "TextStream":
        """The answer in pieces, as it is made; arguments and errors are those of :meth:`chat`."""
        request = self._chat_request(conversation, options, overrides)
        self._add(request)
        return self._open_stream(request)

    @property
    def chat_template(self) -> ChatTemplate:
        """How conversations are written; ``is_fallback`` where the model has no template of its own."""
        if self._chat_template is None:
            self._chat_template = ChatTemplate.from_bundle(self.bundle)
        return self._chat_template

    def _chat_request(
        self, conversation: Messages, options: GenerationOptions | None, overrides: GenerationOverrides
    ) -> _Request:
        said = conversation if isinstance(conversation, Conversation) else Conversation(conversation)
        if self.tokenizer is None:
            raise UsageError("a conversation needs a tokenizer, and this bundle has none.")
        chosen = (options or self.generation_options).override(overrides)
        template = self.chat_template
        end = template.end_of_turn(self.tokenizer)
        if chosen.eos_token_id is None or chosen.eos_token_id == self.generation_options.eos_token_id:
            known = self.generation_options.eos_token_id or ()
            chosen = replace(chosen, eos_token_id=(*known, *((end,) if end is not None and end not in known else ())))
        chosen = replace(chosen, stop_strings=(*chosen.stop_strings, *template.stop_strings))
        return self._request(template.encode(said, self.tokenizer), chosen)

    def encode(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt; those of an empty one are the model's beginning-of-sequence id.

        Raises:
            UsageError: neither text nor ids, a text without a tokenizer, an empty prompt without such an id, or ids
                outside the vocabulary.
        """
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise UsageError("this bundle has no tokenizer: give the prompt as a list of token ids.")
            try:
                prompt.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"the prompt is no Unicode text: character {error.start} is half of one.") from None
            ids = self.tokenizer.encode(prompt)
        else:
            try:
                ids = [index(token) for token in prompt]
            except TypeError:
                raise UsageError("a prompt is a text or a list of token ids.") from None
        vocabulary = self.bundle.manifest.model.vocab_size
        outside = [token for token in ids if not 0 <= token < vocabulary]
        if outside:
            raise UsageError(f"token id {outside[0]} of the prompt is outside the model's vocabulary of {vocabulary}.")
        if not ids:
            if self._bos_token_id is None:
                raise UsageError(
                    "the prompt is empty, and this model has no token to begin a text with: give some text."
                )
            ids = [self._bos_token_id]
        return ids

    def _request(self, prompt: Prompt, options: GenerationOptions) -> _Request:
        ids = self.encode(prompt)
        # The last token generated is never fed back, so it needs no room.
        room = self.max_context - len(ids) + 1
        if room < 1:
            raise PromptTooLongError(
                f"the prompt has {len(ids)} tokens, but this model's context is {self.max_context}: shorten it."
            )
        if options.stop_strings and self.tokenizer is None:
            raise UsageError("stop_strings need a tokenizer, and this bundle has none.")
        seed = (secrets.randbits(63) if options.seed is None else options.seed) if options.do_sample else None
        eos = self.generation_options.eos_token_id if options.eos_token_id is None else options.eos_token_id
        detokenizer = StreamingDetokenizer(self.tokenizer, prompt_ids=ids) if self.tokenizer else None
        max_new_tokens = min(options.max_new_tokens, room)
        options.check_vocabulary(self.bundle.manifest.model.vocab_size)
        constraint = self._constraint(options, eos or (), len(ids))
        watcher = TextWatcher(detokenizer, options.stop_strings, eos or ())
        sequence = Sequence(
            ids=ids,
            prompt_length=len(ids),
            max_new_tokens=max_new_tokens,
            pipeline=LogitsPipeline.from_settings(
                options,
                do_sample=bool(options.do_sample),
                eos_token_ids=eos or (),
                max_new_tokens=max_new_tokens,
                seed=seed or 0,
                first=[constraint] if constraint else [],
            ),
            sampler=Sampler(seed=seed or 0, do_sample=bool(options.do_sample)),
            watch=ConstraintWatch(watcher, constraint).watch if constraint else watcher.watch,
            use_cache=options.use_cache,
        )
        return _Request(SequenceGroup([sequence]), watcher, seed)

    def _constraint(self, options: GenerationOptions, eos: Ids[int], prompt_length: int) -> RowConstraint | None:
        """What the text must be, ready for one sequence; compiled once for each constraint."""
        if isinstance(options.grammar, str):
            constraint = Grammar(options.grammar)
        else:
            constraint = read_response_format(options.response_format if options.grammar is None else options.grammar)
        if constraint is None:
            return None
        if self.tokenizer is None:
            raise UsageError("a constraint needs a tokenizer, and this bundle has none.")
        if self._compiler is None:
            self._compiler = ConstraintCompiler(self.tokenizer, self.bundle.manifest.model.vocab_size)
        return RowConstraint(self._compiler.compile(constraint).start(eos), prompt_length)

    def _add(self, request: _Request) -> None:
        with self._lock:
            self._requests[request.sequence] = request
            self._engine.add(request.group)

    def _cancel(self, request: _Request) -> None:
        # Without the lock: this may run in a finalizer, at any moment of any thread.
        request.group.cancel()
        self._requests.pop(request.sequence, None)

    def _finish(self, request: _Request) -> GenerationResult:
        stream = self._open_stream(request)
        for _ in stream:
            pass
        return stream.result

    def _open_stream(self, request: _Request) -> "TextStream":
        return TextStream(request, self._advance, self._cancel)

    def _advance(self, request: _Request) -> GenerationChunk | None:
        """The next chunk of ``request``; steps, which may serve others first, until there is one."""
        while not request.chunks:
            with self._lock:
                if request.chunks:  # another thread has stepped for us while we waited
                    break
                if request.sequence.error is not None:
                    raise request.sequence.error
                if request.group.finished:
                    return None
                self._step()
        return request.chunks.popleft()

    def _step(self) -> None:
        for update in self._engine.step():
            sequence = update.sequence
            request = self._requests.get(sequence)
            if request is None or sequence.error is not None:  # cancelled meanwhile, or failed
                self._requests.pop(sequence, None)
                continue
            if sequence.finish is not None:
                self._requests.pop(sequence, None)
                if sequence.finish.reason == "length":
                    # What the end releases may turn out to hold a stop string.
                    sequence.finish = request.watcher.finish() or sequence.finish
            reason = sequence.finish.reason if sequence.finish else None
            request.chunks.append(GenerationChunk(request.watcher.take_text(), update.new_ids, reason))


class TextStream(Iterator[GenerationChunk]):
    """The chunks of one answer. ``result`` is there once it has ended; ``close`` (or leaving ``with``) cancels it."""

    def __init__(
        self,
        request: _Request,
        advance: Callable[[_Request], GenerationChunk | None],
        cancel: Callable[[_Request], None],
    ) -> None:
        self._request = request
        self._advance = advance
        self._cancel = cancel
        self._text: list[str] = []

    def __next__(self) -> GenerationChunk:
        try:
            chunk = self._advance(self._request)
        except BaseException:
            self.close()  # Ctrl-C or a failed step: this request ends, the model stays usable
            raise
        if chunk is None:
            raise StopIteration
        self._text.append(chunk.text)
        return chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is left; does nothing after the end."""
        if not self._request.group.finished:
            self._cancel(self._request)

    @property
    def text(self) -> str:
        """The text given out so far."""
        return "".join(self._text)

    @property
    def result(self) -> GenerationResult:
        """
        Raises:
            UsageError: the answer has not ended yet.
        """
        if not self._request.group.finished:
            raise UsageError("the stream has not ended: read it to its end, or close it, before asking for its result.")
        unread = [chunk.text for chunk in self._request.chunks]
        return self._request.result("".join([*self._text, *unread]))


def open_runner(bundle: Bundle, options: EngineOptions) -> Runner[Any]:
    """The runner of the bundle's first variant, its weights loaded."""
    require_version(bundle.manifest.minimum_onnxruntime)
    variant = bundle.variant
    if options.sessions == "pair":
        graphs = PairedSession(bundle.file(variant.pair), variant.contract, options.threads)
    else:
        graphs = TwoSessions(bundle.file(variant.prefill), bundle.file(variant.decode), options.threads)
    model = bundle.manifest.model
    return make_runner(graphs, variant, model.vocab_size, model.max_context)


def _is_batch(prompt: Prompt | list[str]) -> TypeGuard[list[str]]:
    return isinstance(prompt, list) and (not prompt or isinstance(prompt[0], str))
