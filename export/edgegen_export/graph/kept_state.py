"""What a layer of a graph keeps, found in the cache's description."""

from edgegen.bundle.layer_state import FixedState
from edgegen.bundle.manifest import KVLayer, KVSpec


def kv_layer(kv: KVSpec, layer: int) -> KVLayer:
    """The keys and values of a layer that has attention."""
    if kv.layers[0].layer is None:  # every layer has
        return kv.layers[layer]
    return next(one for one in kv.layers if one.layer == layer)


def fixed_states(kv: KVSpec, layer: int) -> tuple[FixedState, ...]:
    """The fixed states of a layer."""
    return tuple(state for state in kv.fixed if state.layer == layer)
