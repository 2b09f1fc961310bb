"""Embedder: turns prompts into requests for their hidden states, and pools these into embeddings.

Such a request is a prefill like any other, in chunks between the steps of other requests, and ends with it. The hidden
states of a chunk are added up at once, so that memory does not grow with the prompt.
"""

from collections.abc import Callable
from collections.abc import Sequence as Ids
from itertools import takewhile
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from edgegen.engine.sequence import Logits, Sequence, SequenceGroup, SequenceParams
from edgegen.errors import LogitsError, OptionError, PromptTooLongError, UsageError, did_you_mean, refuse_any
from edgegen.generation.prompt_encoder import Prompt, PromptEncoder
from edgegen.generation.request import Answer, Request
from edgegen.generation.results import GenerationResult
from edgegen.options.validation import boolean, number
from edgegen.scoring.embeddings import Embeddings, Pooling
from edgegen.scoring.scorer import is_several, raise_all
from edgegen.stopping.text_watcher import TextWatcher

_AT_ONCE = 8
"""Prompts that wait in the engine's queue at once: what others ask for meanwhile waits for these only."""


class EmbeddedSequence(Sequence):
    """A prompt that is run for its hidden states: the token after it ends it, whatever the logits are."""

    __slots__ = ()

    def choose(self, logits: Logits, unconditional: Logits | None = None) -> int:
        return 0


class HiddenPool:
    """Pools hidden states [tokens, size] that come in chunks."""

    def __init__(self, pooling: Pooling, size: int) -> None:
        self._pooling = pooling
        self._sum = np.zeros(size, np.float64)
        self._tokens = 0

    def add(self, hidden: NDArray[np.float32]) -> None:
        """Take the next tokens into account."""
        if self._pooling == "last":
            self._sum, self._tokens = hidden[-1].astype(np.float64), 1
        elif self._pooling == "weightedmean":
            weights = np.arange(self._tokens + 1, self._tokens + len(hidden) + 1, dtype=np.float64)
            self._sum += weights @ hidden
            self._tokens += len(hidden)
        else:
            self._sum += hidden.sum(axis=0, dtype=np.float64)
            self._tokens += len(hidden)

    @property
    def vector(self) -> NDArray[np.float64]:
        """Of the tokens so far, [size]."""
        of_all = self._tokens * (self._tokens + 1) / 2 if self._pooling == "weightedmean" else self._tokens
        return self._sum / of_all


class Embedder:
    """Encodes prompts, and checks that they fit the model. ``size``: of its hidden states."""

    def __init__(self, encoder: PromptEncoder, max_context: int, size: int | None) -> None:
        """Make embeddings of ``size`` numbers of prompts of at most ``max_context`` tokens.

        Raises:
            UsageError: there is no ``size``, for the bundle was exported without hidden states.
        """
        if size is None:
            raise UsageError(
                "this bundle has no hidden states to make embeddings of: export the model again with "
                "`edgegen export MODEL --with-hidden`."
            )
        self._encoder = encoder
        self._max_context = max_context
        self._size = size

    def embed(
        self,
        prompts: Prompt | Ids[Prompt],
        pooling: Pooling,
        run: Callable[[Ids[Request]], list[GenerationResult]],
        *,
        normalize: bool,
        dimensions: int | None,
    ) -> Embeddings:
        """The embeddings of one prompt or of several, whose hidden states are pooled as they are computed.

        ``run`` runs some requests after the others, until one is cancelled.

        Raises:
            OptionError: ``pooling`` is unknown, ``normalize`` not a bool, or ``dimensions`` too large.
            UsageError: a prompt cannot be encoded; all such prompts are told.
            PromptTooLongError: what is wrong is that they do not fit the model's context.
            LogitsError: hidden states are NaN or infinite.
        """
        known = get_args(Pooling)
        problems = boolean("normalize", normalize)
        if dimensions is not None:
            problems += number("dimensions", dimensions, int, 1, self._size)
        if pooling not in known:
            near = did_you_mean(str(pooling), known)
            problems.append(
                f"pooling: {', '.join(map(repr, known[:-1]))} or {known[-1]!r} expected, found {pooling!r}{near}"
            )
        refuse_any(problems, OptionError)
        encoded = self._encoded(prompts)
        pools = [HiddenPool(pooling, self._size) for _ in encoded]
        requests = [_request(ids, pool) for ids, pool in zip(encoded, pools, strict=True)]
        ready = list[GenerationResult]()
        for start in range(0, len(requests), _AT_ONCE):
            ready += takewhile(lambda result: result.finish_reason == "length", run(requests[start : start + _AT_ONCE]))
            if len(ready) < min(start + _AT_ONCE, len(requests)):
                break
        vectors = np.zeros((len(ready), dimensions or self._size), np.float64)
        for vector, pool in zip(vectors, pools, strict=False):
            vector[:] = pool.vector[:dimensions]
        if broken := np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
            raise LogitsError(f"the model's hidden states for {_named(broken[0], requests)} are NaN or infinite.")
        if normalize:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors /= np.where(lengths, lengths, 1)
        tokens = sum(result.timings.prompt_tokens for result in ready)
        return Embeddings(vectors.astype(np.float32), tokens, len(ready) == len(requests))

    def _encoded(self, prompts: Prompt | Ids[Prompt]) -> list[list[int]]:
        several = is_several(prompts) or (isinstance(prompts, list | tuple) and not prompts)
        each = cast(Ids[Prompt], prompts) if several else [cast(Prompt, prompts)]
        encoded, errors = list[list[int]](), list[UsageError]()
        for at, prompt in enumerate(each):
            what = _named(at, each)
            try:
                ids = self._encoder.encode(prompt, what)
                if len(ids) > self._max_context:
                    raise PromptTooLongError(
                        f"{what} has {len(ids)} tokens, but this model's context is {self._max_context}: shorten it, "
                        "or embed it in parts."
                    )
                encoded.append(ids)
            except UsageError as error:
                errors.append(error)
        raise_all(errors)
        return encoded


def _named(at: int, prompts: Ids[object]) -> str:
    return "the prompt" if len(prompts) == 1 else f"prompt {at + 1}"


def _request(ids: list[int], pool: HiddenPool) -> Request:
    # The one new token is not run: its logits are those of the prompt.
    sequence = EmbeddedSequence(list(ids), SequenceParams(len(ids), 1, on_hidden=pool.add))
    return Request(SequenceGroup([sequence]), [Answer(sequence, TextWatcher(None, (), ()))], None)
