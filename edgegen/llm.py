"""LLM: loads a bundle and generates, chats, scores and embeds with it from Python."""

from __future__ import annotations

import gc
from collections.abc import Sequence as Ids
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Never, Self, TypeGuard, Unpack, cast, overload

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.embedding_defaults import EmbeddingDefaults
from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.engine.engine import Engine
from edgegen.engine.engine_thread import EngineThread
from edgegen.errors import UsageError
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.engine_client import EngineClient
from edgegen.generation.prompt_encoder import Prompt, PromptEncoder
from edgegen.generation.request import Request
from edgegen.generation.request_builder import RequestBuilder
from edgegen.generation.results import GenerationResult
from edgegen.generation.stream import TextStream
from edgegen.model.interfaces import Runner
from edgegen.model.kv_snapshot import snapshot_problem
from edgegen.model.loading import (
    LoadProgress,
    OnProgress,
    default_kv_budget,
    ignore_progress,
    open_bundle,
    open_model,
)
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import THINKING_OPTIONS, GenerationOptions, GenerationOverrides, ReasoningEffort
from edgegen.options.hints import refuse_unknown
from edgegen.options.speculation import uses_mtp_head
from edgegen.speculation.sources import SpeculationSources
from edgegen.system import trim_memory
from edgegen.tokenizer import Tokenizer

if TYPE_CHECKING:  # what only chats, sessions, scores, embeddings and draft models need is imported where they begin
    from edgegen.chat import ChatTemplate
    from edgegen.chat.tools import ToolChoice
    from edgegen.generation.chat_builder import ChatBuilder, Messages, Tool
    from edgegen.generation.session import Session
    from edgegen.scoring.embeddings import Embeddings, Pooling
    from edgegen.scoring.perplexity import OnScored
    from edgegen.scoring.scores import Perplexity, Score
    from edgegen.speculation.draft_model import DraftModel
    from edgegen.speculation.mtp_head import Head

_CLOSED = "this LLM is closed: load it again."


class LLM:
    """A loaded model. Safe to use from any thread; requests that come together are batched (continuous batching).

    ``with LLM.load(…) as llm:`` or :meth:`close` gives its memory back.
    """

    def __init__(
        self,
        bundle: Bundle,
        tokenizer: Tokenizer | None,
        runner: Runner[Any],
        options: EngineOptions,
        draft: DraftModel | None = None,
        head: Head | None = None,
    ) -> None:
        self.bundle = bundle
        model = bundle.manifest.model
        self.max_context = model.max_context
        self.device: Literal["cpu", "cuda"] = runner.device
        config = bundle.json(bundle.manifest.generation_config)
        self.generation_options = GenerationOptions.from_config(config, self.max_context)
        bos = config.get("bos_token_id")
        known = isinstance(bos, int) and 0 <= bos < model.vocab_size
        self._chat_template: ChatTemplate | None = None
        encoder = PromptEncoder(tokenizer, model.vocab_size, bos if known else None)
        variant = bundle.variant_with(options.kv if self.device == "cpu" else "float32")
        kv_dtype = variant.kv.format.array_dtype if self.device == "cpu" else "float16"
        self._embedding_size = variant.hidden_states.embedding_size if variant.hidden_states else None
        self._embedding_defaults = bundle.embedding_defaults() if self._embedding_size else EmbeddingDefaults()
        self._runner = runner
        self._draft, self._head = draft, head
        self._builder: RequestBuilder | None = RequestBuilder(
            encoder,
            self.max_context,
            eos_token_ids=self.generation_options.eos_token_id or (),
            speculation=SpeculationSources(options.speculate, draft, head, runner.rollback_limit),
            bit_exact=options.deterministic and runner.chunk_invariance != "any",
            model=f"{bundle.digest} {variant.name}{'' if self.device == 'cpu' else ' on a GPU'}",
            snapshot_problem=lambda one: snapshot_problem(one, variant.kv, kv_dtype),
        )
        engine = Engine(
            runner,
            options.prefill_chunk,
            max_batch_size=options.max_batch_size,
            kv_budget=options.kv_budget or default_kv_budget(self.device),
            prefix_budget=options.prefix_cache,
            deterministic=options.deterministic,
            max_pause=options.max_pause / 1000 or None,
        )
        self._client = EngineClient(EngineThread(engine))
        self._closing = Lock()
        self._building_many = Lock()

    @classmethod
    def load(
        cls,
        model: str | Path = DEFAULT_MODEL,
        *,
        options: EngineOptions | None = None,
        on_progress: OnProgress | None = None,
        **misplaced: Never,
    ) -> Self:
        """Open a bundle by path or name; without one, the embedded default model.

        ``on_progress`` is called in this thread with a :class:`LoadProgress`; what it raises ends loading.

        Raises:
            BundleNotFoundError: nothing under that name or path.
            ManifestError: its ``edgegen.json`` is malformed.
            VerificationError: a file is missing or damaged, or it is another bundle than was expected; ONNX Runtime
                never sees it.
            UsageError: the bundle has no variant as ``options`` ask for, or the draft model another vocabulary.
            OptionError: an argument is unknown; it says where it belongs.
        """
        refuse_unknown(misplaced, ("model", "options", "on_progress"))
        options, tell = options or EngineOptions(), on_progress or ignore_progress
        bundle = open_bundle(model, options, tell)
        if options.expect_sha256 is not None:
            bundle.expect(options.expect_sha256)
        draft = None
        if options.draft is not None:
            from edgegen.speculation.draft_model import open_draft

            of_draft = open_bundle(options.draft, options, tell)
            tell(LoadProgress("draft", 0, of_draft.weights_size))
            draft = open_draft(of_draft, bundle, options)
            tell(LoadProgress("draft", of_draft.weights_size, of_draft.weights_size))
        runner, tokenizer = open_model(bundle, options, tell)
        trim_memory()  # what reading took: 15 MB beside the 223 that GPT-2 small keeps
        head = None
        if uses_mtp_head(bundle, options):
            from edgegen.speculation.mtp_head import open_mtp_head

            head = open_mtp_head(bundle, options, runner)
        return cls(bundle, tokenizer, runner, options, draft, head)

    def close(self) -> None:
        """Cancel what runs, end the engine's thread, and give the memory of weights and KV cache back to the system.

        Requests under way end as with a :class:`CancelToken`: what there is by then is their result, and their
        ``finish_reason`` is ``cancelled``. Using a closed LLM is a ``UsageError``; closing it again does nothing.

        Raises:
            UsageError: the caller is a function that this model calls.
        """
        self._client.thread.refuse_own_calls("close it")
        with self._closing:
            if self._builder is None:
                return
            self._client.close(_CLOSED)
            self._builder = self._chat_template = None
            self._runner.close()
            for one in (self._draft, self._head):
                if one is not None:
                    one.close()
            gc.collect()  # the engine's parts refer to each other
            trim_memory()

    @property
    def closed(self) -> bool:
        return self._builder is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LLM({self.bundle!r}, {'closed' if self.closed else f'max_context={self.max_context}'})"

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None where the bundle has none."""
        return self._requests.encoder.tokenizer

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
        """The whole answer to a prompt, or to each of a list of prompts, which run in one batch.

        ``options`` replaces the bundle's own; keyword arguments override either, as in
        ``generate("Once", max_new_tokens=40, temperature=0.8)``. With ``num_return_sequences`` the result is the first
        answer, and has the ``others``. A ``session`` lends its KV cache, and prompt and answer are appended to it; with
        an empty prompt, an answer that was cut short goes on. Once ``cancel`` is cancelled, what there is by then is
        the result, and the session stays as it was.

        Raises:
            OptionError: an option is unknown, wrong, or contradicts another.
            ConstraintError: a grammar, schema or expression is broken, or cannot be enforced.
            PromptTooLongError: the prompt does not fit the model's context.
            MemoryBudgetError: the KV cache of the request can never fit ``kv_budget``.
            LogitsError: no token can be chosen: the model's logits are NaN or infinite, or all tokens are masked.
            SessionError: the session was begun with another model.
            UsageError: the prompt cannot be encoded, this is closed, or the caller is a function that this model calls.
        """
        chosen = _of_text(self._chosen(options, overrides))
        if _is_batch(prompt):
            if session is not None:
                raise UsageError("a session has one prompt at a time: give each of several a session of its own.")
            return self._client.run(self._build_all(prompt, chosen), cancel)
        return self._client.run([self._request(cast(Prompt, prompt), chosen, session)], cancel)[0]

    def stream(
        self,
        prompt: Prompt,
        options: GenerationOptions | None = None,
        *,
        session: Session | None = None,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> TextStream:
        """Stream the answer in chunks: ``for chunk in stream``, or ``async for``.

        Arguments and errors are those of :meth:`generate`. The chunks of several answers come mixed.
        """
        request = self._request(prompt, _of_text(self._chosen(options, overrides)), session)
        return self._client.stream([request], cancel)[0]

    def stream_all(
        self,
        prompts: Ids[Prompt],
        options: GenerationOptions | None = None,
        *,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> list[TextStream]:
        """Stream the answers to several prompts, which take turns with other requests as if they were one.

        All prompts are checked before the first of them runs. Arguments and errors are those of :meth:`generate`.
        """
        chosen = _of_text(self._chosen(options, overrides))
        return self._client.stream(self._build_all(prompts, chosen), cancel)

    def chat(
        self,
        conversation: Messages,
        options: GenerationOptions | None = None,
        *,
        tools: Ids[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        parallel_tool_calls: bool | None = None,
        session: Session | None = None,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> GenerationResult:
        """The assistant's answer to a conversation: a list of messages, or a :class:`~edgegen.Conversation`.

        Rendered by the model's chat template, or as a plain transcript for a model that has none
        (:attr:`chat_template`). Text in messages never becomes a control token. The answer also ends where the
        template ends a turn, unless ``eos_token_id`` is given. With a ``session`` only what is new of the conversation
        is prefilled; give the whole conversation all the same. It is in ``session.messages`` afterwards, and so is the
        answer.

        ``tools``: functions that the model may call, as Python functions or in OpenAI's form; the result has the
        ``tool_calls``, and calls nothing. ``tool_choice`` is ``auto``, ``none``, ``required``, or ``{"type":
        "function", "function": {"name": …}}``; the last two constrain the answer to calls. With
        ``parallel_tool_calls=False`` it has one call at most, and by default where the template takes one call a turn.
        With ``context_overflow="drop_oldest"`` a conversation that does not fit the context loses its oldest turns, and
        the result has the number of ``dropped_messages``. ``thinking`` and ``reasoning_effort`` say whether and how
        hard the model is to think, ``max_thinking_tokens`` for how long; its thoughts are in ``reasoning_content``.

        Raises:
            ConversationError: the messages or tools are malformed, or the template refuses them; or this model cannot
                be asked for this thinking or effort.
            SessionError: the session was begun with another model.
            OptionError, ConstraintError, PromptTooLongError: as :meth:`generate`.
        """
        chosen = self._chosen(options, overrides)
        request = self._chats.build(conversation, chosen, session, tools, tool_choice, parallel_tool_calls)
        return self._client.run([request], cancel)[0]

    def stream_chat(
        self,
        conversation: Messages,
        options: GenerationOptions | None = None,
        *,
        tools: Ids[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        parallel_tool_calls: bool | None = None,
        session: Session | None = None,
        cancel: CancelToken | None = None,
        **overrides: Unpack[GenerationOverrides],
    ) -> TextStream:
        """Stream the assistant's answer in chunks; arguments and errors are those of :meth:`chat`."""
        chosen = self._chosen(options, overrides)
        request = self._chats.build(conversation, chosen, session, tools, tool_choice, parallel_tool_calls)
        return self._client.stream([request], cancel)[0]

    def encode_chat(
        self,
        conversation: Messages,
        *,
        tools: Ids[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        thinking: bool | None = None,
        reasoning_effort: ReasoningEffort | None = None,
        max_thinking_tokens: int | None = None,
    ) -> list[int]:
        """The ids of a conversation, as :meth:`chat` passes them to the model; it may be longer than the context.

        Raises:
            ConversationError: the messages or tools are malformed, or the template refuses them.
            UsageError: there is no tokenizer.
        """
        return self._chats.encode(conversation, tools, tool_choice, thinking, reasoning_effort, max_thinking_tokens)

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
        empty context is the model's beginning-of-sequence id. Several continuations share the context's prefill.
        ``top_logprobs``: likeliest tokens to keep of each place. Once ``cancel`` is cancelled, what there is by
        then is the result (:attr:`Score.complete`).

        Raises:
            UsageError: a continuation is empty or no text or ids, or ids are outside the vocabulary.
            PromptTooLongError: context and continuation do not fit the model's context together.
            LogitsError: the model's logits are NaN or infinite.
        """
        from edgegen.scoring.scorer import Scorer, is_several

        several = is_several(continuation)
        scores = Scorer(self._requests.encoder, self.max_context).score(
            context,
            continuation if several else [cast(Prompt, continuation)],
            top_logprobs,
            lambda requests: self._client.run(requests, cancel),
        )
        return scores if several else scores[0]

    def perplexity(
        self,
        text: Prompt,
        *,
        window: int | None = None,
        stride: int | None = None,
        on_progress: OnScored | None = None,
        cancel: CancelToken | None = None,
    ) -> Perplexity:
        """The perplexity of a text of any length, or of its ids.

        A window of ``window`` tokens (the model's context, 2048 at most) slides over the text by ``stride`` tokens
        (half a window); each token but the text's first is scored once, with at least ``window - stride`` tokens before
        it once there are as many. The first is not one of the text's own where the tokenizer begins a text with one.
        ``on_progress`` is told after each window how many tokens are scored, and of how many. Once ``cancel`` is
        cancelled, what there is by then is the result (:attr:`Perplexity.complete`).

        Raises:
            UsageError: the text has less than two tokens, or is no text.
            OptionError: ``window`` does not fit the model's context, or ``stride`` the window.
            LogitsError: the model's logits are NaN or infinite.
        """
        from edgegen.scoring.perplexity import measured_perplexity

        return measured_perplexity(
            self._requests.encoder.read(text, "the text"),
            self.max_context,
            window,
            stride,
            lambda request: self._client.run([request], cancel)[0],
            on_progress,
        )

    def embed(
        self,
        prompt: Prompt | list[str] | list[list[int]],
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        cancel: CancelToken | None = None,
    ) -> Embeddings:
        """The embedding of a prompt, or of each of a list of prompts: a vector that stands for what it says.

        The last hidden states of the prompt's tokens are pooled: to their ``mean``, to that of the ``last`` token, or
        to their ``weightedmean``, in which the n-th token counts n times. ``dimensions``: first values to keep.
        ``normalize``: to length 1, so that a dot product is the cosine similarity. What is left out is as the
        checkpoint has it, or else the normalized mean. The bundle must have been exported with ``--with-hidden``. Once
        ``cancel`` is cancelled, what there is by then is the result (:attr:`Embeddings.complete`).

        Raises:
            UsageError: the bundle has no hidden states, a prompt cannot be encoded, or this is closed.
            PromptTooLongError: a prompt does not fit the model's context.
            OptionError: ``pooling`` or ``dimensions`` are wrong.
            MemoryBudgetError: the KV cache of a prompt can never fit ``kv_budget``.
            LogitsError: the model's hidden states are NaN or infinite.
        """
        from edgegen.scoring.embedder import Embedder

        embedder = Embedder(self._requests.encoder, self.max_context, self._embedding_size)
        own = self._embedding_defaults
        return embedder.embed(
            prompt,
            own.pooling if pooling is None else pooling,
            lambda requests: self._client.run(requests, cancel),
            normalize=own.normalize if normalize is None else normalize,
            dimensions=dimensions,
        )

    @property
    def embedding_size(self) -> int | None:
        """Dimensions of the vectors of :meth:`embed`; None where the bundle was exported without hidden states."""
        return self._embedding_size

    @property
    def chat_template(self) -> ChatTemplate:
        """How conversations are written; ``is_fallback`` where the model has no template of its own."""
        if self._chat_template is None:
            from edgegen.chat import ChatTemplate

            self._chat_template = ChatTemplate.from_bundle(self.bundle)
        return self._chat_template

    def check_session(self, session: Session) -> None:
        """Tell whether this model can continue a session, as every request with it does.

        Raises:
            SessionError: it was begun with another model, or with another type of KV cache.
        """
        self._requests.check(session)

    def encode(self, prompt: Prompt) -> list[int]:
        """The ids of a prompt; those of an empty one are the model's beginning-of-sequence id.

        Raises:
            UsageError: neither text nor ids, a text without a tokenizer, an empty prompt without such an id, or ids
                outside the vocabulary.
        """
        return self._requests.encoder.encode(prompt)

    def decode(self, ids: Ids[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ``ids``, without control tokens such as ``<|endoftext|>`` unless told to keep them.

        Raises:
            UsageError: they are no ids, or outside the vocabulary, or there is no tokenizer.
        """
        return self._requests.encoder.decode(ids, skip_special_tokens=skip_special_tokens)

    def check_options(self, options: GenerationOptions) -> None:
        """Refuse, without a prompt, what this model cannot honour: ids, a grammar, a schema, a negative prompt.

        Raises:
            OptionError: an option does not fit the vocabulary, or contradicts another.
            ConstraintError: a grammar, schema or expression is broken, or cannot be enforced.
            UsageError: an option needs a tokenizer that the bundle lacks, or this is closed.
        """
        self._requests.check_options(options)

    @property
    def _requests(self) -> RequestBuilder:
        """Builds requests for as long as this is open."""
        if self._builder is None:
            raise UsageError(_CLOSED)
        return self._builder

    def _build_all(self, prompts: Ids[Prompt], options: GenerationOptions) -> list[Request]:
        """The requests for several prompts; of lists, one thread at a time builds the next of its own.

        Each takes the interpreter from the engine's thread for milliseconds, and many threads would take all of it.
        """
        requests = [self._requests.build(prompt, options) for prompt in prompts[:1]]  # a constraint may take seconds
        for prompt in prompts[1:]:
            with self._building_many:
                requests.append(self._requests.build(prompt, options))
        return requests

    def _request(self, prompt: Prompt, options: GenerationOptions, session: Session | None) -> Request:
        builder = self._requests
        return (
            builder.build(prompt, options) if session is None else builder.build_continuation(session, prompt, options)
        )

    @property
    def _chats(self) -> ChatBuilder:
        """Builds the requests of conversations."""
        from edgegen.generation.chat_builder import ChatBuilder

        return ChatBuilder(self._requests, self.chat_template, self.generation_options)

    def _chosen(self, options: object, overrides: GenerationOverrides) -> GenerationOptions:
        """``options``, or the defaults of the bundle, with ``overrides``.

        Raises:
            UsageError: ``options`` is no :class:`GenerationOptions`.
            OptionError: an override is wrong.
        """
        if options is None:
            return self.generation_options.override(overrides)
        if not isinstance(options, GenerationOptions):
            raise UsageError(f"options must be GenerationOptions, not {type(options).__name__}: give others by name.")
        return options.override(overrides)


def _of_text(options: GenerationOptions) -> GenerationOptions:
    """``options`` of a prompt that is text, not a chat.

    Raises:
        UsageError: they have some of chats alone.
    """
    if asked := [name for name in THINKING_OPTIONS if getattr(options, name) is not None]:
        said = "is for chats" if len(asked) == 1 else "are for chats"
        raise UsageError(f"{', '.join(asked)} {said}: give a conversation to llm.chat, or leave it out.")
    return options


def _is_batch(prompt: Prompt | list[str]) -> TypeGuard[list[str]]:
    return isinstance(prompt, list) and (not prompt or isinstance(prompt[0], str))
