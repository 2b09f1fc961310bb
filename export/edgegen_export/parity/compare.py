"""compare(): the parity report of an export, a bundle's outputs measured against its checkpoint's in float32.

:func:`record_reference` runs the checkpoint over a short text (layer by layer, without torch, where a family is known),
and keeps its outputs as a :class:`ParityReference`. With that, :func:`compare` measures the bundle; so does
:mod:`edgegen.parity.verify`, on any other machine later.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant, Phase
from edgegen.errors import ExportError, LogitsError
from edgegen.model.interfaces import Runner
from edgegen.parity.measure import greedy, log_probabilities, parity_of, perplexity_of_reference
from edgegen.parity.reference import LIKELIEST, UNKNOWN, ParityReference, log_rest
from edgegen.parity.report import ParityReport, VariantParity
from edgegen.system import physical_cores, trim_memory

WINDOW = 256
WINDOWS = 2

PROMPTS, PROMPT_TOKENS, GREEDY_TOKENS = 4, 16, 16
"""Prompts taken from each window, their length, and how many tokens follow."""
_ROUNDS = 2
"""Rounds of speculative decoding at most: each costs a pass over the unquantized model's weights."""

_BLOCK = 64
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

    def hidden(self, ids: NDArray[np.int64], on_states: OnStates | None = None) -> Hidden:
        """ids [b, t] without past → what ``logits`` takes, float32 [b, t, d]. ``on_states``: where layers are known."""
        ...

    def logits(self, hidden: Hidden) -> Logits:
        """hidden [n, d] → logits float32 [n, vocab]."""
        ...


def record_reference(
    model: UnquantizedModel,
    ids: Ids,
    max_context: int,
    open_draft: Callable[[], Runner[Any]],
    on_states: OnStates | None = None,
) -> ParityReference:
    """The outputs of ``model`` for ids [windows, t], and its greedy continuations of prompts taken from them.

    ``open_draft`` opens the bundle: see :func:`continuations`. ``on_states`` hears the states after each layer for
    ``ids``.

    Raises:
        ExportError: its logits are not finite.
    """
    likeliest, logprobs, rest, following = list[Ids](), list[Logits](), list[float](), list[float]()
    behind = np.concatenate([ids[:, 1:], ids[:, :1]], axis=1)  # the last one's is left out below
    with ThreadPoolExecutor(physical_cores()) as threads:
        for window, states in enumerate(model.hidden(ids, on_states)):
            for start in range(0, len(states), _BLOCK):
                logits = _finite(model.logits(states[start : start + _BLOCK]))
                of_block = threads.map(_kept_of, logits, behind[window, start : start + _BLOCK].tolist())
                for best, found, others, next_one in of_block:
                    likeliest.append(best)
                    logprobs.append(found)
                    rest.append(others)
                    following.append(next_one)
            following.pop()
    trim_memory()
    prompts, tokens = _prompts(ids, max_context)
    return ParityReference(
        ids=ids,
        likeliest=np.array(likeliest).reshape(*ids.shape, -1),
        logprobs=np.array(logprobs).reshape(*ids.shape, -1),
        rest=np.array(rest, np.float32).reshape(ids.shape),
        following=np.array(following, np.float32).reshape(len(ids), -1),
        prompts=prompts,
        continuations=continuations(model, open_draft, prompts, tokens),
    )


def _kept_of(logits: Logits, following: int) -> tuple[Ids, Logits, float, float]:
    """The likeliest ids behind a position, their log-probabilities, and those of all others and of ``following``."""
    best, found = _best(logits, min(LIKELIEST, logits.size)), log_probabilities(logits)
    return best, found[best].astype(np.float32), log_rest(found, best), float(found[following])


def continuations(model: UnquantizedModel, open_draft: Callable[[], Runner[Any]], prompts: Ids, tokens: int) -> Ids:
    """Greedy continuations of ``model`` for prompts [n, p]: ids [n, tokens], ``UNKNOWN`` where it stopped early.

    Speculative decoding, with the bundle as the draft model: it proposes all tokens, the model verifies them in one
    pass, keeps the longest accepted prefix and adds one id of its own. So the model runs once per disagreement, not
    once per token. After ``_ROUNDS`` disagreements the rest stays unknown.
    """
    length = prompts.shape[1]
    texts = np.concatenate([prompts, np.full((len(prompts), tokens), UNKNOWN)], axis=1)
    known = np.zeros(len(prompts), np.int64)
    draft = open_draft()
    for _ in range(_ROUNDS):
        pending = np.flatnonzero(known < tokens)
        if not pending.size:
            break
        for count in np.unique(known[pending]).tolist():
            rows = np.flatnonzero(known == count)
            texts[rows, length + count :] = greedy(draft, texts[rows, : length + count], tokens - count)
        for row, choices in zip(pending, _choices(model, texts[pending], length), strict=True):
            differs = np.flatnonzero(choices != texts[row, length:])
            known[row] = differs[0] + 1 if differs.size else tokens
            texts[row, length:] = choices
    answers = texts[:, length:]
    answers[np.arange(tokens) >= known[:, None]] = UNKNOWN
    return answers


def _choices(model: UnquantizedModel, texts: Ids, begin: int) -> Ids:
    """The likeliest ids of ``model`` at each position of texts [n, t] from ``begin`` on."""
    states = model.hidden(texts)[:, begin - 1 : -1]
    states = states.reshape(-1, states.shape[-1])
    starts = range(0, len(states), _BLOCK)
    found = [_finite(model.logits(states[start : start + _BLOCK])).argmax(axis=-1) for start in starts]
    return np.concatenate(found).reshape(len(texts), -1)


def _prompts(ids: Ids, max_context: int) -> tuple[Ids, int]:
    """Prompts [n, p] spread over the text, and how many tokens may follow each; fewer where the context is small."""
    length = min(PROMPT_TOKENS, max_context // 2)
    count = PROMPTS * len(ids) if length else 0
    starts = np.linspace(0, ids.size - length, count, dtype=np.int64)
    prompts = np.array([ids.reshape(-1)[start : start + length] for start in starts], np.int64)
    return prompts.reshape(len(starts), length), min(GREEDY_TOKENS, max_context - length)


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
) -> ParityReport:
    """Compare every variant of ``bundle`` with the recorded outputs of the unquantized model; ``text`` names the text.

    ``open_runner`` opens its graphs; ``layer_errors``: by variant, for the report. ``on_progress`` hears how many
    positions of how many are compared.

    Raises:
        ExportError: logits are not finite.
    """
    variants, measured = bundle.manifest.variants, dict[str, VariantParity]()
    try:
        for variant in variants:

            def advance(done: int, total: int, before: int = len(measured)) -> None:
                on_progress(before * total + done, len(variants) * total)

            measured[variant.name] = parity_of(partial(open_runner, variant), reference, advance)
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
        weights_bytes=sum(bundle.manifest.files[name].size for name in {v.weights for v in variants}),
        bundle_bytes=bundle.nbytes,
    )
