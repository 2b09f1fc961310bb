"""MetadataReader: typed, strict access to the metadata of a GGUF model, with its tensors at hand."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from edgegen.errors import CheckpointError, refuse_any, suggestions
from edgegen_export.checkpoint.gguf.file import GgufFile
from edgegen_export.checkpoint.gguf.layouts import Heads, NetHeads
from edgegen_export.files.fields import Fields, is_a, name_of, shown

T = TypeVar("T", bool, int, float, str)

_EMBEDDING = "token_embd.weight"
_KEY_HEADS = "attention.head_count_kv"
# Keys that say nothing about the mathematics: the vocabulary's size is that of the embedding, and the architecture says
# which kind of norm it has, though some files give the epsilon of both.
_NEUTRAL = (
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "pooling_type",
    "rope.scaling.finetuned",
    "tensor_data_layout",
    "vocab_size",
)
_ABSENT_PARTS = {
    "expert_count": "experts are not known of this architecture",
    "expert_used_count": "experts are not known of this architecture",
    "nextn_predict_layers": "layers that predict further tokens are not supported",
}


class MetadataReader(Fields):
    """Reads the architecture's own keys and remembers which; what is missing or not understood is an error at the end.

    A required value that is missing or wrong is stood in for by 1 (or 1.0), so that all problems are found at once.
    """

    def __init__(self, gguf: GgufFile, architecture: str) -> None:
        super().__init__(gguf.metadata, architecture + ".")
        self._gguf = gguf
        self._zero_is_none: set[str] = set()
        self.net = NetHeads(1, 1, 1, 1)
        """Of a gated delta net, set by the rule that reads it."""
        self.own_values = False
        """Whether a rule reads the sizes of keys and values, which differ."""
        self.attends = True
        """Whether any layer has attention, and so heads; set by the rule of an architecture where none has."""

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number ≥ ``least``; what is written once per layer must be the same in all that have it.

        None: required.
        """
        value = self._get(key, int, default, 1)
        if value < least:
            self.wrong(key, f"{value} is not at least {least}")
            return least
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A finite number; required without a default."""
        return self._get(key, float, default, 1.0)

    def flag(self, key: str, default: bool) -> bool:
        return self._get(key, bool, default, default)

    def text(self, key: str, default: str) -> str:
        return self._get(key, str, default, default)

    def flags(self, key: str, default: list[bool]) -> list[bool]:
        """A flag for each of ``default``."""
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, list) and list(map(type, cast(list[Any], value))) == [bool] * len(default):
            return cast(list[bool], value)
        self.expected(key, f"{len(default)} flags", cast(object, value))
        return default

    def numbers(self, key: str) -> list[int]:
        """Whole numbers, however many."""
        value = self.value(key)
        values = cast(list[Any], value) if isinstance(value, list) else [] if value is None else [value]
        if all(type(each) is int for each in values):
            return values
        self.expected(key, "whole numbers", cast(object, value))
        return []

    @cached_property
    def vocab_size(self) -> int:
        """Rows of the embedding, which may be fewer or more than the tokenizer has tokens."""
        return self.rows(_EMBEDDING)

    @cached_property
    def layers(self) -> int:
        return self.integer("block_count")

    @cached_property
    def hidden_size(self) -> int:
        return self.integer("embedding_length")

    def layers_with_attention(self) -> list[bool]:
        """Which layers have key-value heads; for architectures where some have none."""
        return self.layers_with(_KEY_HEADS)

    def layers_with(self, key: str) -> list[bool]:
        """In which layers the number under ``key`` is not zero, which means from now on that they have none."""
        self._zero_is_none.add(key)
        return [count != 0 for count in self.by_layer(key)]

    def by_layer(self, key: str) -> list[object]:
        """Return the value of ``key`` for each layer, unchecked; one value stands for all."""
        given: object = self.value(key)
        values = cast(list[object], given) if isinstance(given, list) else [given] * self.layers
        if len(values) != self.layers:
            self.wrong(key, f"{self.layers} numbers expected, found {len(values)}")
            return [None] * self.layers
        return values

    @cached_property
    def heads(self) -> Heads:
        if not self.attends:
            return Heads(1, 1, 1)
        queries = self.integer("attention.head_count")
        keys = self.integer(_KEY_HEADS, queries)
        size = self.integer("attention.key_length", max(1, self.hidden_size // queries))
        if not self.own_values:
            self.refuse("attention.value_length", (size,), "values as wide as keys are supported only")
        if queries % keys:
            self.problems.append(f"{self._prefix}attention.head_count = {queries} is not a multiple of {keys}")
        return Heads(queries, keys, size)

    def has(self, stem: str, layer: int = 0) -> bool:
        """Whether a tensor of that name is there, in that layer where ``{i}`` stands for it."""
        return stem.replace("{i}", str(layer)) in self._gguf.tensors

    def rows(self, name: str) -> int:
        """How many rows a tensor has that must be there."""
        tensor = self._gguf.tensors.get(name)
        if tensor is None or not tensor.shape:
            self.problems.append(f"tensor {name}: missing")
            return 1
        return tensor.shape[0]

    def factors(self, name: str) -> list[float] | None:
        """The values of a vector by which rotary frequencies are divided, or None."""
        tensor = self._gguf.tensors.get(name)
        values = None if tensor is None else tensor.read().ravel()
        if values is not None and not (np.isfinite(values) & (values > 0)).all():
            self.problems.append(f"tensor {name}: factors must be finite and positive")
            return None
        return None if values is None else values.tolist()

    def refuse(self, key: str, harmless: Sequence[object], reason: str) -> None:
        """Anything but ``harmless`` (or nothing) under ``key`` cannot be exported, for ``reason``."""
        value = self.value(key)
        if value is not None and value not in harmless:
            self.problems.append(f"{self._prefix}{key} = {value!r}: {reason}")

    def finish(self) -> None:
        """Raise everything that was found wrong in the metadata, and every key that was not read.

        Raises:
            CheckpointError: everything found missing or wrong, and every key of the architecture that was not read.
        """
        self.ignore(*_NEUTRAL)
        for key, reason in _ABSENT_PARTS.items():
            if key not in self._read:
                self.refuse(key, (0,), reason)
        if "attention.sliding_window" not in self._read:
            self.refuse("attention.sliding_window", (0,), "sliding windows are not known of this architecture")
        self.refuse("attention.causal", (True,), "only causal models generate text")
        unknown = {key.removeprefix(self._prefix) for key in self._gguf.metadata if key.startswith(self._prefix)}
        strange = sorted(unknown - self._read)
        problems = list(dict.fromkeys(self.problems)) + [  # what is read twice is wrong once
            f"{self._prefix}{key} = {shown(self._gguf.metadata[self._prefix + key])}: not understood, and it may "
            f"change the result{near}"
            for key, near in zip(strange, suggestions(strange, self._read), strict=True)
        ]
        refuse_any(problems, CheckpointError, f"{self._gguf.path} cannot be exported: ")

    def _get(self, key: str, kind: type[T], default: T | None, stand_in: T) -> T:
        value = self.value(key)
        if isinstance(value, list):
            items = cast(list[object], value)
            if key in self._zero_is_none:
                items = [item for item in items if item != 0]
                if not items and default is not None:
                    return default
            if not items or any(item != items[0] for item in items):
                self.wrong(key, "differs from layer to layer, which is not supported")
                return stand_in
            value = items[0]
        if value is None and default is None:
            self.wrong(key, "missing")
        if value is None:
            return stand_in if default is None else default
        if not is_a(value, kind):
            self.expected(key, name_of(kind), value)
            return stand_in
        return kind(value)
