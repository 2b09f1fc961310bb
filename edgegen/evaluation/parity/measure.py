"""Measures the parity report: a bundle's outputs against those of its checkpoint before quantization.

An export makes it, and :func:`measure` makes its figures again wherever the bundle runs: it needs only the bundle,
which has the unquantized model's outputs in its :class:`ParityReference`. On the same machine the figures are the same
to the last digit.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant, Phase
from edgegen.errors import LogitsError
from edgegen.evaluation.parity.reference import UNKNOWN, LogProbabilities, ParityReference, log_softmax
from edgegen.evaluation.parity.report import VariantParity
from edgegen.evaluation.parity.row_threads import RowThreads
from edgegen.model.cache import Cache
from edgegen.model.interfaces import Runner, make_runner
from edgegen.model.kernels import runs_kernels
from edgegen.model.ort_session import OneSession
from edgegen.scoring.scores import perplexity_of
from edgegen.system import trim_memory

_BLOCK, _BEGUN = 128, 32
"""Positions that are decoded together: at a large vocabulary their logits take room. And the positions after which the
prefill graph is compared."""

_SINGLE_STEPS = 4
"""Of each window: a single step reads all weights, as a block does."""

_DIGITS = 6

Logits = NDArray[np.float32]
Progress = Callable[[int, int], None]


def perplexity_of_reference(reference: ParityReference) -> float:
    """The unquantized model's own, of the text."""
    return rounded(_perplexity(-reference.following.astype(np.float64)))


def judged_variants(bundle: Bundle) -> list[GraphVariant]:
    """The variants of ``bundle``, and last those whose KV cache is converted, where our kernels run."""
    return [*bundle.manifest.variants, *(bundle.converted_variants if runs_kernels("auto") else ())]


def measure(
    bundle: Bundle, variant: GraphVariant, reference: ParityReference, on_progress: Progress | None = None
) -> VariantParity:
    """Run a variant over the reference's text and prompts, and compare; ``on_progress`` hears of positions done.

    Raises:
        BundleError: ONNX Runtime cannot load the graphs.
        LogitsError: logits are not finite.
    """
    return parity_of(lambda phase: open_graph(bundle, variant, phase), reference, on_progress)


def parity_of(
    open_runner: Callable[[Phase], Runner[Any]],
    reference: ParityReference,
    on_progress: Progress | None = None,
    drafted: NDArray[np.int64] | None = None,
) -> VariantParity:
    """:func:`measure`, of what ``open_runner`` opens: a runner of which only that phase is used.

    ``drafted``: what :func:`greedy` gave for the decode graph and the prompts, where that is known.

    Raises:
        LogitsError: logits are not finite.
    """
    comparison = _Comparison(reference, on_progress)
    decode = open_runner("decode")
    begun, step_diff = _compare_decode(decode, reference.ids, comparison)
    answers = drafted
    if answers is None:
        answers = greedy(decode, reference.prompts, reference.continuations.shape[1])
    del decode
    trim_memory()  # of one graph's packed weights, before the other's
    prefill_diff = _compare_prefill(open_runner("prefill"), reference.ids[-1, :_BEGUN], begun)
    trim_memory()
    differs = (answers != reference.continuations) & (reference.continuations != UNKNOWN)
    return comparison.result(int(differs.any(axis=1).sum()), step_diff, prefill_diff)


def open_graph(bundle: Bundle, variant: GraphVariant, phase: Phase) -> Runner[Any]:
    """A runner for one phase only: to open both graphs takes twice the memory for a moment.

    Raises:
        BundleError: ONNX Runtime cannot load its graph.
    """
    model, graph = bundle.manifest.model, bundle.file(graph_of(variant, phase))
    session = OneSession(graph, adapter=bundle.low_rank(), conversion=bundle.conversion(variant))
    return make_runner(session, variant, model.vocab_size, model.max_context)


def graph_of(variant: GraphVariant, phase: Phase) -> str:
    """The file that is judged as the graph of ``phase``."""
    return variant.prefill if phase == "prefill" else variant.decode


def greedy(decode: Runner[Any], prompts: NDArray[np.int64], tokens: int) -> NDArray[np.int64]:
    """The likeliest ids [n, tokens] after prompts [n, p], each after the one before. Nothing ends them."""
    answers = np.zeros((len(prompts), tokens), np.int64)
    if not answers.size:
        return answers
    cache = decode.new_cache()
    cache.reserve(len(prompts), prompts.shape[1] + tokens)
    together = max(1, _BLOCK // prompts.shape[1])
    for row in range(0, len(prompts), together):
        some = slice(row, row + together)
        answers[some, 0] = decode.decode(cache, prompts[some], row)[:, -1].argmax(axis=-1)
    for at in range(1, tokens):
        answers[:, at] = decode.decode(cache, answers[:, at - 1 : at])[:, 0].argmax(axis=-1)
    return answers


def log_probabilities(logits: Logits) -> LogProbabilities:
    """Of logits [vocab], in double precision."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return shifted - np.log(np.exp(shifted).sum())


def rounded(value: float) -> float:
    """To as many significant digits as a report keeps."""
    return float(f"{value:.{_DIGITS}g}")


def _compare_decode(decode: Runner[Any], ids: NDArray[np.int64], comparison: "_Comparison") -> tuple[Logits, float]:
    """Every position; the logits [vocab] after the last window's first ``_BEGUN``, and ``decode_step_max_diff``."""
    cache, begun, step_diff = decode.new_cache(), np.empty(0, np.float32), 0.0
    cache.reserve(1, ids.shape[1])
    for window, row in enumerate(ids):
        cache.truncate(0, 0)
        for start in range(0, len(row), _BLOCK):
            logits = decode.decode(cache, row[None, start : start + _BLOCK])[0]
            comparison.add(window, start, logits)
            begun = begun if start else logits[:_BEGUN][-1].copy()
        step_diff = max(step_diff, _single_steps(decode, cache, row))
    return begun, step_diff


def _compare_prefill(prefill: Runner[Any], ids: NDArray[np.int64], expected: Logits) -> float:
    """The largest difference of the prefill graph's logits after ids [t] from the decode graph's, ``expected``."""
    cache = prefill.new_cache()
    cache.reserve(1, len(ids))
    return _difference(prefill.prefill(cache, 0, ids.tolist()), expected)


class _Comparison:
    """Figures of positions, each by itself: at a large vocabulary every temporary counts."""

    def __init__(self, reference: ParityReference, on_progress: Progress | None) -> None:
        self._reference = reference
        self._on_progress = on_progress
        self._threads = RowThreads()
        self._kl: list[float] = []
        self._nll: list[float] = []
        self._agree = 0
        self._max_diff = 0.0

    def add(self, window: int, start: int, logits: Logits) -> None:
        """The logits [n, vocab] of the next positions, from ``start`` of the window on."""
        if not np.isfinite(logits).all():
            raise LogitsError("the bundle's graphs give logits that are not finite: export the model again.")
        places = np.arange(start, start + len(logits))
        for kl, agrees, difference, nll in self._threads.map(partial(self._figures, window), logits, places):
            self._kl.append(kl)
            self._agree += agrees
            self._max_diff = max(self._max_diff, difference)
            self._nll += [] if nll is None else [nll]
            if self._on_progress:
                self._on_progress(len(self._kl), self._reference.ids.size)

    def _figures(
        self, window: int, logits: Logits, places: NDArray[np.int64]
    ) -> Iterator[tuple[float, bool, float, float | None]]:
        """Of each of some ``places``, one after another: the divergence, whether the first choices agree, the largest
        difference of the likeliest ids' log-probabilities, and the loss of the id that follows in the text, where one
        does."""
        reference, these = self._reference, slice(int(places[0]), int(places[-1]) + 1)
        likeliest, following = (
            reference.likeliest[window, these],
            reference.ids[window, these.start + 1 : these.stop + 1],
        )
        found, rest = log_softmax(logits, likeliest)
        agrees = logits.argmax(axis=1) == likeliest[:, 0]
        difference = np.abs(np.take_along_axis(found, likeliest, axis=1) - reference.logprobs[window, these])
        nll = [*(-found[np.arange(len(following)), following]).tolist(), *[None] * (len(logits) - len(following))]
        figures = (reference.kl(window, these, found, rest), agrees, difference.max(axis=1))
        return zip(*(each.tolist() for each in figures), nll, strict=True)

    def result(self, flipped: int, step_diff: float, prefill_diff: float) -> VariantParity:
        self._threads.close()
        nll = np.array(self._nll)
        worse = nll + self._reference.following.reshape(-1).astype(np.float64)
        ratio = _perplexity(worse)
        error = worse.std(ddof=1) / math.sqrt(worse.size) if worse.size > 1 else 0.0
        return VariantParity(
            mean_kl=rounded(float(np.mean(self._kl))),
            max_kl=rounded(max(self._kl)),
            top1_agreement=rounded(self._agree / len(self._kl)),
            max_logprob_diff=rounded(self._max_diff),
            perplexity=rounded(_perplexity(nll)),
            perplexity_change=rounded(ratio - 1),
            perplexity_change_error=rounded(ratio * float(error)),
            greedy_flipped=flipped,
            decode_step_max_diff=rounded(step_diff),
            prefill_max_diff=rounded(prefill_diff),
        )


def _perplexity(nll: NDArray[np.float64]) -> float:
    """Of negative log-likelihoods; 1 without any."""
    return perplexity_of(float(nll.sum()), nll.size) if nll.size else 1.0


def _single_steps(runner: Runner[Any], cache: Cache, ids: NDArray[np.int64]) -> float:
    """Decode the last positions of a cached window again, together and one by one; the largest difference of logits."""
    first = max(0, len(ids) - _SINGLE_STEPS)
    _roll_back(runner, cache, ids, first)
    together = runner.decode(cache, ids[None, first:])[0].copy()
    _roll_back(runner, cache, ids, first)
    singles = (runner.decode(cache, ids[None, at : at + 1])[0, 0] for at in range(first, len(ids)))
    return max(_difference(single, row) for single, row in zip(singles, together, strict=True))


def _roll_back(runner: Runner[Any], cache: Cache, ids: NDArray[np.int64], length: int) -> None:
    """Let the cache hold the first ``length`` of ``ids``, which it holds more of; fixed states are computed again."""
    start = cache.truncatable_length(0, length)
    cache.truncate(0, start)
    for at in range(start, length, _BLOCK):
        runner.decode(cache, ids[None, at : min(at + _BLOCK, length)])


def _difference(a: Logits, b: Logits) -> float:
    return float(np.abs(a - b).max())
