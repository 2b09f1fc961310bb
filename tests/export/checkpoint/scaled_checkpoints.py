"""Checkpoints quantized as transformers, compressed-tensors, ModelOpt and MLX store them, made of float ones.

Written from the formats' descriptions, block by block; what a matrix stands for is computed beside it, in float32.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.export.checkpoint.layouts import write_safetensors
from tests.export.checkpoint.packed_checkpoints import LINEAR, Arrays, read_tensors, words

Floats = NDArray[np.float32]
Made = tuple[Arrays, Floats]
"""The tensors that stand for a weight, by what follows its name, and its values."""

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def float8_in_blocks(weight: Floats, rows: int, columns: int, suffix: str = "_scale_inv") -> Made:
    """FP8 with a scale for each block of ``rows`` × ``columns``."""
    n, k = weight.shape
    scales = np.empty((-(-n // rows), -(-k // columns)), np.float32)
    codes, values = np.empty(weight.shape, ml_dtypes.float8_e4m3fn), np.empty(weight.shape, np.float32)
    for i in range(len(scales)):
        for j in range(len(scales[0])):
            at = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            scales[i, j] = np.abs(weight[at]).max() / 448
            codes[at] = (weight[at] / scales[i, j]).astype(ml_dtypes.float8_e4m3fn)
            values[at] = codes[at].astype(np.float32) * scales[i, j]
    return {"": codes, suffix: scales}, values


def packed_integers(weight: Floats, bits: int, group: int) -> Made:
    """compressed-tensors' pack-quantized, symmetric, with bfloat16 scales."""
    n, k = weight.shape
    groups, half = weight.reshape(n, k // group, group), 1 << (bits - 1)
    scales = (np.abs(groups).max(axis=2) / (half - 0.5)).astype(ml_dtypes.bfloat16)
    wide: Floats = scales.astype(np.float32)[:, :, None]
    codes: Floats = np.clip(np.round(groups / wide), -half, half - 1)
    stored = words((codes.reshape(n, k).astype(np.int64) + half).T, bits)
    parts = {"_packed": stored.T.view(np.int32), "_scale": scales, "_shape": np.array([n, k], np.int64)}
    return parts, (codes * wide).reshape(n, k).astype(np.float32)


def int8_of_channels(weight: Floats) -> Made:
    """compressed-tensors' int-quantized."""
    scales = (np.abs(weight).max(axis=1, keepdims=True) / 127).astype(ml_dtypes.bfloat16)
    wide: Floats = scales.astype(np.float32)
    codes: Floats = np.clip(np.round(weight / wide), -128, 127)
    return {"": codes.astype(np.int8), "_scale": scales}, codes * wide


def nvfp4(weight: Floats) -> Made:
    """ModelOpt's NVFP4: 4-bit floats, 16 of which share an 8-bit scale, and a scale of the whole matrix."""
    n, k = weight.shape
    whole = np.float32(np.abs(weight).max() / (6 * 448))
    groups = weight.reshape(n, k // 16, 16)
    scales = (np.abs(groups).max(axis=2) / 6 / whole).astype(ml_dtypes.float8_e4m3fn)
    wide: Floats = (scales.astype(np.float32) * whole)[:, :, None]
    with np.errstate(all="ignore"):
        scaled = np.nan_to_num(groups / wide)
    nearest = np.abs(np.abs(scaled)[..., None] - E2M1).argmin(axis=-1)
    values = np.where(scaled < 0, -E2M1[nearest], E2M1[nearest]) * wide
    codes = (nearest + 8 * (scaled < 0)).astype(np.uint8).reshape(n, k)
    parts = {"": codes[:, ::2] | codes[:, 1::2] << 4, "_scale": scales, "_scale_2": np.array(whole, np.float32)}
    return {**parts, "_input": np.array(0.5, np.float32)}, values.reshape(n, k).astype(np.float32)


def mlx_groups(weight: Floats, bits: int, group: int) -> Made:
    """MLX's affine groups: ``code · scale + bias``."""
    n, k = weight.shape
    groups, top = weight.reshape(n, k // group, group), (1 << bits) - 1
    low, high = groups.min(axis=2), groups.max(axis=2)
    scales, biases = ((high - low) / top).astype(np.float16), low.astype(np.float16)
    wide: Floats = scales.astype(np.float32)[:, :, None]
    shift: Floats = biases.astype(np.float32)[:, :, None]
    codes: Floats = np.clip(np.round((groups - shift) / wide), 0, top)
    stored = np.ascontiguousarray(words(codes.reshape(n, k).astype(np.int64).T, bits).T)
    return {"": stored, "s": scales, "b": biases}, (codes * wide + shift).reshape(n, k).astype(np.float32)


def named(weight: str, part: str) -> str:
    """The name of a part of ``weight``."""
    module = weight.removesuffix(".weight")
    return {"s": f"{module}.scales", "b": f"{module}.biases", "_input": f"{module}.input_scale"}.get(
        part, weight + part
    )


def write_scaled(
    source: Path,
    folder: Path,
    settings: Mapping[str, Any],
    made: Callable[[Floats], Made],
    only: re.Pattern[str] = LINEAR,
) -> tuple[Path, Path, dict[str, Floats]]:
    """The checkpoint ``source`` with the weights of ``only`` quantized; the same in floats; and their values."""
    quantized, floats = folder / "quantized", folder / "floats"
    for target in (quantized, floats):
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.gguf", "golden.json", "*.safetensors"))
    stored, plain, values = Arrays(), Arrays(), dict[str, Floats]()
    for name, array in sorted(read_tensors(source).items()):
        weight = array.astype(np.float32)
        if only.fullmatch(name) is None:
            stored[name] = plain[name] = weight
            continue
        parts, values[name] = made(weight)
        stored |= {named(name, part): np.ascontiguousarray(x).reshape(x.shape) for part, x in parts.items()}
        plain[name] = values[name]
    write_safetensors(quantized / "model.safetensors", stored)
    write_safetensors(floats / "model.safetensors", plain)
    config = json.loads((source / "config.json").read_text())
    (quantized / "config.json").write_text(json.dumps(config | dict(settings)))
    return quantized, floats, values


def compressed(form: str, weights: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The settings of compressed-tensors for all linear layers."""
    group = {"targets": ["Linear"], "weights": dict(weights), "input_activations": None, "output_activations": None}
    settings = {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"]}
    return {"quantization_config": {**settings, "config_groups": {"group_0": group}, **more}}
