"""LLM: a bundle, ready to generate from Python."""

from collections.abc import Sequence as Ids
from dataclasses import replace
from pathlib import Path
from typing import Any, Never, Self, TypeGuard, Unpack, cast, overload

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.chat import ChatTemplate, Conversation, Message
from edgegen.engine.engine import Engine
from edgegen.engine.engine_thread import EngineThread
from edgegen.errors import UsageError
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.request import Request
from edgegen.generation.request_builder import Prompt, RequestBuilder
from edgegen.generation.results import GenerationResult
from edgegen.generation.session import Session
from edgegen.generation.stream import TextStream
from edgegen.model.interfaces import Runner
from edgegen.model.loading import Background, open_runner, open_tokenizer
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions, GenerationOverrides
from edgegen.options.hints import refuse_unknown
from edgegen.scoring.perplexity import PerplexityMeter, Progress
from edgegen.scoring.scorer import Scorer, is_several
from edgegen.scoring.scores import Perplexity, Score
from edgegen.speculation.draft_model import DraftModel, open_draft
from edgegen.system import available_memory, trim_memory
from edgegen.tokenizer import Tokenizer

Messages = Ids[Message] | Conversation
"""What has been said: messages with a ``role`` and a ``content``."""


_LEAST_KV_BUDGET = 1 << 26
"""Bytes of keys and values that a short text takes in models of the size that small machines run."""

_HEAD_START = 0.05
"""Seconds after which ONNX Runtime packs weights, and needs no Python for it. Reading a tokenizer keeps Python to
itself, half as long as that takes or less: begun sooner, it would be waited for; so it is done beside."""


class LLM:
    """A model of one bundle; may be used from any thread. Requests that come together run together."""

    def __init__(
        self,
        bundle: Bundle,
        tokenizer: Tokenizer | None,
        runner: Runner[Any],
        options: EngineOptions,
        draft: DraftModel | None = None,
    ) -> None:
        self.bundle = bundle
        self.tokenizer = tokenizer
        self.max_context = bundle.manifest.model.max_context
        config = bundle.json(bundle.manifest.generation_config)
        self.generation_options = GenerationOptions.from_config(config, self.max_context)
        bos = config.get("bos_token_id")
        known = isinstance(bos, int) and 0 <= bos < bundle.manifest.model.vocab_size
        self._chat_template: ChatTemplate | None = None
        self._builder = RequestBuilder(
            tokenizer,
            bundle.manifest.model.vocab_size,
            self.max_context,
            eos_token_ids=self.generation_options.eos_token_id or (),
            bos_token_id=bos if known else None,
            sure=options.deterministic and runner.chunk_invariance != "any",
            draft=draft,
        )
        variant = bundle.variant_with(options.kv, fast_prefill=options.fast_prefill)
        self._identity = f"{bundle.digest} {variant.name}"
        self._scorer = Scorer(self._builder, self.max_context)
        self._thread = EngineThread(
            Engine(
                runner,
                options.prefill_chunk,
                max_batch_size=options.max_batch_size,
                kv_budget=options.kv_budget or _default_kv_budget(),
                prefix_budget=options.prefix_cache,
                deterministic=options.deterministic,
            )
        )

    @classmethod
    def load(
        cls,
        model: str | Path = DEFAULT_MODEL,
        *,
        options: EngineOptions | None = None,
        verify: bool = True,
        **misplaced: Never,
    ) -> Self:
        """Open a bundle by path or name; without one, the embedded default model.

        Raises:
            BundleNotFoundError: nothing under that name or path.
            ManifestError: its ``edgegen.json`` is malformed.
            VerificationError: a file is missing or damaged; ONNX Runtime never sees it.
            UsageError: the bundle has no variant as ``options`` ask for, or the draft model another vocabulary.
            OptionError: an argument is unknown; it says where it belongs.
        """
        refuse_unknown(misplaced, ("model", "options", "verify"))
        options = options or EngineOptions()
        bundle = _open(model, verify=verify)
        draft = None if options.draft is None else open_draft(_open(options.draft, verify=verify), bundle, options)
        with Background(lambda: open_runner(bundle, options)) as packing:
            packing.wait(_HEAD_START)
            tokenizer = open_tokenizer(bundle)
        runner = packing.result()
        trim_memory()  # what reading took: 15 MB beside the 223 that GPT-2 small keeps
        return cls(bundle, tokenizer, runner, options, draft)

    @overload
    def generate(
        self,
        prompt: Prompt,
        options: GenerationOptions | None = None,
        *,
        session: Session | None = None,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> GenerationResult: ...

    @overload
    def generate(
        self,
        prompt: list[str],
        options: GenerationOptions | None = None,
        *,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> list[GenerationResult]: ...

    def generate(
        self,
        prompt: Prompt | list[str],
        options: GenerationOptions | None = None,
        *,
        session: Session | None = None,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> GenerationResult | list[GenerationResult]:
        """The whole answer to a prompt, or to each of a list of texts, which run together.

        ``options`` replaces the bundle's own; keyword arguments override either, as in
        ``generate("Once", max_new_tokens=40, temperature=0.8)``. With ``num_return_sequences`` the result is the first
        answer, and has the ``others``. With a ``session`` the prompt goes behind what that holds, and both it and the
        answer are in the session afterwards; an empty prompt has an answer that was cut short go on. Once ``cancel``
        is cancelled, what there is by then is the result, and the session stays as it was.

        Raises:
            OptionError: an option is unknown, wrong, or contradicts another.
            ConstraintError: a grammar, schema or expression is broken, or cannot be enforced.
            PromptTooLongError: the prompt does not fit the model's context.
            MemoryBudgetError: keys and values of the request can never fit ``kv_budget``.
            LogitsError: no token can be chosen: the model's logits are NaN or infinite, or all tokens are masked.
            SessionError: the session was begun with another model.
            UsageError: the prompt cannot be encoded, or the caller is a function that this model calls.
        """
        chosen = self._chosen(options, overrides)
        if _is_batch(prompt):
            if session is not None:
                raise UsageError("a session has one prompt at a time: give each of several a session of its own.")
            return self._finish([self._builder.build(text, chosen) for text in prompt], cancel)
        return self._finish([self._request(cast(Prompt, prompt), chosen, session)], cancel)[0]

    def stream(
        self,
        prompt: Prompt,
        options: GenerationOptions | None = None,
        *,
        session: Session | None = None,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> TextStream:
        """The answer in pieces, as it is made: ``for chunk in stream``, or ``async for``.

        Arguments and errors are those of :meth:`generate`. The chunks of several answers come mixed.
        """
        return self._stream(self._request(prompt, self._chosen(options, overrides), session), cancel)

    def chat(
        self,
        conversation: Messages,
        options: GenerationOptions | None = None,
        *,
        session: Session | None = None,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> GenerationResult:
        """The assistant's answer to a conversation: a list of messages, or a :class:`~edgegen.Conversation`.

        Written out by the model's chat template, or as a plain transcript for a model that has none
        (:attr:`chat_template`). What is said in it never becomes a control token. The answer also ends where the
        template ends a turn, unless ``eos_token_id`` is given. With a ``session`` only what is new of the conversation
        is computed; all of it is given all the same, and is in ``session.messages`` afterwards, with the answer.

        Raises:
            ConversationError: the messages are malformed, or the template refuses them.
            SessionError: the session was begun with another model.
            OptionError, PromptTooLongError: as :meth:`generate`.
        """
        return self._finish([self._chat_request(conversation, options, overrides, session)], cancel)[0]

    def stream_chat(
        self,
        conversation: Messages,
        options: GenerationOptions | None = None,
        *,
        session: Session | None = None,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> TextStream:
        """The answer in pieces, as it is made; arguments and errors are those of :meth:`chat`."""
        return self._stream(self._chat_request(conversation, options, overrides, session), cancel)

    @overload
    def score(
        self, context: Prompt, continuation: Prompt, *, top_logprobs: int = 0, cancel: CancelToken | None = None
    ) -> Score: ...

    @overload
    def score(
        self,
        context: Prompt,
        continuation: list[str] | list[list[int]],
        *,
        top_logprobs: int = 0,
        cancel: CancelToken | None = None,
    ) -> list[Score]: ...

    def score(
        self,
        context: Prompt,
        continuation: Prompt | list[str] | list[list[int]],
        *,
        top_logprobs: int = 0,
        cancel: CancelToken | None = None,
    ) -> Score | list[Score]:
        """How likely the model finds a continuation of ``context``, or each of a list of them.

        Both are texts, or both token ids. Texts are tokenized together, as lm-evaluation-harness does it: white space
        at the end of the context belongs to the continuation, and so does a token that reaches over the border. An
        empty context is the model's beginning-of-sequence id. Several continuations share the context's computation.
        ``top_logprobs``: of each place's likeliest tokens, keep so many. Once ``cancel`` is cancelled, what there is by
        then is the result (:attr:`Score.complete`).

        Raises:
            UsageError: a continuation is empty or no text or ids, or ids are outside the vocabulary.
            PromptTooLongError: context and continuation do not fit the model's context together.
            LogitsError: the model's logits are NaN or infinite.
        """
        several = is_several(continuation)
        scoring = self._scorer.build(context, continuation if several else [cast(Prompt, continuation)], top_logprobs)
        self._finish(scoring.requests, cancel)
        scores = scoring.scores()
        return scores if several else scores[0]

    def perplexity(
        self,
        text: Prompt,
        *,
        window: int | None = None,
        stride: int | None = None,
        on_progress: Progress | None = None,
        cancel: CancelToken | None = None,
    ) -> Perplexity:
        """How well the model foresees a text of any length, or its ids.

        A window of ``window`` tokens (the model's context, 2048 at most) slides over the text by ``stride`` tokens
        (half a window); each token but the text's first is scored once, with at least ``window - stride`` tokens before
        it once there are as many. The first is none of the text's own where the tokenizer begins a text with one.
        ``on_progress`` is told after each window how many tokens are scored, and of how many. Once ``cancel`` is
        cancelled, what there is by then is the result (:attr:`Perplexity.complete`).

        Raises:
            UsageError: the text has less than two tokens, or is none.
            OptionError: ``window`` does not fit the model's context, or ``stride`` the window.
            LogitsError: the model's logits are NaN or infinite.
        """
        meter = PerplexityMeter(self._builder.read(text, "the text"), self.max_context, window, stride)
        return meter.measure(lambda request: self._finish([request], cancel)[0], on_progress)

    @property
    def chat_template(self) -> ChatTemplate:
        """How conversations are written; ``is_fallback`` where the model has no template of its own."""
        if self._chat_template is None:
            self._chat_template = ChatTemplate.from_bundle(self.bundle)
        return self._chat_template

    def encode(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt; those of an empty one are the model's beginning-of-sequence id.

        Raises:
            UsageError: neither text nor ids, a text without a tokenizer, an empty prompt without such an id, or ids
                outside the vocabulary.
        """
        return self._builder.encode(prompt)

    def _request(self, prompt: Prompt, options: GenerationOptions, session: Session | None) -> Request:
        if session is None:
            return self._builder.build(prompt, options)
        session.check(self._identity)
        return self._remembered(
            self._builder.build(self._builder.encode_behind(session, prompt), options, session), session
        )

    def _remembered(self, request: Request, session: Session, messages: Ids[Message] = ()) -> Request:
        """Have ``session`` take over what ``request`` comes to, if it comes to its end."""
        (row,) = request.group.sequences

        def take() -> None:
            if row.kv.kept is not None and row.finish is not None:
                said = (*messages, {"role": "assistant", "content": request.text}) if messages else ()
                begin, why, state = row.answer_start, row.finish.reason, row.params.pipeline.state(row.ids)
                session.take(self._identity, row.ids, begin, why, request.seed, state, row.kv.kept, said)

        request.on_success = take
        return request

    def _chat_request(
        self,
        conversation: Messages,
        options: GenerationOptions | None,
        overrides: GenerationOverrides,
        session: Session | None,
    ) -> Request:
        said = conversation if isinstance(conversation, Conversation) else Conversation(conversation)
        if self.tokenizer is None:
            raise UsageError("a conversation needs a tokenizer, and this bundle has none.")
        chosen = self._chosen(options, overrides)
        template = self.chat_template
        end = template.end_of_turn(self.tokenizer)
        if chosen.eos_token_id is None or chosen.eos_token_id == self.generation_options.eos_token_id:
            known = self.generation_options.eos_token_id or ()
            chosen = replace(chosen, eos_token_id=(*known, *((end,) if end is not None and end not in known else ())))
        chosen = replace(chosen, stop_strings=(*chosen.stop_strings, *template.stop_strings))
        ids = template.encode(said, self.tokenizer)
        if session is None:
            return self._builder.build(ids, chosen)
        session.check(self._identity)
        return self._remembered(self._builder.build(ids, chosen, session), session, said.messages)

    def _chosen(self, options: object, overrides: GenerationOverrides) -> GenerationOptions:
        """
        Raises:
            UsageError: ``options`` are none.
            OptionError: an override is wrong.
        """
        if options is None:
            return self.generation_options.override(overrides)
        if not isinstance(options, GenerationOptions):
            raise UsageError(f"options must be GenerationOptions, not {type(options).__name__}: give others by name.")
        return options.override(overrides)

    def _finish(self, requests: Ids[Request], token: CancelToken | None) -> list[GenerationResult]:
        """Run to the end; after an error or Ctrl-C nobody waits for the rest."""
        try:
            for request in requests:
                self._submit(request, token)
            for request in requests:
                if isinstance(error := request.mail.take(), BaseException):
                    raise error
            return [request.result() for request in requests]
        finally:
            for request in requests:
                if not request.finished:
                    self._cancel(request)

    def _stream(self, request: Request, token: CancelToken | None) -> TextStream:
        request.streamed = True
        stream = TextStream(request, self._cancel)
        self._submit(request, token)
        return stream

    def _submit(self, request: Request, token: object) -> None:
        if token is not None and not isinstance(token, CancelToken):
            raise UsageError(f"cancel must be a CancelToken, not {type(token).__name__}.")
        request.token = token
        if token is not None:
            token.attach(request, lambda: self._cancel(request))
        self._thread.submit(request.group)

    def _cancel(self, request: Request) -> None:
        """May run in a finalizer, at any moment of any thread."""
        self._thread.cancel(request.group)
        request.end()


def _default_kv_budget() -> int | None:
    """Half of what is free; a short text may be made on any machine."""
    free = available_memory()
    return None if free is None else max(_LEAST_KV_BUDGET, free // 2)


def _is_batch(prompt: Prompt | list[str]) -> TypeGuard[list[str]]:
    return isinstance(prompt, list) and (not prompt or isinstance(prompt[0], str))


def _open(model: str | Path, *, verify: bool) -> Bundle:
    bundle = Bundle.open(BundleStore().resolve(model))
    if verify:
        bundle.verify_once()
    return bundle
