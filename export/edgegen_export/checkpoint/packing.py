"""Packing: how quantized checkpoints store the codes of a matrix, as ``quantization_config`` of config.json says.

Codes lie in int32 words, low bits first. GPTQ (AutoGPTQ, GPTQModel; Frantar et al., arXiv:2210.17323) has the codes of
consecutive inputs in a word, and the zeros of consecutive outputs; in its first format zeros are stored less one. AWQ
(AutoAWQ's GEMM layout; Lin et al., arXiv:2306.00978) has eight outputs in a word in both, the even ones first. MXFP4
(gpt-oss) has bytes, which ``mxfp4.py`` reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import did_you_mean
from edgegen_export.checkpoint.packing_rules import PackingRule, read_rules

SETTINGS = "quantization_config"
WORD = 32
"""Bits of a word, and how many values fill whole words, whatever their bits."""

MXFP4_BLOCK = 32
"""Values of MXFP4 that share a scale."""

_METHODS = ("gptq", "awq", "mxfp4")
_GPTQ_BITS = (2, 3, 4, 8)
_GPTQ_FORMATS = ("gptq", "gptq_v2")
_DYNAMIC = "dynamic"
_AWQ_BITS = (4,)
_AWQ_FORMATS = ("gemm",)
_AWQ_PLACES = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""Where in a word the codes of eight consecutive outputs lie."""

Codes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Packing:
    """``group_size``: how many columns share a scale and a zero; None stands for all of a row.

    ``zeros_less_one``: so they are stored. ``symmetric``: the config says that all zeros are in the middle. ``rules``:
    what differs for some modules, the first that names one deciding.
    """

    method: Literal["gptq", "awq", "mxfp4"]
    bits: int
    group_size: int | None
    zeros_less_one: bool = False
    symmetric: bool = False
    rules: tuple[tuple[PackingRule, "Packing | None"], ...] = ()

    def of(self, module: str) -> "Packing | None":
        """How ``module`` is packed; None where the config says that it is not quantized."""
        return next((packing for rule, packing in self.rules if rule.names(module)), self)

    @property
    def parts(self) -> tuple[str, ...]:
        """The tensors that a module has in the place of its weight."""
        return ("qweight", "qzeros", "scales", *(["g_idx"] if self.method == "gptq" else []))

    def groups(self, columns: int) -> int:
        """How many groups a row of ``columns`` has."""
        return -(-columns // (self.group_size or max(1, columns)))

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        """Of the parts of a matrix of ``rows`` outputs and ``columns`` inputs; what does not fill a word takes one."""
        groups, wide = self.groups(columns), -(-rows * self.bits // WORD)
        deep = (-(-columns * self.bits // WORD), rows) if self.method == "gptq" else (columns, wide)
        shapes: dict[str, tuple[int, ...]] = {"qweight": deep, "qzeros": (groups, wide), "scales": (groups, rows)}
        return shapes | ({"g_idx": (columns,)} if self.method == "gptq" else {})

    def codes(self, words: NDArray[np.int32], start: int, stop: int) -> Codes:
        """Rows ``start:stop`` of a matrix [out, in] whose codes are packed in ``words``: uint8 [stop - start, in].

        Where the last word is not full, there are more columns than the matrix has.
        """
        if self.method == "gptq":
            return unpacked(words[:, start:stop].T, self.bits)
        return self._outputs(words, start, stop)

    def zeros(self, words: NDArray[np.int32], start: int, stop: int) -> Codes:
        """The zeros of rows ``start:stop``: uint8 [stop - start, groups]."""
        stored = self._outputs(words, start, stop)
        if not self.zeros_less_one:
            return stored
        # A symmetric matrix whose zeros are in the middle as they are has the wrong format's name; such are found.
        if self.symmetric and stored.size and (stored == 1 << (self.bits - 1)).all():
            return stored
        # Word by word, as GPTQModel takes the one off and adds it: a zero of 0 borrows from its neighbour.
        ones = np.resize(_packed_ones(self.bits), words.shape[1])
        return self._outputs((words.view(np.uint32) + ones).view(np.int32), start, stop)

    def _outputs(self, words: NDArray[np.int32], start: int, stop: int) -> Codes:
        """``words`` [m, w], packed along the outputs: those of ``start:stop``, uint8 [stop - start, m]."""
        first, last = start // WORD, -(-stop // WORD)
        values = unpacked(words[:, first * self.bits : last * self.bits], self.bits)
        if self.method == "awq":
            values = values.reshape(len(values), -1, len(_AWQ_PLACES))[:, :, _AWQ_PLACES].reshape(len(values), -1)
        return values[:, start - first * WORD : stop - first * WORD].T


def unpacked(words: NDArray[np.int32], bits: int) -> Codes:
    """int32 [m, w] → uint8 [m, ⌊w · 32 / bits⌋], the values that lie one after the other in the words of a row."""
    packed = np.ascontiguousarray(words, "<i4").view(np.uint8)
    shape = (len(packed), 8 * packed.shape[1] // bits)
    if 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        values: Codes = (packed[:, :, None] >> shifts) & np.uint8(2**bits - 1)
        return values.reshape(shape)
    single = np.unpackbits(packed, axis=1, count=shape[1] * bits, bitorder="little")
    return np.packbits(single.reshape(*shape, bits), axis=2, bitorder="little")[:, :, 0]


def _packed_ones(bits: int) -> NDArray[np.uint32]:
    """The words of as many ones as fill whole words."""
    single = np.zeros((WORD, bits), np.uint8)
    single[:, 0] = 1
    return np.packbits(single, bitorder="little").view("<u4")


def read_packing(settings: object) -> Packing | list[str]:
    """Read ``quantization_config``; return everything in it that is not supported, if something is not."""
    if not isinstance(settings, Mapping):
        return [f"{SETTINGS}: an object expected, found {settings!r}"]
    found = cast(Mapping[str, Any], settings)
    method = found.get("quant_method")
    if method == "mxfp4":
        return Packing(method="mxfp4", bits=4, group_size=MXFP4_BLOCK)
    if method not in ("gptq", "awq"):
        near = did_you_mean(method, _METHODS) if isinstance(method, str) else ""
        read = "gptq, awq and mxfp4 are read"
        return [f"{SETTINGS}.quant_method = {method!r}: {read}{near}; export the original checkpoint"]
    whole = _read_settings(found, method, SETTINGS)
    name = f"{SETTINGS}.{_DYNAMIC}"
    rules = read_rules(found.get(_DYNAMIC), name)
    problems = [*(whole if isinstance(whole, list) else ()), *(rules if isinstance(rules, list) else ())]
    if isinstance(whole, list) or isinstance(rules, list):
        return problems
    packings = list[tuple[PackingRule, Packing | None]]()
    for rule in rules:
        own = None
        if rule.settings is not None:
            own = _read_settings({**found, **rule.settings}, method, f"{name}[{rule.pattern!r}]")
        if isinstance(own, list):
            problems += own
        else:
            packings.append((rule, own))
    return problems or replace(whole, rules=tuple(packings))


def _read_settings(found: Mapping[str, Any], method: Literal["gptq", "awq"], name: str) -> Packing | list[str]:
    """Reads settings under ``name``, without the rules of single modules."""
    is_gptq = method == "gptq"
    stored_as = found.get("checkpoint_format") if is_gptq else found.get("version") or found.get("checkpoint_format")
    stored_as = str(stored_as or ("gptq" if is_gptq else "gemm")).lower()
    if is_gptq and found.get("is_marlin_format"):
        stored_as = "marlin"
    bits, group_size = found.get("bits"), found.get("group_size", -1)
    known_bits, formats = (_GPTQ_BITS, _GPTQ_FORMATS) if is_gptq else (_AWQ_BITS, _AWQ_FORMATS)
    problems: list[str] = []
    if type(bits) is not int or bits not in known_bits:
        problems.append(f"{name}.bits = {bits!r}: {method} is read with {' or '.join(map(str, known_bits))} bits")
    if type(group_size) is not int or (group_size < 1 and group_size != -1):
        problems.append(f"{name}.group_size = {group_size!r}: a positive whole number expected, or -1")
    if stored_as not in formats:
        kind = "checkpoint_format" if is_gptq else "version"
        problems.append(f"{name}.{kind} = {stored_as!r}: {method} is read in the format {' or '.join(formats)}")
    if found.get("pack_dtype") not in (None, "int32"):
        problems.append(f"{name}.pack_dtype = {found['pack_dtype']!r}: codes are read from int32 words")
    if problems:
        return problems
    return Packing(
        method=method,
        bits=cast(int, bits),
        group_size=None if group_size == -1 else cast(int, group_size),
        zeros_less_one=stored_as == "gptq",
        symmetric=is_gptq and found.get("sym") is True,
    )
