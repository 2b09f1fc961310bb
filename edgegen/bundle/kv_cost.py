"""Cost in divergence of a KV cache's dtype, as the parity report of a bundle has it."""

from typing import Any, cast

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.manifest import GraphVariant


def mean_kl(bundle: Bundle, variant: GraphVariant) -> float | None:
    """The mean KL divergence of ``variant`` in nats; None where the report has none, as in bundles older than it.

    Raises:
        VerificationError: the report is damaged.
    """
    found: Any = bundle.json(bundle.manifest.parity)
    for key in ("variants", variant.name, "mean_kl"):
        found = cast(dict[str, Any], found).get(key) if isinstance(found, dict) else None
    return found if isinstance(found, float) else None


def kv_warning(bundle: Bundle, kv: KVDtype | None) -> str | None:
    """Return a warning if ``bundle`` runs with a converted KV cache (``kv``) that adds much divergence; None otherwise.

    Raises:
        UsageError: the bundle has no such variant.
        VerificationError: the report is damaged.
    """
    converted = bundle.variant_with(kv)
    if converted.kv.format.make_graph is None:
        return None
    floats = bundle.variant_with("float32")
    better = min(bundle.manifest.variants, key=lambda one: one.kv.bytes_per_token)
    costs = [mean_kl(bundle, variant) for variant in (converted, floats, better)]
    cost, least, advised = (-1.0 if one is None else one for one in costs)  # what is not measured is not judged
    if min(cost, least, advised) < 0 or cost - least <= converted.kv.format.most_kl:
        return None
    return (
        f"a KV cache in {converted.kv.dtype} costs {bundle.manifest.name} much (mean KL {cost:.2g} nats, and "
        f"{advised:.2g} with {better.kv.dtype}): take --kv {better.kv.dtype}"
    )
