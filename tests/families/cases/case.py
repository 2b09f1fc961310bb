"""Case: one tiny configuration of one family, as data."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tests.families.cases.kept import Kept

SEEDS_FILES = {4: Path(__file__).with_name("seeds.json"), 5: Path(__file__).with_name("seeds5.json")}
_SEEDS: dict[int, dict[str, int]] = {
    oracle: json.loads(file.read_text("utf-8")) for oracle, file in SEEDS_FILES.items()
}

CONTEXT = 96
"""Positions of nearly every case: room for the prompt and 64 tokens more."""

Also = Literal[
    "batches",
    "calibrated",
    "chats",
    "denormals",
    "depth",
    "exactness",
    "groups",
    "hidden states",
    "int4 KV",
    "windows",
    "far past windows",
]
"""Tests that take a few cases each: what they are about. The exact bundles of ``calibrated`` ones are calibrated."""


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
        also: the tests of few cases that take this one, beside those which take it anyway.
        kept: what its layers keep, if the tests of hybrids take it.
        exact_with: changes of its config in tests of exactness, if these are not the usual ones.
        off_device: why a device with attention in float16 does not run it.
        deep: keys that a deep model of it changes, beside those of every layer.
        shallow: why no deep model of it is compared.
        quiet: a part of the names of matrices that are small in its random checkpoint. Large ones would magnify every
            rounding, for the model does not scale what they compute.

    Of a base only, for its whole family:

    Attributes:
        config_classes: the versions of transformers that have its config class, if others than ``oracles``.
        aliases: other values of ``model_type`` that transformers has a config class of.
        no_defaults: a pattern of the refusal of a config that has nothing but its type; empty where it is a model.
        size: the key of the size that others follow from, and another value.
        heads: the key of a number of heads, of attention or of mixers, or of another number, and another value.
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
    also: tuple[Also, ...] = ()
    kept: Kept | None = field(default=None, repr=False)
    exact_with: Mapping[str, Any] | None = None
    off_device: str = ""
    deep: Mapping[str, Any] = field(default_factory=dict[str, Any])
    shallow: str = ""
    quiet: str = ""
    config_classes: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    no_defaults: str = ""
    size: tuple[str, int] = ("hidden_size", 512)
    heads: tuple[str, int] = ("num_attention_heads", 4)

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
    quiet: str = "",
) -> list[Case]:
    """The base case and one case per named change of its config; ``others``: their other attributes, by name."""
    common = {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": 96, **base}
    changes = {"base": {}, **changes}
    strange = others.keys() - changes.keys()
    assert not strange, f"{family} has no variant {strange}"
    return [
        replace(
            Case(family, name, MappingProxyType({**common, **change}), oracles=oracles, quiet=quiet),
            **others.get(name, {}),
        )
        for name, change in changes.items()
    ]
