"""GPTQ and AWQ checkpoints exported as they are: the bundle has their values, bit for bit."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import MatrixFormat
from edgegen.errors import CheckpointError, UnsupportedModelError, UsageError
from edgegen_export.checkpoint import unpacked
from edgegen_export.checkpoint.base_names import BaseNames
from edgegen_export.checkpoint.checkpoint import Checkpoint
from edgegen_export.options import ExportOptions
from edgegen_export.parity.compare import ParityReport
from edgegen_export.pipeline import export
from edgegen_export.quantize.blockwise import Blocks
from edgegen_export.quantize.recipe import EIGHT_BITS, FOUR_BITS, Scheme
from edgegen_export.quantize.regrouped import regrouped, regrouped_form
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.bundles import Listener, decoded, random_ids, runner_of
from tests.export.checkpoint.adapters import factors, write_lora
from tests.export.checkpoint.packed_checkpoints import (
    Quantized,
    Recipe,
    edit_settings,
    packed,
    quantized,
    read_tensors,
    write_dequantized,
    write_packed,
    write_tensors,
)
from tests.kernels.material import needs_library
from tests.oracle import Oracle, write_random

pytestmark = pytest.mark.usefixtures("whole_parity")

Floats = NDArray[np.float32]

QWEN = {
    f"layers.{{i}}.{ours}": [f"model.layers.{{i}}.{name}_proj.weight" for name in theirs]
    for ours, theirs in {
        "attn.q+k+v": ("self_attn.q", "self_attn.k", "self_attn.v"),
        "attn.o": ("self_attn.o",),
        "mlp.gate+up": ("mlp.gate", "mlp.up"),
        "mlp.down": ("mlp.down",),
    }.items()
}
GPT2 = {
    f"layers.{{i}}.{ours}": [f"transformer.h.{{i}}.{theirs}.weight"]
    for ours, theirs in {
        "attn.q+k+v": "attn.c_attn",
        "attn.o": "attn.c_proj",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    }.items()
}
DTYPES: dict[int, np.dtype[Any]] = {
    onnx.TensorProto.FLOAT: np.dtype(np.float32),
    onnx.TensorProto.FLOAT16: np.dtype(np.float16),
    onnx.TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    onnx.TensorProto.UINT8: np.dtype(np.uint8),
}


def stored_arrays(bundle: Bundle) -> dict[str, NDArray[Any]]:
    """Return the arrays of the weights file, by name."""
    weights, result = bundle.file("weights.data").read_bytes(), dict[str, NDArray[Any]]()
    for tensor in onnx.ModelProto.FromString(bundle.file("prefill.onnx").read_bytes()).graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if place:
            part = weights[int(place["offset"]) :][: int(place["length"])]
            result[tensor.name] = np.frombuffer(part, DTYPES[int(tensor.data_type)]).reshape(tensor.dims)
    return result


def values_of(stored: dict[str, NDArray[Any]], name: str, columns: int) -> Floats:
    """A matrix of the weights file as docs/bundle-format.md describes it."""
    codes, scales = stored[f"{name}.weight"], stored[f"{name}.weight.scales"].astype(np.float32)
    zeros = stored.get(f"{name}.weight.zeros")
    block_size = columns // codes.shape[1]
    four = codes.shape[2] * 2 == block_size

    def apart(packed_codes: NDArray[Any]) -> NDArray[Any]:
        both = np.stack([packed_codes & 15, packed_codes >> 4], axis=-1) if four else packed_codes
        return both.reshape(*packed_codes.shape[:-1], -1)

    middle = np.full(scales.shape, 8 if four else 128, np.uint8)
    zero = middle if zeros is None else apart(zeros)[:, : scales.shape[1]]
    exact = (apart(codes).astype(np.float32) - zero[:, :, None].astype(np.float32)) * scales[:, :, None]
    return exact.reshape(len(codes), -1)


def check_values(bundle: Bundle, names: dict[str, list[str]], matrices: dict[str, Quantized]) -> None:
    """Every matrix of the layers has the values of the checkpoint's."""
    stored = stored_arrays(bundle)
    for ours, theirs in names.items():
        for i in range(bundle.manifest.model.num_layers):
            parts = [matrices[name.replace("{i}", str(i))].values() for name in theirs]
            found = values_of(stored, ours.replace("{i}", str(i)), parts[0].shape[1])
            np.testing.assert_array_equal(found, np.concatenate(parts), err_msg=ours)


def exported(
    folder: Path, target: Path, scheme: Scheme = "int4", *, fast: bool = True
) -> tuple[Bundle, ParityReport, list[str]]:
    listener = Listener()
    bundle, report = export(str(folder), target, ExportOptions(scheme=scheme, fast=fast), progress=listener)
    return bundle, report, listener.warnings


RECIPES = {
    "gptq-4-32": (Recipe("gptq", 4, 32), "int4"),
    "gptq-4-128-sym": (Recipe("gptq", 4, 128, symmetric=True), "int4"),
    "gptq_v2-4-64": (Recipe("gptq_v2", 4, 64), "int4"),
    "gptq-4-row": (Recipe("gptq", 4, -1), "int4"),
    "gptq-8-128": (Recipe("gptq", 8, 128), "int8"),
    "gptq-8-32-sym": (Recipe("gptq", 8, 32, symmetric=True), "int8"),
    "awq-4-32": (Recipe("awq", 4, 32), "int4"),
    "gptq-4-16-bfloat16": (Recipe("gptq", 4, 16, scale_dtype="bfloat16"), "int4"),
}


@pytest.mark.parametrize("case", RECIPES)
def test_a_bundle_has_the_values_of_the_checkpoint(tmp_path: Path, test_data: Path, case: str) -> None:
    recipe, scheme = RECIPES[case]
    source = test_data / "models/qwen2-stories-0.9m"
    folder, matrices = write_packed(source, tmp_path / "packed", recipe)
    bundle, report, warnings = exported(folder, tmp_path / "bundle", "int8" if scheme == "int8" else "int4")
    check_values(bundle, QWEN, matrices)
    assert warnings == []
    found, size = bundle.manifest.quantization, 32 if recipe.bits == 4 else 64
    size = size if recipe.group_size == -1 else min(size, recipe.group_size)
    assert (found.method, found.smoothing, found.calibration) == ("repacked", 0.0, None)
    if scheme == "int4" or recipe.group_size == 32:  # 64 does not divide 352 columns
        assert found.linear == MatrixFormat(recipe.bits, size, recipe.symmetric, 4)
    assert found.embedding == EIGHT_BITS
    # What is lost is what rounding activations costs, and the embedding in 8 bits; not a second rounding of weights.
    assert report.preferred.mean_kl < 0.001
    assert report.preferred.top1_agreement > 0.97


def test_gpt2_and_its_fused_projection(tmp_path: Path, test_data: Path) -> None:
    for recipe in (Recipe("gptq", 4, 128), Recipe("awq", 4, 64)):
        folder, matrices = write_packed(test_data / "models/gpt2-stories-0.9m", tmp_path / recipe.method, recipe)
        bundle, report, warnings = exported(folder, tmp_path / f"{recipe.method}-bundle")
        check_values(bundle, GPT2, matrices)
        assert warnings == []
        assert report.preferred.mean_kl < 0.001


def test_heads_that_are_fused_one_by_one(tmp_path: Path, test_data: Path) -> None:
    """NeoX has query, key and value of a head one after the other: rows change their places."""
    folder, matrices = write_packed(test_data / "models/neox-stories-1.1m", tmp_path / "packed", Recipe("gptq", 4, 64))
    bundle, report, warnings = exported(folder, tmp_path / "bundle")
    fused = matrices["gpt_neox.layers.1.attention.query_key_value.weight"].values()
    heads = 3 * np.arange(len(fused) // 3).reshape(4, -1)[:, :1] + np.arange(len(fused) // 12)  # [head, row]
    rows = np.concatenate([(heads + part * len(fused) // 12).ravel() for part in range(3)])
    np.testing.assert_array_equal(values_of(stored_arrays(bundle), "layers.1.attn.q+k+v", fused.shape[1]), fused[rows])
    assert warnings == []
    assert report.preferred.mean_kl < 0.001


@pytest.mark.parametrize("recipe", [Recipe("gptq", 4, 128), Recipe("awq", 4, 32)], ids=lambda recipe: recipe.method)
def test_logits_are_those_of_the_dequantized_checkpoint(tmp_path: Path, test_data: Path, recipe: Recipe) -> None:
    source = test_data / "models/qwen2-stories-0.9m"
    folder, matrices = write_packed(source, tmp_path / "packed", recipe)
    oracle = Oracle(write_dequantized(source, folder, tmp_path / "floats", matrices))
    exact, _, _ = exported(folder, tmp_path / "fp32", "fp32")
    close, _, _ = exported(folder, tmp_path / "int4", "int4")
    ids = random_ids(exact, 100)
    expected = oracle.logits(np.array([ids]))[0]

    def logits(bundle: Bundle) -> Floats:
        runner = runner_of(bundle)
        cache = runner.new_cache()
        cache.reserve(1, len(ids))
        return decoded(runner, cache, ids)

    np.testing.assert_allclose(logits(exact), expected, atol=2e-4)
    found = logits(close)
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.95


def test_rows_are_exact_whoever_runs_beside_them(tmp_path: Path, test_data: Path) -> None:
    """Groups of 128 become blocks of 32, whose results do not depend on the other rows of a step."""
    needs_library()  # without, and without VNNI, ONNX Runtime adds few rows in another order
    folder, _ = write_packed(test_data / "models/qwen2-stories-0.9m", tmp_path / "packed", Recipe("gptq", 4, 128))
    bundle, _, _ = exported(folder, tmp_path / "bundle")
    runner, ids = runner_of(bundle, kv="int8"), random_ids(bundle, 24)
    together, single = (runner.new_cache() for _ in range(2))
    for cache in (together, single):
        cache.reserve(1, len(ids))
    one_by_one = np.concatenate([decoded(runner, single, [token]) for token in ids])
    np.testing.assert_array_equal(decoded(runner, together, ids), one_by_one)


def test_activations_are_looked_at_and_nothing_is_smoothed(tmp_path: Path, test_data: Path) -> None:
    folder, matrices = write_packed(test_data / "models/qwen2-stories-0.9m", tmp_path / "packed", Recipe("gptq", 4, 64))
    bundle, report, warnings = exported(folder, tmp_path / "bundle", fast=False)
    check_values(bundle, QWEN, matrices)
    found = bundle.manifest.quantization
    assert (found.method, found.smoothing, found.calibration) == ("repacked", 0.0, "sampled from the model")
    assert found.calibration_tokens == 1024
    assert (warnings, found.linear) == ([], FOUR_BITS)
    assert report.preferred.mean_kl < 0.001
    assert Bundle.open(bundle.path).manifest.quantization == found


def test_activations_with_outliers_get_smaller_blocks_of_the_same_values(tmp_path: Path, test_data: Path) -> None:
    source = test_data / "models/stories260K-outliers"
    recipe = Recipe("gptq", 4, 64, only=re.compile(r"(?!.*down_proj).*"))
    folder, matrices = write_packed(source, tmp_path / "packed", recipe)
    bundle, _, _ = exported(folder, tmp_path / "bundle", fast=False)
    formats, stored = bundle.manifest.quantization.exceptions.items(), stored_arrays(bundle)
    smaller = [name for name, form in formats if (form.bits, form.block_size) == (4, 16)]
    assert smaller
    for name in smaller:
        layer, ours = name.split(".")[1], re.sub(r"\d", "{i}", name)
        parts = [matrices[theirs.replace("{i}", layer)].values() for theirs in QWEN[ours]]
        np.testing.assert_array_equal(values_of(stored, name, parts[0].shape[1]), np.concatenate(parts))


# What is not repacked.


def test_other_bits_than_were_asked_for(tmp_path: Path, test_data: Path) -> None:
    folder, _ = write_packed(test_data / "models/qwen2-stories-0.9m", tmp_path / "packed", Recipe("gptq", 4, 32))
    bundle, report, (warning,) = exported(folder, tmp_path / "int8", "int8")
    assert warning == (
        "the checkpoint is quantized already, and its matrices are quantized again for int8: 16 stored in 4 bits; "
        "--int4 takes them as they are"
    )
    assert bundle.manifest.quantization.method == "rounding"
    assert report.preferred.mean_kl < 0.001
    bundle, report, warnings = exported(folder, tmp_path / "fp32", "fp32")
    assert (warnings, bundle.manifest.quantization.linear.bits) == ([], 32)
    assert report.preferred.max_logprob_diff < 1e-4


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        (Recipe("gptq", 3, 32), "16 stored in 3 bits"),
        (Recipe("gptq", 4, 32, shuffled=True), "16 stored with columns in an order of their own (desc_act)"),
        (Recipe("gptq", 4, 8), "16 stored in groups of 8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_layouts_that_blocks_do_not_have(tmp_path: Path, test_data: Path, recipe: Recipe, reason: str) -> None:
    source = test_data / "models/qwen2-stories-0.9m"
    folder, matrices = write_packed(source, tmp_path / "packed", recipe)
    floats = write_dequantized(source, folder, tmp_path / "floats", matrices)
    bundle, _, (warning,) = exported(folder, tmp_path / "bundle")
    assert warning == f"the checkpoint is quantized already, and its matrices are quantized again for int4: {reason}"
    # As any float checkpoint: the very same weights.
    expected, _, _ = exported(floats, tmp_path / "expected")
    assert bundle.manifest.quantization == expected.manifest.quantization
    assert bundle.manifest.files["weights.data"] == expected.manifest.files["weights.data"]


def test_matrices_that_were_left_in_floats_get_eight_bits(tmp_path: Path, test_data: Path) -> None:
    """172 columns do not fill words, and AutoGPTQ leaves such layers out."""
    source = test_data / "models/stories260K"
    recipe = Recipe("gptq", 4, 64, only=re.compile(r"(?!.*down_proj).*"))
    folder, matrices = write_packed(source, tmp_path / "packed", recipe)
    bundle, report, (warning,) = exported(folder, tmp_path / "bundle")
    assert warning == "5 of 20 matrices of the layers are rounded to 8 bits: 5 stored not quantized, or not as one"
    found = bundle.manifest.quantization
    assert found.exceptions == {f"layers.{i}.mlp.down": EIGHT_BITS for i in range(5)}
    check_values(bundle, {k: v for k, v in QWEN.items() if "down" not in k}, matrices)
    assert report.preferred.mean_kl < 0.005


def test_what_an_adapter_changes_is_rounded_again(tmp_path: Path, test_data: Path) -> None:
    folder, matrices = write_packed(test_data / "models/qwen2-stories-0.9m", tmp_path / "packed", Recipe())
    update = factors("base_model.model.model.layers.1.mlp.down_proj", 352, 128)
    adapter = write_lora(tmp_path / "adapter", update, target_modules=["down_proj"], base_model_name_or_path=None)
    listener = Listener()
    bundle, report = export(
        str(folder),
        tmp_path / "bundle",
        ExportOptions(scheme="int4", fast=True, adapter=str(adapter)),
        progress=listener,
    )
    assert bundle.manifest.quantization.exceptions == {"layers.1.mlp.down": EIGHT_BITS}
    assert listener.warnings == [
        "1 of 16 matrices of the layers are rounded to 8 bits: 1 stored not quantized, or not as one"
    ]
    check_values(bundle, {k: v for k, v in QWEN.items() if "down" not in k}, matrices)
    assert report.preferred.mean_kl < 0.01


def test_a_quantized_head_stays_as_it_is(tmp_path: Path, test_data: Path) -> None:
    source = tmp_path / "untied"
    shutil.copytree(test_data / "models/qwen2-stories-0.9m", source)
    tensors = read_tensors(source)
    config = source / "config.json"
    config.write_text(config.read_text().replace('"tie_word_embeddings": true', '"tie_word_embeddings": false'))
    head = quantized(tensors["model.embed_tokens.weight"], Recipe())
    folder, matrices = write_packed(source, tmp_path / "packed", Recipe())
    stored = read_tensors(folder) | {f"lm_head.{part}": array for part, array in packed(head, "gptq").items()}
    write_tensors(folder, stored)
    bundle, _, warnings = exported(folder, tmp_path / "bundle")
    assert warnings == []
    assert bundle.manifest.quantization.exceptions == {"head": FOUR_BITS}
    check_values(bundle, {**QWEN, "head": ["lm_head.weight"]}, matrices | {"lm_head.weight": head})


def test_a_budget_is_of_no_use(tmp_path: Path, test_data: Path) -> None:
    folder, _ = write_packed(test_data / "models/qwen2-stories-0.9m", tmp_path / "packed", Recipe())
    with pytest.raises(UsageError, match="a bits budget is of no use to matrices that are quantized already"):
        export(str(folder), tmp_path / "bundle", ExportOptions(scheme="int4", bits_budget=6.0))
    assert not (tmp_path / "bundle").exists()


def test_refusals_leave_nothing(tmp_path: Path, test_data: Path) -> None:
    folder, _ = write_packed(test_data / "models/qwen2-stories-0.9m", tmp_path / "packed", Recipe())
    tensors = read_tensors(folder)
    write_tensors(folder, {name: array for name, array in tensors.items() if not name.endswith("0.mlp.up_proj.scales")})
    with pytest.raises(CheckpointError, match=r"model.layers.0.mlp.up_proj: has no scales"):
        exported(folder, tmp_path / "bundle")
    edit_settings(folder, {"quant_method": "aqlm"})
    with pytest.raises(UnsupportedModelError, match=r"quant_method = 'aqlm': gptq, awq, mxfp4, .* are read"):
        exported(folder, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("bits", "symmetric", "reason"),
    [
        (8, True, None),
        (4, True, None),
        (8, False, "4 stored in 8 bits with zeros, and as experts"),
        (4, False, "4 stored in 4 bits with zeros, and as experts"),
    ],
)
def test_experts_are_repacked_where_their_operator_takes_them(
    tmp_path: Path, bits: int, symmetric: bool, reason: str | None
) -> None:
    config = {
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "max_position_embeddings": 64,
    }
    source = write_random(tmp_path / "mixtral", "mixtral", config)
    folder, matrices = write_packed(source, tmp_path / "packed", Recipe("gptq", bits, 32, symmetric=symmetric))
    bundle, _, warnings = exported(folder, tmp_path / "bundle", "int8" if bits == 8 else "int4")
    check_values(bundle, {k: v for k, v in QWEN.items() if "attn" in k}, matrices)
    rounded = [text for text in warnings if "rounded" in text]
    assert rounded == ([f"4 of 8 matrices of the layers are rounded to 8 bits: {reason}"] if reason else [])
    stored, name = stored_arrays(bundle), "layers.0.mlp.down.weight"
    codes, scales = stored[f"{name}.table"], stored[f"{name}.scales"].astype(np.float32)
    if bits == 4 and reason is None:
        codes = np.stack([codes & 15, codes >> 4], axis=-1)
    middle = 1 << ((bits if reason is None else 8) - 1)
    found = (codes.reshape(*scales.shape, 32).astype(np.float32) - middle) * scales[..., None]
    experts = [matrices[f"model.layers.0.block_sparse_moe.experts.{i}.w2.weight"].values() for i in range(4)]
    same = np.array_equal(found.reshape(4, 64, 96), experts)
    assert same == (reason is None)
    form = bundle.manifest.quantization.format_of("layers.0.mlp.down")
    assert (form.bits, form.symmetric) == (bits if reason is None else 8, True)


# Blocks of any shape.


def lazy(folder: Path, recipe: Recipe, rows: int, columns: int) -> tuple[LazyTensor, Quantized]:
    matrix = quantized(np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32), recipe)
    write_tensors(folder, {f"a.{part}": array for part, array in packed(matrix, recipe.method).items()})
    (folder / "config.json").write_text("{}")
    edit_settings(folder, recipe.settings())
    return unpacked(Checkpoint.open(str(folder)), BaseNames("", "")).tensors["a.weight"], matrix


@pytest.mark.parametrize("columns", [32, 40, 64, 88, 96, 128, 160, 192, 352])
@pytest.mark.parametrize("group_size", [16, 32, 48, 64, 128, -1])
def test_groups_become_blocks(tmp_path: Path, columns: int, group_size: int) -> None:
    for bits, symmetric in ((4, False), (4, True), (8, False), (8, True)):
        recipe = Recipe("gptq", bits, group_size, symmetric=symmetric)
        weight, matrix = lazy(tmp_path, recipe, 32, columns)
        form = regrouped_form(weight)
        assert isinstance(form, MatrixFormat)
        blocks = regrouped(weight, form)
        assert blocks is not None
        assert blocks.codes.shape == (32, -(-columns // form.block_size), form.block_size)
        assert blocks.scale_dtype == np.float16
        np.testing.assert_array_equal(blocks.values(), matrix.values())
        assert (blocks.zeros is None) == symmetric
        padding = blocks.codes.reshape(32, -1)[:, columns:] - _zeros(blocks)[:, -1:]
        assert not padding.any()


def _zeros(blocks: Blocks) -> NDArray[np.uint8]:
    return np.full(blocks.scales.shape, 1 << (blocks.bits - 1), np.uint8) if blocks.zeros is None else blocks.zeros


def test_a_form_that_does_not_fit_gives_nothing(tmp_path: Path) -> None:
    weight, _ = lazy(tmp_path, Recipe("gptq", 4, 32), 32, 128)
    assert regrouped(weight, FOUR_BITS) is not None
    assert regrouped(weight, replace(FOUR_BITS, block_size=16)) is not None
    for form in (EIGHT_BITS, replace(FOUR_BITS, block_size=64), replace(FOUR_BITS, symmetric=True)):
        assert regrouped(weight, form) is None
    assert regrouped(LazyTensor.from_array(np.zeros((4, 32), np.float32)), FOUR_BITS) is None
