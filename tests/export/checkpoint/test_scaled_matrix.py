"""Matrices stored with scales have the values that compressed-tensors, ModelOpt, MLX and bitsandbytes give them.

golden_scaled.json has matrices that compressed-tensors 0.20.0, ModelOpt 0.47.0, MLX 0.32.4 and bitsandbytes 0.50.2
quantized, with the settings they write and the values to which they dequantize them.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.manifest import Source
from edgegen.errors import TensorError
from edgegen_export.checkpoint import BaseNames, Checkpoint, Listing, unpacked
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.tensors.lazy import LazyTensor
from edgegen_export.tensors.quantized_groups import Grouping
from tests.export.checkpoint.layouts import write_safetensors
from tests.export.checkpoint.scaled_checkpoints import compressed, float8_in_blocks, mlx_groups

Floats = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]

GOLDEN: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("golden_scaled.json").read_text())
NAMES = BaseNames("embed", "head", inputs_first=("h.{i}.c_fc",))
FP8: dict[str, Any] = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 8], "fmt": "e4m3"}}
DTYPES: dict[str, Any] = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "U8": np.uint8,
    "U32": np.uint32,
    "I8": np.int8,
    "I32": np.int32,
    "I64": np.int64,
    "F32": np.float32,
}


def opened(folder: Path, config: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, LazyTensor], list[str]]:
    """The tensors of such a checkpoint, and what is warned of."""
    tensors = open_safetensors(write_safetensors(folder / "model.safetensors", arrays))
    warnings = list[str]()
    checkpoint = Checkpoint(Listing(folder), Source("folder", "x"), dict(config), tensors)
    return dict(unpacked(checkpoint, NAMES, warnings.append).tensors), warnings


def golden(name: str) -> tuple[dict[str, Any], Arrays, Floats]:
    case = GOLDEN[name]
    arrays = {
        f"m.{part}": np.frombuffer(base64.b64decode(t["data"]), DTYPES[t["dtype"]]).reshape(t["shape"])
        for part, t in case["tensors"].items()
    }
    return case["config"], arrays, np.frombuffer(base64.b64decode(case["values"]), "<f4").reshape(case["shape"])


def problems(folder: Path, config: Mapping[str, Any], arrays: Arrays) -> str:
    with pytest.raises(TensorError) as caught:
        opened(folder, config, arrays)
    return str(caught.value)


@pytest.mark.parametrize("name", GOLDEN)
def test_values_are_those_of_the_tool_that_quantized_them(tmp_path: Path, name: str) -> None:
    config, arrays, expected = golden(name)
    tensors, _ = opened(tmp_path, config, arrays)
    assert tensors.keys() == {"m.weight"}
    weight, (rows, columns) = tensors["m.weight"], expected.shape
    np.testing.assert_allclose(weight.read(), expected, rtol=0 if "bitsandbytes" not in name else 1e-3, atol=0)
    values = weight.read()
    np.testing.assert_array_equal(weight.rows(1, rows - 1), values[1:-1])
    np.testing.assert_array_equal(weight.take(3, columns - 5, axis=1).take(2, 4).read(), values[2:4, 3:-5])
    np.testing.assert_array_equal(weight.transposed().rows(7, 12), values.T[7:12])
    for start, stop, slab in weight.slabs(max_bytes=2 * 4 * columns):
        np.testing.assert_array_equal(slab, values[start:stop])
    if (grouping := weight.grouping) is None:
        return
    groups = weight.groups()
    group_of = np.repeat(np.arange(groups.zeros.shape[1], dtype=np.intp), grouping.size)
    codes = groups.codes.astype(np.float32) - groups.zeros.astype(np.float32)[:, group_of]
    np.testing.assert_allclose(codes * groups.scales.astype(np.float32)[:, group_of], values, rtol=1e-6, atol=1e-6)
    assert grouping.symmetric == (groups.zeros == 1 << (grouping.bits - 1)).all()


@pytest.mark.parametrize(
    ("name", "grouping"),
    [
        ("packed 4 bits in groups", Grouping(4, 32, in_order=True, symmetric=True)),
        ("packed 4 bits with zero points", Grouping(4, 32, in_order=True, symmetric=False)),
        ("int8 of channels", Grouping(8, 40, in_order=True, symmetric=True)),
        ("nvfp4", Grouping(8, 16, in_order=True, symmetric=True)),
        ("modelopt nvfp4", Grouping(8, 16, in_order=True, symmetric=True)),
        ("mxfp4", Grouping(8, 32, in_order=True, symmetric=True)),
        ("float8 in blocks", None),
        ("mxfp8", None),
        ("mlx 8 bits", None),  # biases there are no multiples of the scales
        ("bitsandbytes nf4", None),
    ],
)
def test_what_codes_hold_exactly_is_offered_as_codes(tmp_path: Path, name: str, grouping: Grouping | None) -> None:
    config, arrays, _ = golden(name)
    assert opened(tmp_path, config, arrays)[0]["m.weight"].grouping == grouping


def test_mlx_groups_whose_biases_are_multiples_of_their_scales_are_codes(tmp_path: Path) -> None:
    parts, _ = mlx_groups(np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32), 4, 32)
    settings = {"quantization": {"group_size": 32, "bits": 4}}
    arrays = {"m.weight": parts[""], "m.scales": parts["s"], "m.biases": parts["b"]}
    assert opened(tmp_path, settings, arrays)[0]["m.weight"].grouping is None
    arrays["m.biases"] = parts["s"] * np.float16(-8)
    assert opened(tmp_path, settings, arrays)[0]["m.weight"].grouping == Grouping(4, 32, in_order=True, symmetric=True)


def test_columns_in_an_order_of_their_own(tmp_path: Path) -> None:
    """GPTQ's act-order: the group of each column is stored."""
    config, arrays, expected = golden("packed 4 bits in groups")
    order = np.random.default_rng(0).permutation(np.arange(64) // 32)
    arrays["m.weight_g_idx"] = order.astype(np.int32)
    weight = opened(tmp_path, config, arrays)[0]["m.weight"]
    scales = arrays["m.weight_scale"]
    codes = expected / np.repeat(scales, 32, axis=1)
    np.testing.assert_allclose(weight.read(), codes * scales[:, order], rtol=1e-6)
    assert weight.grouping == Grouping(4, 32, in_order=False, symmetric=True)
    arrays["m.weight_g_idx"] = np.full(64, 2, np.int32)
    assert "m.weight_g_idx: names groups 2 to 2, and there are 2" in problems(tmp_path, config, arrays)


def test_stacks_of_experts_and_matrices_that_a_family_stores_transposed(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    made = [float8_in_blocks(random.normal(size=(8, 16)).astype(np.float32), 4, 8) for _ in range(3)]
    arrays = {f"experts.gate_up_proj{part}": np.stack([parts[part] for parts, _ in made]) for part in made[0][0]}
    arrays |= {f"h.0.c_fc.weight{part}": array for part, array in made[0][0].items()}
    tensors, _ = opened(tmp_path, FP8, arrays)
    np.testing.assert_array_equal(tensors["experts.gate_up_proj"].read(), np.stack([values for _, values in made]))
    np.testing.assert_array_equal(tensors["h.0.c_fc.weight"].read(), made[0][1].T)


def test_mlx_names_of_experts_and_convolutions(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    made = [mlx_groups(random.normal(size=(8, 32)).astype(np.float32), 4, 32) for _ in range(2)]
    ends = {"": "weight", "s": "scales", "b": "biases"}
    stacked = {ends[part]: np.stack([parts[part] for parts, _ in made]) for part in ends}
    arrays = {
        f"l.0.{block}.switch_mlp.up_proj.{end}": array
        for block in ("mlp", "block_sparse_moe")
        for end, array in stacked.items()
    }
    arrays["l.0.conv.conv.weight"] = random.normal(size=(8, 3, 1)).astype(np.float32)
    arrays["norm.weight"] = np.ones(8, np.float32)
    tensors, _ = opened(tmp_path, {"quantization": {"group_size": 32, "bits": 4, "l.0.conv": False}}, arrays)
    for number, (_, values) in enumerate(made):
        np.testing.assert_array_equal(tensors[f"l.0.mlp.experts.{number}.up_proj.weight"].read(), values)
        np.testing.assert_array_equal(tensors[f"l.0.block_sparse_moe.experts.{number}.w3.weight"].read(), values)
    assert tensors["l.0.conv.conv.weight"].shape == (8, 1, 3)
    assert tensors["norm.weight"].shape == (8,)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, "exponents"])
def test_scales_in_other_dtypes_and_one_for_the_whole_matrix(tmp_path: Path, dtype: Any) -> None:
    codes = np.arange(-8, 8, dtype=np.float32).astype(ml_dtypes.float8_e5m2).reshape(4, 4)
    scale = np.array([124], np.uint8) if dtype == "exponents" else np.array(0.125, dtype)
    settings = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None, "scale_fmt": "ue8m0"}
    arrays = {"m.weight": codes, "m.weight_scale": scale, "m.input_scale": np.ones(1, np.float32)}
    tensors, warnings = opened(tmp_path, {"quantization_config": settings}, arrays)
    np.testing.assert_array_equal(tensors["m.weight"].read(), codes.astype(np.float32) / 8)
    assert len(warnings) == 1
    assert warnings[0] == (
        "not used of the checkpoint's quantization: static scales of activations, its tensors (1 input_scale); "
        "activations and the KV cache get scales of their own here"
    )


def test_scales_of_the_kv_cache_are_named_and_not_used(tmp_path: Path) -> None:
    parts, _ = float8_in_blocks(np.ones((4, 8), np.float32), 4, 8)
    arrays = {f"m.weight{part}": array for part, array in parts.items()}
    arrays |= {f"l.{i}.attn.k_scale": np.ones(1, np.float32) for i in range(2)}
    tensors, (warning,) = opened(tmp_path, FP8, arrays)
    assert tensors.keys() == {"m.weight"}
    assert "its tensors (2 k_scale)" in warning


# What is wrong.


def test_everything_wrong_with_scales_is_said_at_once(tmp_path: Path) -> None:
    def block(**changes: NDArray[Any] | None) -> Arrays:
        parts, _ = float8_in_blocks(np.ones((8, 16), np.float32), 4, 8)
        found = {"": parts[""], "_scale_inv": parts["_scale_inv"]} | {f"_{k}": v for k, v in changes.items()}
        return {part: array for part, array in found.items() if array is not None}

    nan = np.full((2, 2), np.nan, np.float32)
    cases = {
        "a": block(scale_inv=None),
        "b": block(scale_inv=np.ones((3, 2), np.float32)),
        "c": block(scale_inv=nan),
        "d": block(scale_inv=np.ones((2, 2), np.int32)),
        "e": {"_scale_inv": np.ones((2, 2), np.float32)},
        "f": {**block(), "": np.ones((8, 16), np.int8)},
        "h": {"": np.ones((8, 16), np.int8)},
        "g": block(scale_2=np.ones((), np.float32)),
    }
    arrays = {f"{name}.weight{part}": array for name, parts in cases.items() for part, array in parts.items()}
    said = problems(tmp_path, FP8, arrays)
    for problem in (
        "a.weight: has no weight_scale, and is stored as float8_e4m3fn",
        "b.weight_scale_inv: shape [3, 2], but a matrix of 8 × 16 takes [2, 2]",
        "c.weight_scale_inv: has values that are NaN or infinite",
        "d.weight_scale_inv: stored as int32, float16, bfloat16, float32 or 8-bit floats expected",
        "e.weight: missing, and it has e.weight_scale_inv",
        "f.weight: stored as int8, and the config says 8-bit floats",
        "h.weight: stored as int8, and the config says 8-bit floats",
        "g.weight_scale_2: not a part of 8-bit floats as the config describes them",
    ):
        assert problem in said, said


def test_packed_integers_that_do_not_fit_are_named(tmp_path: Path) -> None:
    config, arrays, _ = golden("packed 4 bits with zero points")
    without = {name: array for name, array in arrays.items() if "zero_point" not in name}
    assert "m.weight: has no weight_zero_point" in problems(tmp_path, config, without)
    wrong = arrays | {"m.weight_zero_point": arrays["m.weight_zero_point"][:2]}
    assert "m.weight_zero_point: shape [2, 2], [5, 2] expected" in problems(tmp_path, config, wrong)
    wrong = arrays | {"m.weight_shape": np.array([37, 72], np.int64)}
    said = problems(tmp_path, config, wrong)
    assert "m.weight_packed: shape [37, 8] does not hold the 37 × 72 codes of 4 bits of m.weight_shape" in said
    wrong = {name: array for name, array in arrays.items() if "shape" not in name}
    assert "m.weight: has no weight_shape" in problems(tmp_path, config, wrong)
    wrong = arrays | {"m.weight": np.ones((37, 64), np.float32)}
    assert "m.weight: stored twice" in problems(tmp_path, config, wrong)


def test_a_module_is_quantized_as_its_own_group_says(tmp_path: Path) -> None:
    config = compressed("mixed-precision", {"num_bits": 8, "type": "int", "strategy": "channel"})
    groups = config["quantization_config"]["config_groups"]
    groups["group_0"]["format"] = "int-quantized"
    weights = {"num_bits": 8, "type": "float", "strategy": "tensor"}
    groups["group_1"] = {"targets": ["re:.*down_proj$"], "weights": weights, "format": "naive-quantized"}
    config["quantization_config"]["ignore"] = ["re:.*router", "lm_head"]
    eight = np.full((2, 4), 3, np.int8)
    arrays: Arrays = {
        "l.0.up_proj.weight": eight,
        "l.0.up_proj.weight_scale": np.ones((2, 1), np.float32),
        "l.0.down_proj.weight": np.ones((2, 4), ml_dtypes.float8_e4m3fn),
        "l.0.down_proj.weight_scale": np.array([0.5], np.float32),
        "l.0.router.weight": np.ones((2, 4), np.float32),
    }
    tensors, _ = opened(tmp_path, config, arrays)
    assert [tensors[f"l.0.{name}.weight"].read()[0, 0] for name in ("up_proj", "down_proj", "router")] == [3, 0.5, 1]
    arrays |= {"l.0.router.weight": eight, "l.0.router.weight_scale": np.ones((2, 1), np.float32)}
    said = problems(tmp_path, config, arrays)
    assert "l.0.router: is quantized, and the config's list of what is not names it" in said
    groups["group_0"]["targets"] = ["re:.*gate_proj"]
    assert "l.0.up_proj: is quantized, and the config has no format for it" in problems(tmp_path, config, arrays)


def test_bitsandbytes_matrices_that_do_not_fit_are_named(tmp_path: Path) -> None:
    config, arrays, _ = golden("bitsandbytes nf4")
    without = {name: array for name, array in arrays.items() if "nested_absmax" not in name}
    assert "m.weight.nested_absmax: float32 of shape [1] expected" in problems(tmp_path, config, without)
    state = "m.weight.quant_state.bitsandbytes__nf4"
    wrong = arrays | {state: np.frombuffer(b'{"shape": [6, 64], "blocksize": 64}', np.uint8)}
    assert "m.weight: uint8 of shape [192, 1] expected" in problems(tmp_path, config, wrong)
    wrong = arrays | {state: np.frombuffer(b"{", np.uint8)}
    assert "m.weight: its quant_state is no JSON object" in problems(tmp_path, config, wrong)
    wrong = {name: array for name, array in arrays.items() if "quant_state" not in name}
    assert "m.weight: stored as uint8, and has neither a quant_state nor an SCB" in problems(tmp_path, config, wrong)


def test_floats_of_8_bits_without_settings_are_refused(tmp_path: Path) -> None:
    arrays: Arrays = {"m.weight": np.ones((2, 2), ml_dtypes.float8_e4m3fn)}
    said = problems(tmp_path, {}, arrays)
    assert said == "m.weight is stored as float8_e4m3fn, and config.json has no quantization_config that says how"
