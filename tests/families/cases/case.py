"""Case: one tiny configuration of one family, as data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

SEEDS_FILES = {4: Path(__file__).with_name("seeds.json"), 5: Path(__file__).with_name("seeds5.json")}
_SEEDS: dict[int, dict[str, int]] = {
    oracle: json.loads(file.read_text("utf-8")) for oracle, file in SEEDS_FILES.items()
}

CONTEXT = 96
"""Positions of nearly every case: room for the prompt and 64 tokens more."""


@dataclass(frozen=True, slots=True)
class Case:
    """``config`` is what transformers' config class of ``family`` (its ``model_type``) is given.

    Attributes:
        refused: a pattern of the refusal, where edgegen must not export this.
        inert: why this variant computes the same as the family's base; empty where it must differ from it.
        max_context: what it is exported for, where that is not what the config says.
        length: tokens of the sequence whose logits are compared.
        prompt: tokens before the greedy ones, and ``generated``: how many of these.
        oracles: the versions of transformers that know this; the first one writes the checkpoint where any will do.
    """

    family: str
    name: str
    config: Mapping[str, Any] = field(repr=False)
    refused: str = ""
    inert: str = ""
    max_context: int | None = None
    length: int = 48
    prompt: int = 5
    generated: int = 64
    oracles: tuple[int, ...] = (4, 5)

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"

    def seed(self, oracle: int) -> int:
        """That of its random weights, chosen so that greedy decoding neither loops nor meets near ties.

        Most models of transformers 5 have the parameters of transformers 4, in their order, and so the same weights.
        """
        return _SEEDS[oracle].get(str(self), _SEEDS[4].get(str(self), 0))


def variants(
    family: str,
    base: Mapping[str, Any],
    changes: Mapping[str, Mapping[str, Any]],
    others: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    oracles: tuple[int, ...] = (4, 5),
) -> list[Case]:
    """The base case and one case per named change of its config; ``others``: their other attributes, by name."""
    common = {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": 96, **base}
    changes = {"base": {}, **changes}
    strange = others.keys() - changes.keys()
    assert not strange, f"{family} has no variant {strange}"
    return [
        replace(Case(family, name, MappingProxyType({**common, **change}), oracles=oracles), **others.get(name, {}))
        for name, change in changes.items()
    ]
