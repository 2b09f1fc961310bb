"""Parity report as a short table: a column for each variant."""

from collections.abc import Callable

from edgegen.cli.printable import aligned
from edgegen.evaluation.parity.report import ParityReport, VariantParity


def parity_table(report: ParityReport) -> str:
    """Return the lines of a report."""
    variants = report.variants

    def row(label: str, figure: Callable[[VariantParity], str]) -> list[str]:
        return [label, *map(figure, variants.values())]

    rows = [
        ["", *variants],
        row("mean KL, nats", lambda v: f"{v.mean_kl:.2g}"),
        row("worst KL, nats", lambda v: f"{v.max_kl:.2g}"),
        row("top-1 agreement", lambda v: f"{v.top1_agreement:.1%}"),
        row(f"perplexity, {report.perplexity_reference:.4g} before", lambda v: f"{v.perplexity:.4g}"),
        row("its change", perplexity_change),
        row("greedy prompts flipped", lambda v: f"{v.greedy_flipped} of {report.greedy_prompts}"),
        row("prefill against decode", lambda v: _difference(v.prefill_max_diff)),
        row("decode by ones against several", lambda v: _difference(v.decode_step_max_diff)),
    ]
    if report.layer_errors:
        rows.append(
            ["worst layer's relative error", *(worst_layer(report.layer_errors.get(name)) for name in variants)]
        )
    return "\n".join(aligned(rows))


def perplexity_change(parity: VariantParity) -> str:
    """With its standard error."""
    return f"{parity.perplexity_change:+.2%} ± {parity.perplexity_change_error:.2%}"


def worst_layer(errors: tuple[float, ...] | None) -> str:
    """Of layers counted from zero, as in the names of tensors."""
    if errors is None:
        return "not measured"
    worst = max(errors)
    return f"{worst:.2%} (layer {errors.index(worst)})"


def _difference(largest: float) -> str:
    """Of logits."""
    return f"{largest:.1e}" if largest else "equal"
