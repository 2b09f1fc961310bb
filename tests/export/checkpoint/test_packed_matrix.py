"""Packed matrices read back: against values computed one by one from what was packed."""

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.errors import TensorError, UnsupportedModelError
from edgegen_export.checkpoint import BaseNames, Checkpoint, unpacked
from edgegen_export.checkpoint.packing import Packing, read_packing
from edgegen_export.checkpoint.packing import unpacked as unpacked_words
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.checkpoint.packed_checkpoints import (
    Arrays,
    Quantized,
    Recipe,
    packed,
    quantized,
    words,
    write_tensors,
)

NAMES = BaseNames("embed", "head", inputs_first=("h.{i}.c_attn",), prefixes=("model.",))
RECIPES = [
    *(Recipe("gptq", bits, size) for bits in (2, 3, 4, 8) for size in (32, 64, -1)),
    *(Recipe("gptq", bits, 32, symmetric=True) for bits in (3, 4, 8)),
    *(Recipe("gptq_v2", bits, 128, symmetric=bits == 8) for bits in (3, 4, 8)),
    *(Recipe("gptq", bits, 32, shuffled=True) for bits in (3, 4)),
    *(Recipe("awq", 4, size) for size in (32, 64, -1)),
]


def name(recipe: Recipe) -> str:
    parts = [recipe.method, recipe.bits, recipe.group_size, "sym" * recipe.symmetric, "shuffled" * recipe.shuffled]
    return "-".join(str(part) for part in parts if part)


def opened(folder: Path, arrays: Arrays, config: dict[str, Any] | None) -> dict[str, LazyTensor]:
    write_tensors(folder, arrays)
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    checkpoint = Checkpoint.open(str(folder))
    return dict(unpacked(checkpoint, NAMES).tensors)


def matrix_of(recipe: Recipe, rows: int = 64, columns: int = 192) -> Quantized:
    weight = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    weight[3] = np.abs(weight[3])  # its zeros are 0, which the first format cannot say without borrowing
    return quantized(weight, recipe)


def lazy(folder: Path, recipe: Recipe) -> tuple[LazyTensor, Quantized]:
    matrix = matrix_of(recipe)
    arrays = {f"model.a.{part}": array for part, array in packed(matrix, recipe.method).items()}
    tensors = opened(folder, arrays, recipe.settings())
    assert set(tensors) == {"model.a.weight"}
    return tensors["model.a.weight"], matrix


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_values_are_those_of_the_format(tmp_path: Path, recipe: Recipe) -> None:
    tensor, matrix = lazy(tmp_path, recipe)
    expected = matrix.values()
    assert tensor.shape == (64, 192)
    np.testing.assert_array_equal(tensor.read(), expected)
    np.testing.assert_array_equal(tensor.rows(7, 50), expected[7:50])
    np.testing.assert_array_equal(tensor.take(33, 60).take(2, 9).read(), expected[35:42])
    np.testing.assert_array_equal(tensor.transposed().read(), expected.T)
    np.testing.assert_array_equal(tensor.take(5, 100, axis=1).take(40, 60).read(), expected[40:60, 5:100])


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_groups_are_what_was_packed(tmp_path: Path, recipe: Recipe) -> None:
    tensor, matrix = lazy(tmp_path, recipe)
    grouping, groups = tensor.grouping, tensor.groups()
    assert grouping is not None
    assert (grouping.bits, grouping.in_order) == (recipe.bits, not recipe.shuffled)
    assert grouping.size == (192 if recipe.group_size == -1 else recipe.group_size)
    assert grouping.symmetric == recipe.symmetric
    np.testing.assert_array_equal(groups.codes, matrix.codes)
    np.testing.assert_array_equal(groups.zeros, matrix.zeros)
    np.testing.assert_array_equal(groups.scales, matrix.scales)
    assert groups.scales.dtype == np.float16


def test_rows_keep_their_groups_when_they_are_moved(tmp_path: Path) -> None:
    tensor, matrix = lazy(tmp_path, Recipe())
    order = np.random.default_rng(1).permutation(64)
    moved = LazyTensor.concat([tensor.take(10, 40), tensor.take(0, 10), tensor.take(40, 64)]).reordered(order)
    rows = np.r_[10:40, 0:10, 40:64][order]
    groups = moved.affine(3.0).groups()
    np.testing.assert_array_equal(groups.codes, matrix.codes[rows])
    np.testing.assert_array_equal(groups.zeros, matrix.zeros[rows])
    np.testing.assert_array_equal(groups.scales, matrix.scales[rows].astype(np.float32) * 3)
    assert moved.grouping == tensor.grouping
    assert tensor.transposed().transposed().grouping == tensor.grouping


def test_whatever_else_is_done_makes_floats_of_them(tmp_path: Path) -> None:
    tensor, _ = lazy(tmp_path, Recipe())
    ones = np.ones(64, np.float32)
    others = LazyTensor.from_array(np.zeros((2, 192), np.float32))
    changed = [
        tensor.transposed(),
        tensor.take(0, 64, axis=1),
        tensor.scaled(ones),
        tensor.affine(1.0, 1.0),
        LazyTensor.concat([tensor, others]),
        LazyTensor.concat([tensor, tensor], axis=1),
    ]
    assert [view.grouping for view in changed] == [None] * len(changed)
    with pytest.raises(ValueError, match="not quantized"):
        others.groups()


def test_rows_of_different_grouping_are_not_one_matrix(tmp_path: Path) -> None:
    tensors: list[LazyTensor] = []
    for i, recipe in enumerate((Recipe(), Recipe(symmetric=True), Recipe(group_size=64))):
        (tmp_path / str(i)).mkdir()
        tensors.append(lazy(tmp_path / str(i), recipe)[0])
    both = LazyTensor.concat(tensors[:2]).grouping
    assert both is not None
    assert not both.symmetric
    assert LazyTensor.concat(tensors[1:]).grouping is None


def test_scales_of_any_float_are_kept(tmp_path: Path) -> None:
    for dtype in ("bfloat16", "float32"):
        (tmp_path / dtype).mkdir()
        tensor, matrix = lazy(tmp_path / dtype, Recipe(scale_dtype=dtype))
        assert tensor.groups().scales.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32)
        np.testing.assert_array_equal(tensor.read(), matrix.values())


def test_a_layer_with_its_inputs_first_looks_so(tmp_path: Path) -> None:
    matrix = matrix_of(Recipe())
    arrays = {f"model.h.0.{m}.{part}": x for m in ("c_attn", "fc") for part, x in packed(matrix, "gptq").items()}
    tensors = opened(tmp_path, arrays, Recipe().settings())
    assert tensors["model.h.0.c_attn.weight"].shape == (192, 64)
    assert tensors["model.h.0.fc.weight"].shape == (64, 192)
    assert tensors["model.h.0.c_attn.weight"].transposed().grouping is not None


def test_symmetric_zeros_under_the_name_of_the_first_format(tmp_path: Path) -> None:
    """Some writers say ``gptq`` and store the middle itself; that no symmetric matrix can mean the code after it."""
    recipe = Recipe("gptq", symmetric=True)
    matrix = matrix_of(recipe)
    arrays = {f"a.{part}": array for part, array in packed(matrix, "gptq_v2").items()}
    np.testing.assert_array_equal(opened(tmp_path, arrays, recipe.settings())["a.weight"].read(), matrix.values())


def test_other_zeros_are_what_the_format_says() -> None:
    stored = _as_stored(words(np.full((32, 3), 8), 4))
    for packing, zero in ((Packing("gptq", 4, 32, zeros_less_one=True), 9), (Packing("gptq", 4, 32), 8)):
        np.testing.assert_array_equal(packing.zeros(stored, 0, 32), np.full((32, 3), zero))


def test_groups_of_zeros_are_in_order(tmp_path: Path) -> None:
    matrix = matrix_of(Recipe())
    arrays = {f"a.{part}": array for part, array in packed(matrix, "gptq").items()}
    arrays["a.g_idx"][:] = 0
    np.testing.assert_array_equal(opened(tmp_path, arrays, Recipe().settings())["a.weight"].read(), matrix.values())


def test_biases_of_zeros_are_left_out_where_all_layers_have_such(tmp_path: Path) -> None:
    arrays = Arrays()
    for module, biased in (("0.a", False), ("1.a", False), ("0.b", False), ("1.b", True)):
        arrays |= {f"{module}.{part}": array for part, array in packed(matrix_of(Recipe()), "gptq").items()}
        arrays[f"{module}.bias"] = np.full(64, biased, np.float16)
    arrays["0.norm.bias"] = np.zeros(64, np.float16)
    tensors = opened(tmp_path, arrays, Recipe().settings())
    assert {name for name in tensors if name.endswith("bias")} == {"0.b.bias", "1.b.bias", "0.norm.bias"}


@settings(max_examples=60, deadline=None)
@given(bits=st.sampled_from([2, 3, 4, 5, 6, 7, 8]), rows=st.integers(1, 4), seed=st.integers(0, 1 << 30))
def test_any_values_come_back_from_their_words(bits: int, rows: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 2**bits, (rows, 64))
    packed_rows = np.array([_words_of(row.tolist(), bits) for row in values], np.uint32).view(np.int32)
    np.testing.assert_array_equal(unpacked_words(packed_rows, bits), values)
    if bits in (2, 3, 4, 8):
        np.testing.assert_array_equal(words(values.T, bits).T.view(np.int32), packed_rows)


def _words_of(values: list[int], bits: int) -> list[int]:
    """As one large number, cut into words."""
    number = sum(value << bits * i for i, value in enumerate(values))
    return [number >> 32 * i & 0xFFFFFFFF for i in range(len(values) * bits // 32)]


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from([2, 3, 4, 8]), seed=st.integers(0, 1 << 30), start=st.integers(0, 95), count=st.integers(0, 64)
)
def test_zeros_less_one_come_back(bits: int, seed: int, start: int, count: int) -> None:
    """Whatever they are, a zero of 0 among them."""
    zeros = np.random.default_rng(seed).integers(0, 2**bits, (96, 2))
    stored = words(zeros, bits) - words(np.ones_like(zeros), bits)
    found = Packing("gptq", bits, 32, zeros_less_one=True).zeros(_as_stored(stored), start, min(start + count, 96))
    np.testing.assert_array_equal(found, zeros[start : start + count])


def _as_stored(stored: NDArray[np.uint32]) -> NDArray[np.int32]:
    return np.ascontiguousarray(stored.T).view(np.int32)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("rows", "columns"), [(40, 72), (8, 40), (32, 0)])
def test_words_that_are_not_full(tmp_path: Path, bits: int, rows: int, columns: int) -> None:
    recipe = Recipe("gptq", bits, 32)
    whole = matrix_of(recipe)
    matrix = Quantized(
        whole.codes[:rows, :columns],
        whole.zeros[:rows, : -(-columns // 32)],
        whole.scales[:rows, : -(-columns // 32)],
        whole.group_of[:columns],
        bits,
    )
    arrays = {f"a.{part}": array for part, array in packed(matrix, "gptq").items()}
    arrays["a.qweight"] = arrays["a.qweight"][: -(-columns * bits // 32)]
    arrays["a.qzeros"] = arrays["a.qzeros"][:, : -(-rows * bits // 32)]
    tensor = opened(tmp_path, arrays, recipe.settings())["a.weight"]
    assert tensor.shape == (rows, columns)
    np.testing.assert_array_equal(tensor.read(), matrix.values().reshape(rows, columns))


# What cannot be read.


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"quant_method": "gtpq"}, r"quant_method = 'gtpq': gptq, awq and mxfp4 are read \(did you mean 'gptq'\?\)"),
        (
            {"quant_method": "bitsandbytes"},
            "quant_method = 'bitsandbytes': gptq, awq and mxfp4 are read; export the original",
        ),
        ({"quant_method": None}, "quant_method = None"),
        ({"bits": 5}, "bits = 5: gptq is read with 2 or 3 or 4 or 8 bits"),
        ({"bits": "4"}, "bits = '4'"),
        ({"bits": True}, "bits = True"),
        ({"group_size": 0}, "group_size = 0: a positive whole number expected, or -1"),
        ({"group_size": 12.5}, "group_size = 12.5"),
        ({"checkpoint_format": "marlin"}, "checkpoint_format = 'marlin': gptq is read in the format gptq or gptq_v2"),
        ({"is_marlin_format": True}, "checkpoint_format = 'marlin'"),
        ({"pack_dtype": "int16"}, "pack_dtype = 'int16': codes are read from int32 words"),
        ({"quant_method": "awq", "version": "gemv"}, "version = 'gemv': awq is read in the format gemm"),
        ({"quant_method": "awq", "bits": 8, "checkpoint_format": None}, "bits = 8: awq is read with 4 bits"),
    ],
)
def test_what_is_not_read_is_said(change: dict[str, Any], fault: str) -> None:
    found = read_packing(Recipe().settings() | change)
    assert isinstance(found, list)
    (text,) = found
    with pytest.raises(UnsupportedModelError, match=fault):
        raise UnsupportedModelError(text)


def test_all_that_is_not_read_is_said_at_once() -> None:
    found = read_packing({"quant_method": "gptq", "bits": 5, "group_size": None, "checkpoint_format": "bitblas"})
    assert isinstance(found, list)
    assert len(found) == 3
    assert read_packing([4]) == ["quantization_config: an object expected, found [4]"]


def test_defaults_are_those_of_the_writers() -> None:
    assert read_packing({"quant_method": "gptq", "bits": 4}) == Packing("gptq", 4, None, zeros_less_one=True)
    assert read_packing({"quant_method": "awq", "bits": 4, "version": "GEMM"}) == Packing("awq", 4, None)


def refusal(folder: Path, arrays: Arrays, config: dict[str, Any] | None) -> str:
    with pytest.raises(TensorError) as caught:
        opened(folder, arrays, config)
    return str(caught.value)


def test_everything_that_does_not_fit_is_said_at_once(tmp_path: Path) -> None:
    def module() -> Arrays:
        return packed(matrix_of(Recipe()), "gptq")

    modules = {name: module() for name in ("a", "b", "c", "d", "e", "f")}
    del modules["a"]["qzeros"], modules["a"]["g_idx"]
    modules["b"]["qweight"] = modules["b"]["qweight"][:-1]
    modules["c"]["g_idx"][5] = 6
    modules["d"]["qweight"] = modules["d"]["qweight"].astype(np.int64)
    modules["e"]["scales"] = modules["e"]["scales"][0]
    modules["f"]["weight"] = np.zeros((64, 192), np.float16)
    arrays = {f"{name}.{part}": array for name, parts in modules.items() for part, array in parts.items()}
    message = refusal(tmp_path, arrays, Recipe().settings())
    for fault in (
        "6 problems",
        "a: has no qzeros, g_idx",
        "b.qweight: shape [23, 64], but 64 outputs and 192 inputs of 4 bits in groups of 32 take [24, 64]",
        "c.g_idx: names groups 0 to 6, and there are 6",
        "d.qweight: stored as int64, int32 expected",
        "e.scales: shape [64], with 2 axes expected",
        "f: has a weight beside its qweight",
    ):
        assert fault in message, message


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    arrays = {f"m{i}.g_idx": np.zeros(8, np.int32) for i in range(20)}
    message = refusal(tmp_path, arrays, Recipe().settings())
    assert "and 8 more" in message


def test_other_bits_than_the_config_says_do_not_fit(tmp_path: Path) -> None:
    arrays = {f"a.{part}": array for part, array in packed(matrix_of(Recipe(bits=8)), "gptq").items()}
    message = refusal(tmp_path, arrays, Recipe().settings())
    assert "a.qweight: shape [48, 64], but 64 outputs and 192 inputs of 4 bits in groups of 32 take [24, 64]" in message


def test_config_and_tensors_must_agree_that_it_is_quantized(tmp_path: Path) -> None:
    plain = {"a.weight": np.zeros((8, 8), np.float32)}
    assert "the checkpoint no quantized matrix" in refusal(tmp_path, plain, Recipe().settings())
    arrays = {f"a.{part}": array for part, array in packed(matrix_of(Recipe()), "gptq").items()}
    message = refusal(tmp_path, arrays, None)
    assert "a is quantized, and config.json has no quantization_config that says how" in message


# Settings of single modules.

PLAIN = Recipe("gptq", 4, 32)
DYNAMIC = {
    "-:.*k_proj": {},
    r"+:.*\.1\.mlp\.down_proj": {"bits": 8, "group_size": 64, "sym": False, "desc_act": True},
    r".*\.(mlp|self_attn)\.down_proj": {"bits": 2},
    r"+:model\.layers\.[0-9]+\.mlp": {"bits": 3, "group_size": -1},
    "lm_head": {},
}
OWN = {
    "model.layers.0.self_attn.q_proj": PLAIN,
    "model.layers.0.mlp.down_proj": Recipe("gptq", 2, 32),
    "model.layers.1.mlp.down_proj": Recipe("gptq", 8, 64, shuffled=True),
    "model.layers.1.mlp.up_proj": Recipe("gptq", 3, -1),
    "model.layers.11.mlp.up_proj": Recipe("gptq", 3, -1),
    "vision.model.layers.1.mlp.up_proj": PLAIN,  # an expression begins where the name does
    "lm_head": PLAIN,
}


def test_modules_have_settings_of_their_own(tmp_path: Path) -> None:
    matrices = {module: matrix_of(recipe) for module, recipe in OWN.items()}
    arrays = {f"{m}.{part}": array for m, one in matrices.items() for part, array in packed(one, "gptq").items()}
    bare = np.arange(12, dtype=np.float16).reshape(3, 4)
    arrays["model.layers.0.self_attn.k_proj.weight"] = bare
    tensors = opened(tmp_path, arrays, PLAIN.settings() | {"dynamic": DYNAMIC})
    for module, matrix in matrices.items():
        np.testing.assert_array_equal(tensors[f"{module}.weight"].read(), matrix.values(), err_msg=module)
    np.testing.assert_array_equal(tensors["model.layers.0.self_attn.k_proj.weight"].read(), bare)


@given(st.lists(st.sampled_from(["-:", "+:", ""]), min_size=1, max_size=4), st.data())
def test_the_first_expression_that_names_a_module_decides(marks: list[str], data: st.DataObject) -> None:
    module = "model.layers.7.mlp.up_proj"
    patterns = data.draw(st.lists(st.sampled_from(PATTERNS), min_size=len(marks), max_size=len(marks), unique=True))
    sizes = [32 * (i + 1) for i in range(len(marks))]
    rules = {mark + pattern: {"group_size": size} for mark, pattern, size in zip(marks, patterns, sizes, strict=True)}
    packing = read_packing(PLAIN.settings() | {"dynamic": rules, "group_size": 1024})
    assert isinstance(packing, Packing), packing
    # As GPTQModel's dynamic_get reads it.
    expected: int | None = 1024
    for key, settings_ in rules.items():
        if re.match(key.removeprefix("-:").removeprefix("+:"), module):
            expected = None if key.startswith("-:") else settings_["group_size"]
            break
    found = packing.of(module)
    assert (found and found.group_size) == expected


PATTERNS = [
    r".*up_proj", r"model\.layers\.7\.", r"model\.layers\.(7|8)\..*", r".*\.mlp\.(?:up|gate)_proj$", r"up_proj",
    r"(.*\.)+up_proj", r"model\.layers\.[0-6]\.", r"layers", r"^model.*mlp$", r"model\.layers\.\d+\.mlp\.up_proj",
]  # fmt: skip


WRONG_RULES: list[tuple[Any, str]] = [
    ([".*"], r"dynamic: an object of regular expressions expected, found \['\.\*'\]"),
    ({".*": 4}, r"dynamic\['\.\*'\] = 4: an object expected"),
    ({"(a": {}}, r"dynamic\['\(a'\]: not a regular expression"),
    ({"+:(?!a)b": {}}, r"dynamic\['\+:\(\?!a\)b'\]: cannot be used"),
    ({".*": {"bits": 5}}, r"dynamic\['\.\*'\]\.bits = 5: gptq is read with 2 or 3 or 4 or 8 bits"),
    ({".*": {"adapter": {}}}, r"dynamic\['\.\*'\]\.adapter: not understood, and it may change the result"),
    ({".*": {"group_sise": 8}}, r"group_sise: not understood.* \(did you mean 'group_size'\?\)"),
    ({f"m{i}": {} for i in range(1001)}, "at most 1000 regular expressions expected, found 1001"),
    ({f"(m|{i})": {} for i in range(65)}, "65 expressions have groups, alternatives or more than 3 repetitions"),
]


@pytest.mark.parametrize(("dynamic", "fault"), WRONG_RULES)
def test_rules_that_are_not_read_are_said(dynamic: Any, fault: str) -> None:
    found = read_packing(PLAIN.settings() | {"dynamic": dynamic})
    assert isinstance(found, list)
    assert re.search(fault, found[0])


def test_a_module_that_a_rule_leaves_out_must_not_be_packed(tmp_path: Path) -> None:
    arrays = {f"a.{part}": array for part, array in packed(matrix_of(PLAIN), "gptq").items()}
    message = refusal(tmp_path, arrays, PLAIN.settings() | {"dynamic": {"-:a": {}}})
    assert "a: is quantized, and a rule of quantization_config.dynamic leaves it out" in message


def test_a_rule_takes_time_that_is_linear_in_a_name() -> None:
    rules: dict[str, Any] = {"(a|a)+b": {}, "(?:(?:a*)*)*c": {}}
    packing = read_packing(PLAIN.settings() | {"dynamic": rules})
    assert isinstance(packing, Packing)
    assert packing.of("a" * 500) is packing
