"""State that a layer of a graph keeps, found in the cache's description."""

from dataclasses import replace

from edgegen.bundle.manifest import KVLayer, KVSpec


def kv_layers(kv: KVSpec, layer: int) -> list[KVLayer]:
    """The keys and values that the attention of a layer reads, by its own names: its own, and an earlier layer's."""
    found = [one for n, one in enumerate(kv.layers) if (n if one.layer is None else one.layer) == layer]
    for one in kv.shared:
        if one.layer == layer:
            names = {"past_key": one.past_key, "past_value": one.past_value}
            names |= {"present_key": one.present_key, "present_value": one.present_value}
            found.append(replace(kv_layers(kv, one.source)[0], **names))
    return found


def cache_names(layer: int | str) -> tuple[str, str, str, str]:
    """The inputs and the outputs of a layer's keys and values: past key and value, present key and value."""
    past, present = f"past_key_values.{layer}", f"present.{layer}"
    return f"{past}.key", f"{past}.value", f"{present}.key", f"{present}.value"


def past_name(name: str, layer: int) -> str:
    """The input of a layer's fixed state."""
    return f"past_{name}.{layer}"
