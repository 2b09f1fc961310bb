"""Recheck: the figures of a bundle's parity report, measured again on this machine.

The same machine gives the same figures to the last digit. Another machine, or another version of ONNX Runtime, has
other kernels, which round differently; that is fine as long as the bundle is about as close to its model as before.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant
from edgegen.errors import BundleError
from edgegen.evaluation.parity.measure import judged_variants, measure
from edgegen.evaluation.parity.reference import ParityReference
from edgegen.evaluation.parity.report import ParityReport, VariantParity
from edgegen.model.ort_session import require_version

KL_FACTOR, KL_MARGIN = 2.0, 1e-3
"""Factor by which a mean divergence may grow, and a margin beside it in nats: int8 costs well below a thousandth."""
TOP1_MARGIN = 0.02
"""Three standard errors of a share of 98% of 512 positions."""
PERPLEXITY_MARGIN = 0.01
"""Twice what the warnings of an int8 export tolerate."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """``stored``: the report of the export; ``found``: by variant, what was measured now; ``skipped``: variants that
    the installed ONNX Runtime cannot run, with the reason."""

    stored: ParityReport
    found: dict[str, VariantParity]
    skipped: dict[str, str]

    @property
    def differences(self) -> list[str]:
        """Differences from the stored report, a line for each figure."""
        lines: list[str] = []
        for name, now in self.found.items():
            before = asdict(self.stored.variants[name])
            lines += [
                f"{name}: {key} {before[key]:g}, now {value:g}"
                for key, value in asdict(now).items()
                if value != before[key]
            ]
        return lines

    @property
    def worse(self) -> list[str]:
        """Figures that are so much worse than before that other rounding is no explanation."""
        problems: list[str] = []
        for name, now in self.found.items():
            then = self.stored.variants[name]
            if now.mean_kl > KL_FACTOR * then.mean_kl + KL_MARGIN:
                problems.append(f"{name}: mean KL {now.mean_kl:.2g} nats instead of {then.mean_kl:.2g}")
            if now.top1_agreement < then.top1_agreement - TOP1_MARGIN:
                problems.append(
                    f"{name}: top-1 agreement {now.top1_agreement:.1%} instead of {then.top1_agreement:.1%}"
                )
            if now.perplexity_change > then.perplexity_change + PERPLEXITY_MARGIN:
                changes = f"{now.perplexity_change:+.2%} instead of {then.perplexity_change:+.2%}"
                problems.append(f"{name}: perplexity {changes}")
        return problems


def recheck(bundle: Bundle, on_progress: Callable[[int, int], None] | None = None) -> Recheck:
    """Measure every variant that runs here; ``on_progress`` hears how many positions of how many are done.

    Raises:
        BundleError: the report or the reference is damaged, or no variant runs here.
        LogitsError: logits are not finite.
    """
    manifest, stored = bundle.manifest, ParityReport.read(bundle)
    model = manifest.model
    reference = ParityReference.load(bundle.file(manifest.parity_reference), model.vocab_size, model.max_context)
    runnable, skipped = _runnable(bundle, stored)
    parities: dict[str, VariantParity] = {}
    for variant in runnable:

        def advance(done: int, total: int, before: int = len(parities)) -> None:
            if on_progress:
                on_progress(before * total + done, len(runnable) * total)

        parities[variant.name] = measure(bundle, variant, reference, advance)
    return Recheck(stored, parities, skipped)


def _runnable(bundle: Bundle, stored: ParityReport) -> tuple[list[GraphVariant], dict[str, str]]:
    """The report's variants for which the installed ONNX Runtime is new enough, and why the others are not among them.

    Raises:
        BundleError: it is too old for all.
    """
    runnable, skipped = list[GraphVariant](), dict[str, str]()
    for variant in judged_variants(bundle):
        if variant.name not in stored.variants:  # it was exported without kernels
            continue
        try:
            require_version(variant.minimum_onnxruntime, f"the variant {variant.name}")
            runnable.append(variant)
        except BundleError as error:
            skipped[variant.name] = str(error)
    if not runnable:
        raise BundleError(next(iter(skipped.values())))
    return runnable, skipped
