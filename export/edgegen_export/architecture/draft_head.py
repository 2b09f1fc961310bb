"""DraftHead: where checkpoints have the layer of a multi-token prediction head, and its tensors under our names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from edgegen_export.architecture.components.draft_input import DraftInput
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.tensor_layouts import Same, TensorLayout
from edgegen_export.tensors.lazy import LazyTensor

Layouts = Mapping[str | tuple[str, ...], TensorLayout]


def last_with_attention(config: DecoderConfig) -> tuple[Layer, ...]:
    """A layer as the last one that has attention."""
    return (config.layers[max(config.attentions)],)


@dataclass(frozen=True, slots=True)
class DraftHead:
    """Head that reads hidden states of the last position and the next token and proposes the one after: one layer, or
    a few.

    ``layer``: what the names of the first layer's own tensors begin with, ``{n}`` being the number of the model's
    layers, and ``{i}`` that of a layer in it, where it has several.
    ``around``: our names of what is around the layers, each with the checkpoint's (without ``.weight``).
    ``shared``: embedding and head of its own that checkpoints may repeat, by our names of the model's.
    ``of``: what layers they are. ``takes``: what it makes its input of.
    """

    layer: str
    around: Mapping[str, str]
    shared: Mapping[str, str] = field(default_factory=dict[str, str])
    of: Callable[[DecoderConfig], tuple[Layer, ...]] = last_with_attention
    takes: DraftInput = field(default_factory=DraftInput)

    def config(self, config: DecoderConfig) -> DecoderConfig:
        """The head as a decoder of its own layers, with the embedding, the norms and the head of ``config``."""
        layers = tuple(replace(layer, repeats=None) for layer in self.of(config))
        return replace(config, layers=layers, extras=(*config.extras, self.takes))

    def layouts(self, layouts: Layouts) -> Layouts:
        """The architecture's ``layouts``, as the head has them."""
        of_layers = {
            ours: layout
            for ours, layout in layouts.items()
            if (ours if isinstance(ours, str) else ours[0]).startswith("layers.")
        }
        return {**of_layers, **{f"{name}.weight": Same(f"{name}.weight") for name in (*self.around, *_SHARED)}}

    def find(
        self, config: DecoderConfig, found: Mapping[str, LazyTensor], bound: Mapping[str, LazyTensor]
    ) -> tuple[dict[str, LazyTensor], list[str]]:
        """The head's tensors among those ``found``, by the names that :meth:`layouts` has, with embedding and head of
        the model, which are ``bound``; and embedding or head of its own that differ from these.

        Empty where the checkpoint has no head.
        """
        prefix = self.layer.replace("{n}", str(config.num_layers))
        prefixes = {prefix.replace("{i}", str(i)): f"layers.{i}." for i in range(len(self.of(config)))}
        named, repeated = (
            {
                f"{theirs}.weight".replace("{n}", str(config.num_layers)): f"{ours}.weight"
                for ours, theirs in one.items()
            }
            for one in (self.around, self.shared)
        )
        own, different = dict[str, LazyTensor](), list[str]()
        for name, tensor in found.items():
            if name in repeated:
                model = bound.get(repeated[name], bound["embed.weight"])
                different += [] if tensor.equals(model) else [name]
            elif name in named:
                own[named[name]] = tensor
            else:
                own |= {
                    ours + name.removeprefix(theirs): tensor
                    for theirs, ours in prefixes.items()
                    if name.startswith(theirs)
                }
        if own:
            own |= {f"{name}.weight": bound[f"{name}.weight"] for name in _SHARED if f"{name}.weight" in bound}
        return own, different


_SHARED = ("embed", "head")
"""Tensors that the head shares with the model, by our names."""
