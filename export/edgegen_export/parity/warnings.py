"""parity_warnings(): what a bundle costs beyond its scheme's limits, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass

from edgegen.bundle.manifest import Manifest, Quantization
from edgegen.evaluation.parity.report import ParityReport, VariantParity
from edgegen_export.quantize.recipe import Scheme


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits up to which a scheme costs no warning: ``mean_kl`` in nats, and ``perplexity``, the relative change beyond
    twice its standard error.

    Not top-1 agreement: a model for which many ids are nearly as likely changes its first choice for nothing.
    """

    mean_kl: float
    perplexity: float


LIMITS: Mapping[Scheme, Limit] = {
    # Smoothed 8 bits cost trained models .0002 to .002; rounded plainly over outliers, .013 and more.
    "int8": Limit(0.01, 0.005),
    # GPTQ costs .001 to .01; plain rounding over outliers, .07 and more.
    "int4": Limit(0.05, 0.03),
    "fp16": Limit(1e-3, 2e-3),
    # The same numbers in the same precision: more than rounding is a bug of the export.
    "fp32": Limit(1e-5, 1e-3),
}


def parity_warnings(report: ParityReport, manifest: Manifest, *, can_be_calibrated: bool) -> list[str]:
    """Return what the bundle costs beyond its limits, one sentence for each, with what to do.

    ``can_be_calibrated``: whether the model can be run before its weights are stored.
    """
    first, *others = manifest.variants
    # Activations of a ternary model are rounded as in int8, and a last bit decides those near a tie.
    scheme: Scheme = "int8" if manifest.quantization.linear.is_ternary else manifest.quantization.scheme
    best, limit, found = report.preferred, LIMITS[scheme], list[str]()
    beyond_noise = best.perplexity_change - 2 * best.perplexity_change_error
    if best.mean_kl > limit.mean_kl or beyond_noise > limit.perplexity:
        fix = _fix(manifest.quantization, can_be_calibrated)
        found.append(f"{first.name} costs this model much ({_cost(best)}): {fix}")
    for variant in others:
        parity = report.variants[variant.name]
        if parity.mean_kl > best.mean_kl + variant.kv.format.most_kl:
            found.append(
                f"a KV cache in {variant.kv.dtype} costs this model much ({_cost(parity)}; a float32 one "
                f"{best.mean_kl:.2g} nats): run it with the float32 KV cache, the default"
            )
    return found


def _cost(parity: VariantParity) -> str:
    return (
        f"mean KL {parity.mean_kl:.2g} nats, perplexity {parity.perplexity_change:+.2%} ± "
        f"{parity.perplexity_change_error:.2%}, top-1 agreement {parity.top1_agreement:.1%}"
    )


def _fix(recipe: Quantization, can_be_calibrated: bool) -> str:
    """The nearest way to a better bundle."""
    fast = can_be_calibrated and not recipe.calibrates
    match recipe.scheme:
        case "int4" if not recipe.linear.is_ternary:
            return "export it without --fast" if fast else "export it with a larger --bits-budget, or with --int8"
        case "int8" | "int4":
            return "export it without --fast" if fast else "export it with --fp16"
        case "fp16":
            return "export it with --fp32"
        case "fp32":
            return "nothing was rounded, so please report this model"
