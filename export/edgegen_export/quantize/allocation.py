"""Which matrices get more bits: those where it saves most for its size, while the budget lasts."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What a matrix of more bits saves (in KL, measured) and what it costs (bits)."""

    saves: float
    costs: int


def chosen(upgrades: Mapping[str, Upgrade], spare_bits: float) -> tuple[str, ...]:
    """Names of the upgrades worth most for their size that fit ``spare_bits`` together."""
    result: list[str] = []
    for name in sorted(upgrades, key=lambda name: (-upgrades[name].saves / upgrades[name].costs, name)):
        if upgrades[name].saves > 0 and upgrades[name].costs <= spare_bits:
            result.append(name)
            spare_bits -= upgrades[name].costs
    return tuple(result)
