"""Which matrices get better formats: those where it saves most for its size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rung:
    """One format a matrix may have: what it costs the model (in KL, measured), and how large the matrix is (bits)."""

    divergence: float
    bits: int


def climbed(ladders: Mapping[str, Sequence[Rung]], goal: float = 0.0, spare_bits: float = math.inf) -> dict[str, int]:
    """The rung of every ladder that is left for a higher one: of the steps that fit ``spare_bits`` together, those that
    save most for their size, until all divergences together are no more than ``goal``."""
    reached, total = dict.fromkeys(ladders, 0), sum(rungs[0].divergence for rungs in ladders.values())
    while total > goal:
        best, rate = ("", 0), 0.0
        for name, rungs in ladders.items():
            here = rungs[reached[name]]
            for k, rung in enumerate(rungs[reached[name] + 1 :], reached[name] + 1):
                saved, more = here.divergence - rung.divergence, rung.bits - here.bits
                if more <= spare_bits and saved > rate * more:
                    best, rate = (name, k), saved / more
        if not rate:
            break
        name, k = best
        here, there = ladders[name][reached[name]], ladders[name][k]
        total -= here.divergence - there.divergence
        spare_bits -= there.bits - here.bits
        reached[name] = k
    return {name: k for name, k in reached.items() if k}
