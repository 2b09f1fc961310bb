"""The parity report: what a bundle computes, against what its checkpoint said before it was quantized.

An export makes it, and :func:`measure` makes its figures again wherever the bundle runs: all it takes is the bundle,
with the unquantized model's words in its :class:`ParityReference`. On the same machine the figures are the same to the
last digit.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.board import trim_memory
from edgegen.bundle import Bundle
from edgegen.errors import LogitsError, ManifestError, one_or_list
from edgegen.manifest import GraphVariant
from edgegen.ort_session import PairedSession
from edgegen.parity_reference import UNKNOWN, LogProbabilities, ParityReference
from edgegen.runners import Cache, Runner, make_runner
from edgegen.scores import perplexity_of
from edgegen.typed_json import decode

_BLOCK = 32
"""Positions that are decoded together: at a large vocabulary their logits take room."""

_SINGLE_STEPS = 16
_DIGITS = 6

Logits = NDArray[np.float32]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class VariantParity:
    """One variant beside the unquantized model. Divergences (KL, from the model) are in nats.

    Attributes:
        mean_kl, max_kl: over positions; see :meth:`ParityReference.kl`.
        top1_agreement: share of positions with the same first choice.
        max_logprob_diff: the largest difference of a log-probability, of the ids that the reference keeps.
        perplexity: of the text.
        perplexity_change: relative to the model's: 0.01 is one per cent worse.
        perplexity_change_error: its standard error, from the differences at each position as if they were independent.
        greedy_flipped: how many prompts are continued otherwise than by the model.
        decode_step_max_diff: logits of single decode steps against those of the same positions decoded together.
        prefill_max_diff: logits of the prefill graph against the decode graph's, at the end of each window.
    """

    mean_kl: float
    max_kl: float
    top1_agreement: float
    max_logprob_diff: float
    perplexity: float
    perplexity_change: float
    perplexity_change_error: float
    greedy_flipped: int
    decode_step_max_diff: float
    prefill_max_diff: float


@dataclass(frozen=True, slots=True)
class ParityReport:
    """All variants of a bundle beside the unquantized model.

    Attributes:
        text: what it was measured on: ``sample text``, ``random ids``, or the name of a file.
        tokens: how many of it.
        likeliest: how many ids of each position the reference keeps.
        greedy_prompts, greedy_tokens: how many prompts were continued, and by how many tokens at most.
        perplexity_reference: of the unquantized model.
        variants: by the variant's name.
        layer_errors: by the variant's name, for each layer: how far the hidden states behind it are from the model's,
            relative (L2 norms, mean over positions), with all errors of the layers before. Measured at the export only;
            empty where layers are not known.
        weights_bytes, bundle_bytes: of the weights file, and of all files but the report.
    """

    text: str
    tokens: int
    likeliest: int
    greedy_prompts: int
    greedy_tokens: int
    perplexity_reference: float
    variants: dict[str, VariantParity]
    layer_errors: dict[str, tuple[float, ...]]
    weights_bytes: int
    bundle_bytes: int

    @classmethod
    def read(cls, bundle: Bundle) -> "ParityReport":
        """The report that a bundle came with.

        Raises:
            VerificationError: its file is damaged.
            ManifestError: it is malformed, or lacks a variant.
        """
        faults: list[str] = []
        report = decode(cls, bundle.json(bundle.manifest.parity), "", faults)
        if not faults:
            missing = [v.name for v in bundle.manifest.variants if v.name not in report.variants]
            faults = [f"variants.{name}: missing" for name in missing]
        if faults:
            raise ManifestError(f"{bundle.file(bundle.manifest.parity)} is malformed: {one_or_list(faults)}")
        return report

    @property
    def preferred(self) -> VariantParity:
        """The first variant's."""
        return next(iter(self.variants.values()))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def perplexity_of_reference(reference: ParityReference) -> float:
    """The unquantized model's own, of the text."""
    return rounded(_perplexity(-reference.following.astype(np.float64)))


def measure(
    bundle: Bundle, variant: GraphVariant, reference: ParityReference, on_progress: Progress | None = None
) -> VariantParity:
    """Run a variant over the reference's text and prompts, and compare; ``on_progress`` hears of positions done.

    Raises:
        BundleError: ONNX Runtime cannot load the graphs.
        LogitsError: logits are not finite.
    """
    runner = open_variant(bundle, variant)
    cache, comparison = runner.new_cache(), _Comparison(reference)
    cache.reserve(1, reference.ids.shape[1])
    step_diff = prefill_diff = 0.0
    for window, ids in enumerate(reference.ids):
        cache.truncate(0, 0)
        for start in range(0, len(ids), _BLOCK):
            for offset, logits in enumerate(runner.decode(cache, ids[None, start : start + _BLOCK])[0]):
                comparison.add(window, start + offset, logits)
            if on_progress:
                on_progress(window * len(ids) + min(start + _BLOCK, len(ids)), reference.ids.size)
        end, difference = _single_steps(runner, cache, ids)
        step_diff = max(step_diff, difference)
        cache.truncate(0, 0)
        prefill_diff = max(prefill_diff, _difference(runner.prefill(cache, 0, ids.tolist()), end))
    flipped = _flipped(greedy(runner, reference.prompts, reference.continuations.shape[1]), reference.continuations)
    del runner, cache
    trim_memory()  # of this variant's packed weights, before another's
    return comparison.result(flipped, step_diff, prefill_diff)


def open_variant(bundle: Bundle, variant: GraphVariant) -> Runner[Any]:
    """Both graphs of a variant in one session, as it is run by default.

    Raises:
        BundleError: ONNX Runtime cannot load them.
    """
    model = bundle.manifest.model
    graphs = PairedSession(bundle.file(variant.pair), variant.contract)
    return make_runner(graphs, variant, model.vocab_size, model.max_context)


def greedy(runner: Runner[Any], prompts: NDArray[np.int64], tokens: int) -> NDArray[np.int64]:
    """The likeliest ids [n, tokens] behind prompts [n, p], each behind the one before. Nothing ends them."""
    answers = np.zeros((len(prompts), tokens), np.int64)
    if not answers.size:
        return answers
    cache = runner.new_cache()
    cache.reserve(len(prompts), prompts.shape[1] + tokens)
    for row, prompt in enumerate(prompts):
        answers[row, 0] = runner.prefill(cache, row, prompt.tolist()).argmax()
    for at in range(1, tokens):
        answers[:, at] = runner.decode(cache, answers[:, at - 1 : at])[:, 0].argmax(axis=-1)
    return answers


def log_probabilities(logits: Logits) -> LogProbabilities:
    """Of logits [vocab], in double precision."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return shifted - np.log(np.exp(shifted).sum())


def rounded(value: float) -> float:
    """To as many significant digits as a report keeps."""
    return float(f"{value:.{_DIGITS}g}")


class _Comparison:
    """Sums over positions, one position at a time: at a large vocabulary every temporary counts."""

    def __init__(self, reference: ParityReference) -> None:
        self._reference = reference
        self._kl: list[float] = []
        self._nll: list[float] = []
        self._agree = 0
        self._max_diff = 0.0

    def add(self, window: int, at: int, logits: Logits) -> None:
        """The logits [vocab] of the next position."""
        if not np.isfinite(logits).all():
            raise LogitsError("the bundle's graphs give logits that are not finite: export the model again.")
        reference, found = self._reference, log_probabilities(logits)
        likeliest = reference.likeliest[window, at]
        self._kl.append(reference.kl(window, at, found))
        self._agree += int(logits.argmax() == likeliest[0])
        difference = np.abs(found[likeliest] - reference.logprobs[window, at])
        self._max_diff = max(self._max_diff, float(difference.max()))
        if at + 1 < reference.ids.shape[1]:
            self._nll.append(-float(found[reference.ids[window, at + 1]]))

    def result(self, flipped: int, step_diff: float, prefill_diff: float) -> VariantParity:
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


def _flipped(found: NDArray[np.int64], expected: NDArray[np.int64]) -> int:
    """How many rows differ, as far as the expected ones are known."""
    return int(((found != expected) & (expected != UNKNOWN)).any(axis=1).sum())


def _single_steps(runner: Runner[Any], cache: Cache, ids: NDArray[np.int64]) -> tuple[Logits, float]:
    """Decode the last positions of a cached window again, together and one by one.

    Returns the logits [vocab] of the very last position, decoded together, and the largest difference of any.
    """
    first = max(0, len(ids) - _SINGLE_STEPS)
    cache.truncate(0, first)
    together = runner.decode(cache, ids[None, first:])[0].copy()
    cache.truncate(0, first)
    singles = (runner.decode(cache, ids[None, at : at + 1])[0, 0] for at in range(first, len(ids)))
    return together[-1], max(_difference(single, row) for single, row in zip(singles, together, strict=True))


def _difference(a: Logits, b: Logits) -> float:
    return float(np.abs(a - b).max())
