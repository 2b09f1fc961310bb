"""The parity report: what a bundle computes, against what its checkpoint computes.

Made at every export: the checkpoint runs in float32 (layer by layer, without torch, where a family is known:
:mod:`reference`), the bundle's own graphs run in ONNX Runtime one after the other, and both are compared position by
position on a short text.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen.board import trim_memory
from edgegen.bundle import Bundle
from edgegen.errors import ExportError
from edgegen.manifest import GraphVariant, Phase
from edgegen.ort_session import Binding, RunSwitch, open_session
from edgegen.runners import Cache, Runner, make_runner

WINDOW = 256
WINDOWS = 2
_BLOCK = 32
_SINGLE_STEPS = 16

Logits = NDArray[np.float32]
Hidden = NDArray[np.float32]


class Reference(Protocol):
    """What a bundle is compared with: the model, unquantized, in two steps, for logits of all positions take room."""

    def hidden(self, ids: NDArray[np.int64]) -> Hidden:
        """ids [b, t] without past → what ``logits`` takes, float32 [b, t, d]."""
        ...

    def logits(self, hidden: Hidden) -> Logits:
        """hidden [n, d] → logits float32 [n, vocab]."""
        ...


@dataclass(frozen=True, slots=True)
class ParityReport:
    """Two models side by side. Logit differences are absolute; divergences (KL, from the reference) are in nats.

    ``decode_step_max_diff``: logits of single decode steps against those of the same positions decoded together;
    ``prefill_max_diff``: logits of the prefill graph against the decode graph's, at the end of each window.
    ``kv_int8``: the same of the variant with an int8 cache, where there is one.
    """

    text: str
    tokens: int
    max_abs_diff: float
    mean_abs_diff: float
    mean_kl: float
    max_kl: float
    top1_agreement: float
    perplexity_reference: float
    perplexity: float
    decode_step_max_diff: float
    prefill_max_diff: float
    kv_int8: "ParityReport | None" = None

    @property
    def perplexity_change(self) -> float:
        """Relative: 0.01 is one per cent worse than the reference."""
        return self.perplexity / self.perplexity_reference - 1

    def to_json(self) -> dict[str, Any]:
        """Plain values, rounded to six significant digits."""
        report = asdict(replace(self, kv_int8=None)) | {"perplexity_change": self.perplexity_change}
        if self.kv_int8:
            report["kv_int8"] = self.kv_int8.to_json()
        else:
            del report["kv_int8"]
        return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in report.items()}


def measure_parity(
    bundle: Bundle,
    reference: Reference,
    ids: NDArray[np.int64],
    text: str,
    on_progress: Callable[[int, int], None],
) -> ParityReport:
    """Compare ``bundle`` with ``reference`` on ids [windows, t]; ``text`` says where they come from.

    ``on_progress`` hears how many positions of how many are compared.

    Raises:
        ExportError: logits are not finite.
    """
    hidden = reference.hidden(ids)
    trim_memory()
    reports: dict[str, ParityReport] = {}
    variants = bundle.manifest.variants
    for variant in variants:
        comparison = _Comparison(len(reports) * ids.size, len(variants) * ids.size, on_progress)
        ends, step_diff = _compare_decode(bundle, variant, reference, ids, hidden, comparison)
        trim_memory()  # of one graph's packed weights, before the other's
        prefill_diff = _compare_prefill(bundle, variant, ids, ends)
        trim_memory()
        reports[variant.kv.dtype] = comparison.report(text, int(ids.size), step_diff, prefill_diff)
    return replace(reports["float32"], kv_int8=reports.get("int8"))


def _compare_decode(
    bundle: Bundle,
    variant: GraphVariant,
    reference: Reference,
    ids: NDArray[np.int64],
    hidden: Hidden,
    comparison: "_Comparison",
) -> tuple[list[Logits], float]:
    """Every position against the reference; the logits [vocab] at each window's end, and ``decode_step_max_diff``."""
    decode = _runner(bundle, variant, "decode")
    cache = decode.new_cache()
    cache.reserve(1, ids.shape[1])
    step_diff = 0.0
    ends: list[Logits] = []
    for window, states in zip(ids, hidden, strict=True):
        cache.truncate(0, 0)
        for start in range(0, len(window), _BLOCK):
            logits = decode.decode(cache, window[None, start : start + _BLOCK])[0]
            expected = reference.logits(states[start : start + len(logits)])
            next_ids = [*window[start + 1 : start + 1 + len(logits)].tolist(), None]
            for positions in zip(expected, logits, next_ids, strict=False):
                comparison.add(*positions)
        together, difference = _single_steps(decode, cache, window)
        ends.append(together)
        step_diff = max(step_diff, difference)
    return ends, step_diff


def _compare_prefill(bundle: Bundle, variant: GraphVariant, ids: NDArray[np.int64], ends: list[Logits]) -> float:
    """The largest difference of the prefill graph's logits from ``ends``, those of the decode graph."""
    prefill = _runner(bundle, variant, "prefill")
    cache = prefill.new_cache()
    cache.reserve(1, ids.shape[1])
    difference = 0.0
    for window, end in zip(ids, ends, strict=True):
        cache.truncate(0, 0)
        difference = max(difference, _difference(prefill.prefill(cache, 0, window.tolist()), end))
    return difference


class _Comparison:
    """Sums over positions, one position at a time: at a large vocabulary every temporary counts."""

    def __init__(self, before: int, total: int, on_progress: Callable[[int, int], None]) -> None:
        self._before, self._total, self._on_progress = before, total, on_progress
        self._positions = self._predicted = self._agree = 0
        self._max_diff = self._sum_diff = self._sum_kl = self._max_kl = 0.0
        self._nll = np.zeros(2)

    def add(self, expected: Logits, found: Logits, next_id: int | None) -> None:
        """Logits [vocab] of both at one position, and the id that follows it where the text goes on."""
        if not np.isfinite(expected).all():
            raise ExportError("the checkpoint itself, unquantized, gives logits that are not finite: it is broken.")
        if not np.isfinite(found).all():
            raise ExportError("the exported graphs give logits that are not finite; please report this model.")
        difference = np.abs(expected - found)
        self._max_diff = max(self._max_diff, float(difference.max()))
        self._sum_diff += float(difference.mean(dtype=np.float64))
        p, q = _log_softmax(expected), _log_softmax(found)
        kl = float(np.dot(np.exp(p), p - q))
        self._sum_kl += kl
        self._max_kl = max(self._max_kl, kl)
        self._agree += int(expected.argmax() == found.argmax())
        self._positions += 1
        self._on_progress(self._before + self._positions, self._total)
        if next_id is not None:
            self._nll -= [p[next_id], q[next_id]]
            self._predicted += 1

    def report(self, text: str, tokens: int, step_diff: float, prefill_diff: float) -> ParityReport:
        perplexities = np.exp(self._nll / max(1, self._predicted))
        return ParityReport(
            text=text,
            tokens=tokens,
            max_abs_diff=self._max_diff,
            mean_abs_diff=self._sum_diff / self._positions,
            mean_kl=self._sum_kl / self._positions,
            max_kl=self._max_kl,
            top1_agreement=self._agree / self._positions,
            perplexity_reference=float(perplexities[0]),
            perplexity=float(perplexities[1]),
            decode_step_max_diff=step_diff,
            prefill_max_diff=prefill_diff,
        )


class _OneGraph:
    """A graph pair of which only one is opened, to hold one copy of the packed weights at a time."""

    def __init__(self, bundle: Bundle, variant: GraphVariant, phase: Phase) -> None:
        self.switch = RunSwitch()
        self._session = open_session(bundle.file(variant.prefill if phase == "prefill" else variant.decode))

    def binding(self, phase: Phase) -> Binding:
        return Binding(self._session, {})


def _runner(bundle: Bundle, variant: GraphVariant, phase: Phase) -> Runner[Any]:
    model = bundle.manifest.model
    return make_runner(_OneGraph(bundle, variant, phase), variant, model.vocab_size, model.max_context)


def _single_steps(runner: Runner[Any], cache: Cache, window: NDArray[np.int64]) -> tuple[Logits, float]:
    """Decode the last positions of a cached window again, together and one by one.

    Returns the logits [vocab] of the very last position, decoded together, and the largest difference of any.
    """
    first = max(0, len(window) - _SINGLE_STEPS)
    cache.truncate(0, first)
    together = runner.decode(cache, window[None, first:])[0].copy()
    cache.truncate(0, first)
    singles = (runner.decode(cache, window[None, at : at + 1])[0, 0] for at in range(first, len(window)))
    return together[-1], max(_difference(single, row) for single, row in zip(singles, together, strict=True))


def _difference(a: Logits, b: Logits) -> float:
    return float(np.abs(a - b).max())


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - float(logits.max())
    return shifted - np.log(np.exp(shifted).sum())
