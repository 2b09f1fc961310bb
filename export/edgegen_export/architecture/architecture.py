"""Architecture: a model family as data, and which family a ``config.json`` names."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Component
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.draft_head import DraftHead
from edgegen_export.architecture.inert_keys import judge_unread
from edgegen_export.architecture.tensor_layouts import Concatenated, Same, Shape, TensorLayout
from edgegen_export.checkpoint import BaseNames, Ternary, read_quantization
from edgegen_export.tensors.lazy import LazyTensor

TensorMap = Mapping[str | tuple[str, ...], "str | TensorLayout"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model family as data: how its ``config.json`` is read, and what its tensors are called.

    ``tensors`` maps our names (templates with ``{i}``) to the checkpoint's names, or to a :class:`TensorLayout` where
    the checkpoint stores them differently. It is a function of the config where names or layouts depend on it.
    ``classes``: values of the config's ``architectures`` that are this causal language model.
    ``read``: makes a ``DecoderConfig`` of the config. ``defaults``: values of the family's config class for missing
    keys. ``aliases``: other names of keys.
    ``prefixes``: optional prefixes of all tensor names. ``renamed``: parts of tensor names that some files have, each
    with what stands for it here. ``ignored``: patterns of tensor names that hold no weight.
    ``drafts``: a tensor, a template, that only layers behind the last one have: they propose further tokens, and are no
    layers of the model. ``heads``: patterns of names of tensors of such layers that lie elsewhere. ``draft_head``:
    where the first of these is; None where what they compute is not known.
    ``variant``: other ``tensors``, for checkpoints where a tensor's name ends as said; a function of its shape too.
    ``inside``: what this is around the language model that a ``config.json`` has inside; nothing is read before.
    """

    model_types: tuple[str, ...]
    classes: tuple[str, ...]
    read: Callable[[ConfigReader], DecoderConfig]
    tensors: TensorMap | Callable[[DecoderConfig], TensorMap]
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prefixes: tuple[str, ...] = ("", "model.")
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    ignored: tuple[str, ...] = ()
    drafts: str = ""
    heads: tuple[str, ...] = ()
    draft_head: DraftHead | None = None
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    variant: tuple[str, Callable[[DecoderConfig, Shape], TensorMap]] | None = None
    inside: "Callable[[Architecture, Mapping[str, Any]], Architecture] | None" = None

    def of(self, config: Mapping[str, Any]) -> "Architecture":
        """This, as ``config`` describes it.

        Raises:
            UnsupportedModelError: the language model inside has no family.
        """
        return self if self.inside is None else self.inside(self, config)

    def as_stored(self, found: Mapping[str, LazyTensor]) -> "Architecture":
        """This, with the ``tensors`` of a checkpoint that has those of ``found``."""
        if self.variant is None:
            return self
        ending, tensors = self.variant
        shape = next((tensor.shape for name, tensor in found.items() if name.endswith(ending)), None)

        def of_shape(config: DecoderConfig) -> TensorMap:
            return tensors(config, shape or ())

        return self if shape is None else replace(self, tensors=of_shape)

    def layouts(self, config: DecoderConfig) -> dict[str | tuple[str, ...], TensorLayout]:
        """``tensors`` under ``config``, plain names turned into layouts."""
        tensors = self.tensors(config) if callable(self.tensors) else self.tensors
        return {ours: Same(theirs) if isinstance(theirs, str) else theirs for ours, theirs in tensors.items()}

    def base_names(self, config: DecoderConfig) -> BaseNames:
        """The modules that an adapter changes in a special way: embedding, head and transposed matrices."""
        layouts = self.layouts(config)
        transposed = (layout for layout in layouts.values() if isinstance(layout, Concatenated) and layout.transposed)
        return BaseNames(
            embedding=_module(layouts.get("embed.weight")),
            head=_module(layouts.get("head.weight")),
            inputs_first=tuple(map(_module, transposed)),
            prefixes=self.prefixes,
        )

    def read_config(self, config: Mapping[str, Any]) -> DecoderConfig:
        """The decoder that ``config.json`` describes.

        Raises:
            UnsupportedModelError: the config asks for what cannot be exported; every problem is listed.
        """
        reader = ConfigReader(config, self.defaults, self.aliases)
        result = self.read(reader)
        if isinstance(read_quantization(config), Ternary):
            result = replace(result, ternary=True)
            if problem := _not_ternary(result):
                reader.problem(f"quantization_config: ternary matrices are read in models of {problem}")
        reader.finish(partial(judge_unread, result))
        return result


def _not_ternary(config: DecoderConfig) -> str:
    """Return the requirements of ternary models that ``config`` misses; empty where it is one."""
    if not all(type(one) in (Attention, MLP) for layer in config.layers for one in layer.components):
        return "attention and MLPs alone"
    if config.extras:
        return "no table of positions"
    if any(columns % 4 for layer in config.layers for one in layer.components for columns in _columns(one, config)):
        return "sizes that 4 divides"
    return "one width" if config.embedding_size not in (None, config.hidden_size) else ""


def _columns(component: Component, config: DecoderConfig) -> set[int]:
    return {shape[1] for shape in component.matrices(config.hidden_size).values()}


def _module(layout: TensorLayout | None) -> str:
    """The module whose weight has this layout; empty where the architecture has none."""
    return layout.theirs.removesuffix(".weight") if layout else ""


WhyNot = Callable[[Mapping[str, Any], Collection[str]], str | None]


def find_architecture(
    config: Mapping[str, Any], families: tuple[Architecture, ...], why_not: WhyNot | None = None
) -> Architecture:
    """The family that ``config.json`` names. ``why_not``: why a model of none cannot be exported, where that is known.

    Raises:
        UnsupportedModelError: no family has that ``model_type``, or the class is not its causal language model.
    """
    known = {model_type: family for family in families for model_type in family.model_types}
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise UnsupportedModelError(
            f"config.json has no model_type, so the architecture is unknown; supported: {', '.join(sorted(known))}."
        )
    if model_type not in known:
        if reason := why_not and why_not(config, known):
            raise UnsupportedModelError(f"model_type {model_type!r} cannot be exported: {reason}.")
        # The nearest name may be another architecture; only another spelling is the same one.
        same = next((f" (did you mean {name!r}?)" for name in known if _letters(name) == _letters(model_type)), "")
        raise UnsupportedModelError(
            f"model_type {model_type!r} is not supported{same}; supported: {', '.join(sorted(known))}."
        )
    family = known[model_type]
    found = config.get("architectures") or family.classes
    classes = [str(name) for name in cast(list[object], found)] if isinstance(found, list | tuple) else [str(found)]
    if not set(classes) & set(family.classes):
        raise UnsupportedModelError(
            f"the checkpoint is a {' / '.join(classes)}; edgegen exports causal language models: "
            f"{', '.join(family.classes)}."
        )
    return family.of(config)


def _letters(name: str) -> str:
    """Letters and digits alone, in lower case."""
    return "".join(c for c in name.lower() if c.isalnum())
