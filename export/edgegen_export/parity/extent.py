"""Extent: how much a bundle is compared with its checkpoint, by the model's size."""

from dataclasses import dataclass

LARGE, LARGER = 100_000_000, 400_000_000
"""Numbers of parameters from which a model is calibrated and compared on less text: more takes long for little."""

WINDOW = 256
"""Tokens of a passage, at most."""


@dataclass(frozen=True, slots=True)
class Extent:
    """``windows``: passages of the text, of ``length`` tokens; ``prompts``: taken from each, to be continued by up to
    ``tokens`` ids in at most ``rounds`` of speculative decoding, each of which costs a pass over the unquantized
    model's weights; ``states``: positions whose hidden states are compared after each layer."""

    windows: int
    length: int
    prompts: int
    tokens: int
    rounds: int
    states: int

    @classmethod
    def of(cls, parameters: int) -> "Extent":
        """That of a model of so many parameters."""
        return OF_SMALL if parameters < LARGE else OF_LARGE if parameters < LARGER else OF_LARGER


OF_SMALL = Extent(windows=2, length=WINDOW, prompts=4, tokens=16, rounds=2, states=128)
OF_LARGE = Extent(windows=1, length=WINDOW, prompts=2, tokens=8, rounds=1, states=64)
OF_LARGER = Extent(windows=1, length=WINDOW // 2, prompts=1, tokens=8, rounds=1, states=32)
