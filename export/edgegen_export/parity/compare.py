"""compare(): the parity report of an export, a bundle's outputs measured against its checkpoint's in float32.

:func:`record_reference` runs the checkpoint over a short text (layer by layer, without torch, where a family is known),
and keeps its outputs as a :class:`ParityReference`. With that, :func:`compare` measures the bundle; so does
:mod:`edgegen.evaluation.parity.verify`, on any other machine later.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant, Phase
from edgegen.errors import ExportError, LogitsError
from edgegen.evaluation.parity.measure import greedy, judged_variants, parity_of, perplexity_of_reference
from edgegen.evaluation.parity.reference import LIKELIEST, UNKNOWN, ParityReference, log_softmax
from edgegen.evaluation.parity.report import ParityReport, VariantParity
from edgegen.evaluation.parity.row_threads import RowThreads
from edgegen.model.interfaces import Runner
from edgegen.system import trim_memory
from edgegen_export.parity.extent import OF_SMALL, Extent

PROMPT_TOKENS = 16

_BLOCK = 128
"""Positions whose logits are in memory at once: the head is read anew for each block."""

Logits = NDArray[np.float32]
Hidden = NDArray[np.float32]
Ids = NDArray[np.int64]
OnStates = Callable[[Hidden], None]
"""Hears the hidden states [b, t, d] after each layer."""


OpenRunner = Callable[[GraphVariant, Phase], Runner[Any]]
"""Opens the graph of a variant that is judged as this phase."""


class UnquantizedModel(Protocol):
    """The checkpoint in float32, to compare a bundle with. In two steps, for logits of all positions take room."""

    def hidden(self, texts: Sequence[Ids], on_states: OnStates | None = None) -> list[Hidden]:
        """Texts, each of ids [b, t] without past → what ``logits`` takes, float32 [b, t, d] for each: one pass over
        the weights. ``on_states`` hears of the first text, where layers are known."""
        ...

    def logits(self, hidden: Hidden) -> Logits:
        """hidden [n, d] → logits float32 [n, vocab]."""
        ...


def record_reference(
    model: UnquantizedModel,
    ids: Ids,
    max_context: int,
    open_draft: Callable[[], Runner[Any]],
    extent: Extent = OF_SMALL,
    on_states: OnStates | None = None,
) -> tuple[ParityReference, Ids]:
    """The outputs of ``model`` for ids [windows, t], and its greedy continuations of prompts taken from them; and the
    continuations [n, tokens] of the bundle, which ``open_draft`` opens (see :func:`continuations`).

    ``on_states`` hears the states after each layer for ``ids``.

    Raises:
        ExportError: its logits are not finite.
    """
    likeliest, logprobs, rest, following = list[Ids](), list[Logits](), list[float](), list[float]()
    behind = np.concatenate([ids[:, 1:], ids[:, :1]], axis=1)  # the last one's is left out below
    prompts, tokens = _prompts(ids, max_context, extent)
    drafted = greedy(open_draft(), prompts, tokens)
    trim_memory()  # of the draft
    texts = np.concatenate([prompts, drafted], axis=1)
    of_ids, *of_texts = model.hidden([ids, texts] if len(texts) else [ids], on_states)
    with RowThreads() as threads:
        for window, states in enumerate(of_ids):
            for start in range(0, len(states), _BLOCK):
                logits = _finite(model.logits(states[start : start + _BLOCK]))
                of_block = threads.map(_kept_of, logits, behind[window, start : start + _BLOCK])
                for best, found, others, next_one in of_block:
                    likeliest.append(best)
                    logprobs.append(found)
                    rest.append(others)
                    following.append(next_one)
            following.pop()
    trim_memory()
    reference = ParityReference(
        ids=ids,
        likeliest=np.array(likeliest).reshape(*ids.shape, -1),
        logprobs=np.array(logprobs).reshape(*ids.shape, -1),
        rest=np.array(rest, np.float32).reshape(ids.shape),
        following=np.array(following, np.float32).reshape(len(ids), -1),
        prompts=prompts,
        continuations=continuations(model, open_draft, texts, tokens, of_texts, extent.rounds),
    )
    return reference, drafted


def _kept_of(logits: Logits, following: Ids) -> Iterator[tuple[Ids, Logits, float, float]]:
    """The likeliest ids behind each position, their log-probabilities, and those of all others and of ``following``."""
    best = np.array([_best(row, min(LIKELIEST, row.size)) for row in logits])
    found, others = log_softmax(logits, best)
    of_best = np.take_along_axis(found, best, axis=1).astype(np.float32)
    return zip(best, of_best, others.tolist(), found[np.arange(len(found)), following].tolist(), strict=True)


def continuations(
    model: UnquantizedModel,
    open_draft: Callable[[], Runner[Any]],
    drafted: Ids,
    tokens: int,
    states: Sequence[Hidden],
    rounds: int,
) -> Ids:
    """Greedy continuations of ``model`` for prompts: ids [n, tokens], ``UNKNOWN`` where it stopped early.

    Speculative decoding, with the bundle as the draft model: it proposes all tokens, the model verifies them in one
    pass, keeps the longest accepted prefix and adds one id of its own. So the model runs once per disagreement, not
    once per token. After ``rounds`` the rest stays unknown.

    ``drafted`` [n, p + tokens]: prompts with what the bundle proposed first; ``states``: the model's hidden states for
    these, if there are any.
    """
    texts, length = drafted.copy(), drafted.shape[1] - tokens
    known = np.zeros(len(texts), np.int64)
    for again in range(rounds):
        pending = np.flatnonzero(known < tokens)
        if not pending.size:
            break
        if again:
            draft = open_draft()
            for count in np.unique(known[pending]).tolist():
                rows = np.flatnonzero(known == count)
                texts[rows, length + count :] = greedy(draft, texts[rows, : length + count], tokens - count)
            del draft
            states = model.hidden([texts[pending]])
        for row, choices in zip(pending, _choices(model, states[0][:, length - 1 : -1]), strict=True):
            differs = np.flatnonzero(choices != texts[row, length:])
            known[row] = differs[0] + 1 if differs.size else tokens
            texts[row, length:] = choices
    answers = texts[:, length:]
    answers[np.arange(tokens) >= known[:, None]] = UNKNOWN
    return answers


def _choices(model: UnquantizedModel, states: Hidden) -> Ids:
    """The likeliest ids [n, t] of ``model`` behind hidden states [n, t, d]."""
    flat = states.reshape(-1, states.shape[-1])
    starts = range(0, len(flat), _BLOCK)
    found = [_finite(model.logits(flat[start : start + _BLOCK])).argmax(axis=-1) for start in starts]
    return np.concatenate(found).reshape(states.shape[:2])


def _prompts(ids: Ids, max_context: int, extent: Extent) -> tuple[Ids, int]:
    """Prompts [n, p] spread over the text, and how many tokens may follow each; fewer where the context is small."""
    length = min(PROMPT_TOKENS, max_context // 2)
    count = extent.prompts * len(ids) if length else 0
    starts = np.linspace(0, ids.size - length, count, dtype=np.int64)
    prompts = np.array([ids.reshape(-1)[start : start + length] for start in starts], np.int64)
    return prompts.reshape(len(starts), length), min(extent.tokens, max_context - length)


def _finite(logits: Logits) -> Logits:
    if not np.isfinite(logits).all():
        raise ExportError("the checkpoint itself, unquantized, gives logits that are not finite: it is broken.")
    return logits


def _best(logits: Logits, count: int) -> Ids:
    """The ids of the ``count`` highest, the best first and of equals the lowest id."""
    least = np.partition(logits, -count)[-count]
    among = np.flatnonzero(logits >= least)
    return among[np.lexsort((among, -logits[among]))[:count]]


def compare(
    bundle: Bundle,
    open_runner: OpenRunner,
    reference: ParityReference,
    text: str,
    layer_errors: Mapping[str, tuple[float, ...]],
    on_progress: Callable[[int, int], None],
    drafted: Ids | None = None,
) -> ParityReport:
    """Compare every variant of ``bundle``, and converted KV caches where our kernels run, with the recorded outputs of
    the unquantized model; ``text`` names the text.

    ``open_runner`` opens its graphs; ``layer_errors``: by variant, for the report. ``on_progress`` hears how many
    positions of how many are compared. ``drafted``: how the first variant continues the prompts, where that is known.

    Raises:
        ExportError: logits are not finite.
    """
    variants, measured = judged_variants(bundle), dict[str, VariantParity]()
    try:
        for variant in variants:

            def advance(done: int, total: int, before: int = len(measured)) -> None:
                on_progress(before * total + done, len(variants) * total)

            measured[variant.name] = parity_of(
                partial(open_runner, variant), reference, advance, None if measured else drafted
            )
    except LogitsError as error:
        raise ExportError("the exported graphs give logits that are not finite; please report this model.") from error
    return ParityReport(
        text=text,
        tokens=int(reference.ids.size),
        likeliest=reference.likeliest.shape[-1],
        greedy_prompts=len(reference.prompts),
        greedy_tokens=reference.continuations.shape[1],
        perplexity_reference=perplexity_of_reference(reference),
        variants=measured,
        layer_errors=dict(layer_errors),
        weights_bytes=sum(bundle.size_of(name) for name in {v.weights for v in variants}),
        bundle_bytes=bundle.nbytes,
    )
