"""Layers that run several times for each token: their passes in order, and the tensors of those that have them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgegen_export.architecture.architecture import TensorMap
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.tensor_layouts import TensorLayout


def in_passes(config: DecoderConfig, order: Sequence[int], starts: Mapping[int, PassStart]) -> DecoderConfig:
    """``config`` with its layers in this ``order``, in which a number may come again; ``starts``: what the passes start
    from, by their places in it."""
    first: dict[int, int] = {}

    def placed(at: int, number: int) -> Layer:
        own, before = config.layers[number], first.setdefault(number, at)
        extras = (*own.extras, *([starts[at]] if at in starts else []))
        return replace(own, extras=extras, repeats=None if before == at else before)

    return replace(config, layers=tuple(placed(at, number) for at, number in enumerate(order)))


def of_layer(
    tensors: TensorMap, ours: int, theirs: str, template: str = "layers.{i}"
) -> dict[str | tuple[str, ...], str | TensorLayout]:
    """The ``tensors`` of one layer, for its number here and for what stands for ``template`` in the checkpoint's
    names."""

    def numbered(name: str) -> str:
        return name.replace("{i}", str(ours))

    def inside(name: str) -> str:
        return name.replace(template, theirs)

    found: dict[str | tuple[str, ...], str | TensorLayout] = {}
    for name, layout in tensors.items():
        own = numbered(name) if isinstance(name, str) else tuple(map(numbered, name))
        found[own] = inside(layout) if isinstance(layout, str) else replace(layout, theirs=inside(layout.theirs))
    return found
