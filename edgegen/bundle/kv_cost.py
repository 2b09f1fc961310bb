"""Cost in divergence of a KV cache's dtype, as the parity report of a bundle has it."""

from typing import Any, cast

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant, KVDtype

MOST_KL = 0.05
"""Divergence in nats that an int4 KV cache may cost without a warning: as much as int4 weights may."""


def mean_kl(bundle: Bundle, variant: GraphVariant) -> float | None:
    """The mean KL divergence of ``variant`` in nats; None where the report has none, as in bundles older than it.

    Raises:
        VerificationError: the report is damaged.
    """
    found: Any = bundle.json(bundle.manifest.parity)
    for key in ("variants", variant.name, "mean_kl"):
        found = cast(dict[str, Any], found).get(key) if isinstance(found, dict) else None
    return found if isinstance(found, float) else None


def int4_kv_warning(bundle: Bundle, kv: KVDtype | None) -> str | None:
    """Return a warning if ``bundle`` runs with an int4 KV cache (``kv``) that adds much divergence; None otherwise.

    Raises:
        UsageError: the bundle has no such variant.
        VerificationError: the report is damaged.
    """
    packed = bundle.variant_with(kv)
    if packed.kv.dtype != "int4":
        return None
    floats = bundle.variant_with("float32")
    better = next((one for one in bundle.manifest.variants if one.kv.dtype == "int8"), floats)
    costs = [mean_kl(bundle, variant) for variant in (packed, floats, better)]
    cost, least, advised = (-1.0 if one is None else one for one in costs)  # what is not measured is not judged
    if min(cost, least, advised) < 0 or cost - least <= MOST_KL:
        return None
    return (
        f"an int4 KV cache costs {bundle.manifest.name} much (mean KL {cost:.2g} nats, and {advised:.2g} with "
        f"{better.kv.dtype}): take --kv {better.kv.dtype}"
    )
