"""Recipe: how the weights of a bundle are stored."""

from dataclasses import dataclass
from typing import Literal

Scheme = Literal["int8", "fp32"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """``int8``: matrices in 8-bit blocks of ``block_size`` weights, computed in int8; ``fp32``: as they are.

    Blocks of 64 or less keep a row's result independent of the rows beside it, bit for bit; larger ones do not.
    ``accuracy_level`` 4 lets ``MatMulNBits`` quantize activations to int8 as well (its fast path).
    Norms, biases and position tables always stay float32.
    """

    scheme: Scheme = "int8"
    bits: int = 8
    block_size: int = 64
    accuracy_level: int = 4

    @property
    def quantized(self) -> bool:
        return self.scheme != "fp32"


RECIPES: dict[Scheme, Recipe] = {
    "int8": Recipe(),
    "fp32": Recipe(scheme="fp32", bits=32, block_size=0, accuracy_level=0),
}
