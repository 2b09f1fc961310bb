"""Our names and shapes of a decoder's tensors, matrices and norms: loops over the components of its layers."""

from collections.abc import Iterator

from edgegen.model.ort_session import version_numbers
from edgegen_export.architecture.components.component import LEAST_ONNXRUNTIME, Component, Modules
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import LAYER_NORMS, DecoderConfig
from edgegen_export.architecture.tensor_layouts import Shape


def components_of(config: DecoderConfig) -> Iterator[tuple[str, Component]]:
    """All components that have tensors, each with the name of its layer and a dot, which stand before its own names."""
    stored = ((i, layer, one) for i, layer in enumerate(config.layers) for one in layer.components)
    return ((f"layers.{i}.", one) for i, layer, one in stored if layer.stores(one))


def extras_around(config: DecoderConfig) -> list[Component]:
    """The extras, those of layers too: they have parts outside of the layers, which all of their layers share."""
    kinds = {type(one): one for own in (config, *config.layers) for one in own.extras}
    return list(kinds.values())


def decoder_tensors(config: DecoderConfig) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Our tensors of ``config``: (required, optional) names and shapes. Presence decides whether a bias exists."""
    d = config.hidden_size
    embedding = config.embedding_size or d
    matrices: dict[str, Shape] = {"embed": (config.vocab_size, embedding)}
    if embedding != d:
        matrices |= {"embed_in": (d, embedding), "head_in": (embedding, d)}
    for extra in extras_around(config):
        matrices |= extra.around(d, config.num_layers)
    biased: dict[str, Shape] = {}
    numbers: dict[str, Shape] = {}
    for layer, one in components_of(config):
        found = (*one.matrices(d).items(), *one.kernels(d).items())
        biased |= {f"{layer}{name}": shape for name, shape in found}
        numbers |= {f"{layer}{name}": shape for name, shape in one.numbers(d).items()}
    matrices |= biased
    if not config.tied_head:
        matrices["head"] = (config.vocab_size, embedding)
    required = {f"{name}.weight": shape for name, shape in matrices.items()} | numbers
    optional = {f"{name}.bias": shape[:1] for name, shape in biased.items()}
    optional["head.bias"] = (config.vocab_size,)
    for name, (norm, shape) in decoder_norms(config).items():
        required |= {f"{name}.weight": shape} if norm.weight else {}
        required |= {f"{name}.bias": shape} if norm.bias else {}
    return required, optional


def decoder_norms(config: DecoderConfig) -> dict[str, tuple[Norm, Shape]]:
    """Our norms of ``config``: what each computes, and the shape of its weight."""
    norm, d = config.norm, config.hidden_size
    names = ["embed_norm"] if config.embedding_norm else []
    normed = [i for i, layer in enumerate(config.layers) if layer.repeats is None or layer.own]
    names += [f"layers.{i}.{name}" for i in normed for name in LAYER_NORMS[config.block_of(i)]]
    names += ["final_norm"] if config.final_norm else []
    norms: dict[str, tuple[Norm, Shape]] = dict.fromkeys(names, (norm, (d,)))
    for layer, one in components_of(config):
        norms |= {f"{layer}{name}": found for name, found in one.norms(norm, d).items()}
    for extra in extras_around(config):
        norms |= extra.norms_around(norm, d)
    return norms


def layer_products(config: DecoderConfig, layer: int) -> list[Modules]:
    """The matrices of a layer that calibration walks through, fused as the graph fuses them; experts are left out."""
    own = config.layers[layer]
    in_order = sorted(own.components, key=lambda one: one is own.mlp)
    ordered = ((one, config.stored(layer, one)) for one in in_order)
    return [tuple(f"{name}{module}" for module in modules) for one, name in ordered for modules in one.products]


def matrices_around(config: DecoderConfig) -> list[Modules]:
    """The matrices before and after the layers that keep 8 bits at least, but for embedding and head, those that are
    fused together."""
    return [modules for extra in extras_around(config) for modules in extra.products_around]


def expert_matrices(config: DecoderConfig) -> list[Modules]:
    """The matrices of all experts of each layer that has them: those that take its input, and its output's."""
    stacks = ((layer, stack) for layer, one in components_of(config) for stack in one.stacks)
    return [tuple(f"{layer}{module}" for module in stack) for layer, stack in stacks]


def least_onnxruntime(config: DecoderConfig) -> str:
    """The oldest ONNX Runtime that computes all components."""
    found = {one.least_onnxruntime for _, one in components_of(config)}
    return max(found, key=version_numbers, default=LEAST_ONNXRUNTIME)
