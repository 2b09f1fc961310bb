"""StoredFormat: how a quantized checkpoint stores the numbers of a matrix, and in which blocks they share a scale."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from edgegen_export.checkpoint.base_names import BaseNames

Block = tuple[int | None, int | None]
"""Rows and columns that share a scale; None stands for all of them."""

TENSOR: Block = (None, None)
CHANNEL: Block = (1, None)

REGEX = "re:"


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """``numbers``: 8-bit floats, pairs of 4-bit floats, 8-bit integers, or integers of ``bits`` packed in 32-bit words.

    ``blocks``: those that the scales may be of; ``byte_scales``: what scales are that are stored as bytes.
    ``second_scale``: there is one more of the whole matrix, which the others are multiplied with or divided by.
    ``zeros``: there is a zero point for each scale. ``offsets``: codes are unsigned, and each block has a number that
    is added (MLX). ``shaped``: the shape of the matrix is stored beside it. ``in_words``: floats lie in 32-bit words.
    """

    numbers: Literal["float8", "float4", "int8", "words"]
    blocks: tuple[Block, ...]
    bits: int = 8
    byte_scales: Literal["exponents", "float8", "none"] = "none"
    second_scale: Literal["factor", "divisor", "none"] = "none"
    zeros: bool = False
    offsets: bool = False
    shaped: bool = False
    in_words: bool = False


Target = tuple[str, StoredFormat | None]
"""A module's name, a pattern of names after ``re:`` or a class of modules; None: what it names is not quantized."""


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of a checkpoint's modules: the first of ``targets`` that names one, else ``default``.

    ``ignored``: targets that are not quantized, whatever else names them. ``mlx``: tensors are called and stacked as
    MLX does it. ``unused``: what the config says of activations and the KV cache, in words.
    """

    default: StoredFormat | None = None
    targets: tuple[Target, ...] = ()
    ignored: tuple[str, ...] = ()
    mlx: bool = False
    modules: Mapping[str, StoredFormat | None] = field(default_factory=lambda: MappingProxyType({}))
    unused: tuple[str, ...] = ()

    def of(self, module: str, names: BaseNames) -> StoredFormat | str:
        """The format of ``module``, or what is wrong with its being quantized."""
        bare = names.bare(module)
        if any(_is_named(module, bare, target, names) for target in self.ignored):
            return "is quantized, and the config's list of what is not names it"
        own = next((name for name in self.modules if bare == names.bare(name)), None)
        if own is not None:
            found = self.modules[own]
        else:
            by_name = [form for target, form in self.targets if _is_named(module, bare, target, names)]
            by_class = [form for target, form in self.targets if _is_class(module, bare, target, names)]
            found = (*by_name, *by_class, self.default)[0]
            if not by_name and len(set(by_class)) > 1:
                return "is quantized, and the config has several formats for modules of its class"
        return found or "is quantized, and the config has no format for it"


def _is_named(module: str, bare: str, target: str, names: BaseNames) -> bool:
    if not target.startswith(REGEX):
        return bare == names.bare(target)
    pattern = target.removeprefix(REGEX)
    return any(re.match(pattern, name) is not None for name in (module, bare))


def _is_class(module: str, bare: str, target: str, names: BaseNames) -> bool:
    """Whether ``target`` is the name of a class, and may be the module's: an embedding's, or a linear layer's."""
    if not target.isidentifier() or not target[0].isupper():
        return False
    return (target == "Embedding") == (bare == names.bare(names.embedding))
