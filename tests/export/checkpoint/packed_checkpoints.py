"""Quantized checkpoints as AutoGPTQ, GPTQModel and AutoAWQ write them, made of float ones.

The packing is written from the formats' descriptions, word by word and value by value, and so is the way back: a weight
is ``(code - zero) * scale``, which float32 holds exactly.
"""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import numpy as safetensors

from tests.export.checkpoint.layouts import numpy_dtype

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]

LINEAR = re.compile(
    r".*\.(q_proj|k_proj|v_proj|o_proj|qkv_proj|gate_proj|up_proj|gate_up_proj|down_proj|c_attn|c_proj|c_fc"
    r"|query_key_value|dense|dense_h_to_4h|dense_4h_to_h|w1|w2|w3)\.weight"
)
INPUTS_FIRST = re.compile(r".*\.(c_attn|c_proj|c_fc)\.weight")
"""GPT-2's own layer has its inputs first, in floats."""

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
"""Which of eight outputs the codes of a word are, from its lowest bits on."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """``codes`` [n, k], ``zeros`` [n, groups], ``scales`` [n, groups], ``group_of`` [k]."""

    codes: NDArray[np.int64]
    zeros: NDArray[np.int64]
    scales: NDArray[Any]
    group_of: NDArray[np.int64]
    bits: int

    def values(self) -> Floats:
        rows = [
            (row - zero[self.group_of]).astype(np.float32) * scale.astype(np.float32)[self.group_of]
            for row, zero, scale in zip(self.codes, self.zeros, self.scales, strict=True)
        ]
        return np.array(rows, np.float32)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of a quantizer. ``shuffled``: columns are grouped in an order of their own, as with desc_act.

    ``only``: names of the weights that are quantized, all linear layers by default.
    """

    method: Literal["gptq", "gptq_v2", "awq"] = "gptq"
    bits: int = 4
    group_size: int = 32
    symmetric: bool = False
    shuffled: bool = False
    scale_dtype: str = "float16"
    only: re.Pattern[str] = LINEAR

    def settings(self) -> dict[str, Any]:
        """The config's ``quantization_config``."""
        common = {"bits": self.bits, "group_size": self.group_size}
        if self.method == "awq":
            return {**common, "quant_method": "awq", "version": "gemm", "zero_point": True}
        more = {"quant_method": "gptq", "checkpoint_format": self.method, "damp_percent": 0.01}
        return {**common, **more, "desc_act": self.shuffled, "sym": self.symmetric}


def quantized(weight: Floats, recipe: Recipe, seed: int = 0) -> Quantized:
    """``weight`` [n, k] rounded to the nearest codes."""
    n, k = len(weight), len(weight[0])
    size = k if recipe.group_size == -1 else recipe.group_size
    group_of: NDArray[np.int64] = np.arange(k) // size
    if recipe.shuffled:
        np.random.default_rng(seed).shuffle(group_of)
    groups, top = int(group_of.max()) + 1, 2**recipe.bits - 1
    scales, zeros = np.empty((n, groups), np.float32), np.empty((n, groups), np.int64)
    for group in range(groups):
        part = weight[:, group_of == group]
        if recipe.symmetric:
            scales[:, group] = np.abs(part).max(axis=1) * 2 / top
            zeros[:, group] = (top + 1) // 2
        else:
            low, high = np.minimum(part.min(axis=1), 0), np.maximum(part.max(axis=1), 0)
            scales[:, group] = (high - low) / top
            zeros[:, group] = np.round(-low / scales[:, group])
    zeros = zeros.clip(0, top)
    stored = np.maximum(scales, 1e-6).astype(numpy_dtype(recipe.scale_dtype))
    wide = stored.astype(np.float32)
    codes: Floats = np.round(weight / wide[:, group_of])
    codes += zeros[:, group_of]
    return Quantized(np.clip(codes, 0, top).astype(np.int64), zeros, stored, group_of, recipe.bits)


def packed(matrix: Quantized, method: Literal["gptq", "gptq_v2", "awq"]) -> Arrays:
    """The tensors of one module, by the last part of their names."""
    scales = np.ascontiguousarray(matrix.scales.T)
    if method == "awq":
        return {"qweight": _awq_words(matrix.codes.T), "qzeros": _awq_words(matrix.zeros.T), "scales": scales}
    zeros = words(matrix.zeros, matrix.bits)
    if method == "gptq":  # taken off word by word: what a zero of 0 borrows, the next one lacks
        zeros = zeros - words(np.ones_like(matrix.zeros), matrix.bits)
    return {
        "qweight": words(matrix.codes.T, matrix.bits).view(np.int32),
        "qzeros": np.ascontiguousarray(zeros.T).view(np.int32),
        "scales": scales,
        "g_idx": matrix.group_of.astype(np.int32),
    }


def words(values: NDArray[np.int64], bits: int) -> NDArray[np.uint32]:
    """[count, m] → [words, m], each value's bits after those of the one before it."""
    if bits != 3:
        each = 32 // bits
        result = np.zeros((-(-len(values) // each), values.shape[1]), np.uint32)
        for j, row in enumerate(values):
            result[j // each] |= (row << bits * (j % each)).astype(np.uint32)
        return result
    result = np.zeros((-(-len(values) // 32) * 3, values.shape[1]), np.uint32)
    for j, row in enumerate(values):
        a, b, c = (result[j // 32 * 3 + i] for i in range(3))
        place = j % 32
        if place < 10:
            a |= (row << 3 * place).astype(np.uint32)
        elif place == 10:
            a |= ((row & 3) << 30).astype(np.uint32)
            b |= (row >> 2).astype(np.uint32)
        elif place < 21:
            b |= (row << 3 * (place - 11) + 1).astype(np.uint32)
        elif place == 21:
            b |= ((row & 1) << 31).astype(np.uint32)
            c |= (row >> 1).astype(np.uint32)
        else:
            c |= (row << 3 * (place - 22) + 2).astype(np.uint32)
    return result


def _awq_words(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """[m, n] → [m, n / 8]."""
    result = np.zeros((len(values), values.shape[1] // 8), np.uint32)
    for word in range(result.shape[1]):
        for i, output in enumerate(AWQ_ORDER):
            result[:, word] |= (values[:, 8 * word + output] << 4 * i).astype(np.uint32)
    return result.view(np.int32)


def write_packed(source: Path, target: Path, recipe: Recipe) -> tuple[Path, dict[str, Quantized]]:
    """The checkpoint ``source`` quantized into the folder ``target``; and its matrices [out, in] by their weights'
    names."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.gguf", "golden.json"))
    tensors: Arrays = cast(Any, safetensors).load_file(source / "model.safetensors")
    result, matrices = Arrays(), dict[str, Quantized]()
    for seed, (name, array) in enumerate(sorted(tensors.items())):
        if not (LINEAR.fullmatch(name) and recipe.only.fullmatch(name)):
            result[name] = array.astype(np.float16)
            continue
        weight = array.astype(np.float32).T if INPUTS_FIRST.fullmatch(name) else array.astype(np.float32)
        matrices[name] = quantized(weight, recipe, seed)
        module = name.removesuffix(".weight")
        result |= {f"{module}.{part}": x for part, x in packed(matrices[name], recipe.method).items()}
    write_tensors(target, result)
    edit_settings(target, recipe.settings())
    return target, matrices


def write_dequantized(source: Path, packed_folder: Path, target: Path, matrices: dict[str, Quantized]) -> Path:
    """The float checkpoint that ``packed_folder`` stands for."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.gguf", "golden.json"))
    stored = read_tensors(packed_folder)
    result = {n: x.astype(np.float32) for n, x in stored.items() if n.rpartition(".")[2] in ("weight", "bias")}
    for name, matrix in matrices.items():
        values = matrix.values()
        result[name] = np.ascontiguousarray(values.T) if INPUTS_FIRST.fullmatch(name) else values
    write_tensors(target, result)
    return target


def read_tensors(folder: Path) -> Arrays:
    return cast(Any, safetensors).load_file(folder / "model.safetensors")


def write_tensors(folder: Path, tensors: Arrays) -> None:
    whole = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    cast(Any, safetensors).save_file(whole, folder / "model.safetensors", {"format": "pt"})


def edit_settings(folder: Path, settings: Any) -> None:
    """Set ``quantization_config`` in the folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": settings}))
