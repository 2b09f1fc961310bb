"""Bit allocation: which matrices get larger formats, by the divergence that saves for its size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_PIECES = 20_000
"""Pieces in which bits are given out at most; sizes mostly have a common divisor that makes them far fewer."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One format a matrix may have: what it costs the model (in KL, measured), and how large the matrix is (bits)."""

    divergence: float
    bits: int


def upgraded_until(ladders: Mapping[str, Sequence[Rung]], goal: float) -> dict[str, int]:
    """The new rung of every ladder that is raised: the steps that save most for their size are taken, until the sum of
    all divergences is at most ``goal``."""
    reached, total = dict.fromkeys(ladders, 0), sum(rungs[0].divergence for rungs in ladders.values())
    while total > goal:
        best, rate = ("", 0), 0.0
        for name, rungs in ladders.items():
            here = rungs[reached[name]]
            for k, rung in enumerate(rungs[reached[name] + 1 :], reached[name] + 1):
                saved, more = here.divergence - rung.divergence, rung.bits - here.bits
                if saved > rate * more:
                    best, rate = (name, k), saved / more
        if not rate:
            break
        name, k = best
        here, there = ladders[name][reached[name]], ladders[name][k]
        total -= here.divergence - there.divergence
        reached[name] = k
    return {name: k for name, k in reached.items() if k}


def upgraded_within(ladders: Mapping[str, Sequence[Rung]], spare_bits: int) -> dict[str, int]:
    """The rung of every ladder, so that all steps above the first rungs take at most ``spare_bits`` and save most: the
    multiple-choice knapsack, by dynamic programming over the bits given out."""
    more = {name: [rung.bits - rungs[0].bits for rung in rungs] for name, rungs in ladders.items()}
    piece = max(1, math.gcd(*(bits for sizes in more.values() for bits in sizes)))
    piece *= max(1, -(-spare_bits // (piece * _PIECES)))
    room = max(0, spare_bits // piece)
    saved, choices = np.zeros(room + 1), dict[str, NDArray[np.uint8]]()
    for name, rungs in ladders.items():
        best, choice = saved.copy(), np.zeros(room + 1, np.uint8)
        for k, rung in enumerate(rungs):
            size = -(-more[name][k] // piece)
            if 0 < size <= room:
                with_it = saved[: room + 1 - size] + (rungs[0].divergence - rung.divergence)
                better = with_it > best[size:]
                best[size:][better], choice[size:][better] = with_it[better], k
        saved, choices[name] = best, choice
    reached = dict[str, int]()
    for name in reversed(choices):
        reached[name] = int(choices[name][room])
        room -= -(-more[name][reached[name]] // piece)
    return reached
