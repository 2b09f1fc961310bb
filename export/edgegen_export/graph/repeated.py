"""Another layer's weights by the names of a layer that repeats it, so that each is stored once."""

from collections.abc import Iterator
from functools import partial

from edgegen_export.architecture.config import LAYER_NORMS, DecoderConfig
from edgegen_export.graph.attention import kv_scale_names
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.renamed import RenamedParameters


def of_layer(params: Parameters, config: DecoderConfig, layer: int) -> Parameters:
    """``params`` by the names of a layer, which may compute with another's."""
    if config.layers[layer].repeats is None:
        return params
    own = frozenset(_own_names(config, layer))
    return RenamedParameters(params, partial(_stored_name, f"layers.{layer}.", config.stored(layer), own))


def _own_names(config: DecoderConfig, layer: int) -> Iterator[str]:
    """Tensors and modules that a layer has itself: scales of its KV cache, those of its own components, its norms."""
    own, hidden = config.layers[layer].own, config.hidden_size
    yield from kv_scale_names(layer)
    for one in own:
        found = (one.matrices(hidden), one.kernels(hidden), one.numbers(hidden), one.norms(config.norm, hidden))
        yield from (f"layers.{layer}.{name}" for names in found for name in names)
    if own:
        yield from (f"layers.{layer}.{name}" for name in LAYER_NORMS[config.block_of(layer)])


def _stored_name(layer: str, stored: str, own: frozenset[str], name: str) -> str:
    """``name``, where one that begins with ``layer`` means that of ``stored``, but for those of ``own``: every pass has
    a KV cache, and scales, of its own."""
    inside, module = name.removeprefix(layer), name.removesuffix(".weight")
    return name if own & {name, module} or inside == name else f"{stored}{inside}"
