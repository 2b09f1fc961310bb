"""Decisions of calibration, on small models whose weights were made to ask for them."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file  # pyright: ignore[reportUnknownVariableType]

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen.errors import TensorError, UsageError
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.calibration.bit_budget import ladder
from edgegen_export.calibration.calibrate import Calibrated, calibrate
from edgegen_export.calibration.layer_walk import layer_matrices
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.activations import BEARABLE, TOLERABLE, activation_error, bearable_format
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.blockwise import round_rows, stored_bits
from edgegen_export.quantize.recipe import CALIBRATED, EIGHT_BITS, FLOATS, FOUR_BITS, ROUNDED, Scheme
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.bundles import decoded, export_to, runner_of
from tests.export.checkpoint.layouts import write_llama
from tests.export.flat_model import Model, ModelLayer
from tests.export.quantize.test_smoothing import random_tensors

pytestmark = pytest.mark.usefixtures("whole_parity")

Array = NDArray[np.float32]

MODEL = Model(
    layers=(ModelLayer(0.25),) * 3,
    hidden_size=64,
    num_heads=4,
    num_kv_heads=4,
    head_dim=16,
    intermediate_size=128,
    vocab_size=100,
    max_positions=64,
    norm=Norm("layer", 1e-5, bias=True),
    activation="gelu",
    tied_head=True,
)
PLAIN = MODEL.config()
IDS = np.random.default_rng(0).integers(0, 100, (8, 48))
HELD_OUT = np.random.default_rng(1).integers(0, 100, (2, 48))
MATRICES = [name for layer in range(3) for name in layer_matrices(PLAIN, layer)]


def calibrated(
    folder: Path,
    changes: dict[str, Array] | None = None,
    recipe: Quantization | None = None,
    bits: float | None = None,
    ids: NDArray[np.int64] = IDS,
) -> tuple[Calibrated, BlockStore]:
    tensors = random_tensors(PLAIN) | {k: LazyTensor.from_array(v) for k, v in (changes or {}).items()}
    reference, store = LayerwiseModel(tensors, PLAIN, kv_spec(PLAIN)), BlockStore(folder)
    recipe = recipe or CALIBRATED["int4"]

    def on_layer(done: int, total: int) -> None: ...

    plain = ROUNDED["int4"]
    judge = partial(calibrate, held_out=HELD_OUT, plain=plain)
    return judge(tensors, PLAIN, reference, ids, recipe, store, bits, on_layer, Scratch()), store


def values(name: str, tensors: dict[str, LazyTensor] | None = None) -> Array:
    return (tensors or random_tensors(PLAIN))[name].read().copy()


def test_plain_rounding_takes_the_place_of_gptq_that_costs_more(tmp_path: Path) -> None:
    """Calibrated on one token that comes again and again, whose columns' errors are put into all the others."""
    made, _ = calibrated(tmp_path, ids=np.full((8, 48), 7))
    assert made.recipe == ROUNDED["int4"]
    assert [made.tensors[name].read().tolist() for name in made.tensors] == [
        tensor.read().tolist() for tensor in random_tensors(PLAIN).values()
    ]
    (warning,) = made.warnings
    plain, calibrated_ = (float(found) for found in re.findall(r"[\d.]+(?:e-\d+)?(?= nats|\Z)", warning))
    assert warning.startswith("weights are rounded plainly, as --fast does")
    assert 0 < plain < calibrated_


def test_a_bits_budget_is_kept_by_gptq(tmp_path: Path) -> None:
    made, _ = calibrated(tmp_path, ids=np.full((8, 48), 7), bits=5.0)
    assert made.recipe.method == "gptq"
    assert made.warnings == ()


@pytest.mark.parametrize(("bits", "zeros"), [(None, True), (4.6, False)])
def test_every_matrix_is_in_the_store_in_4_bits_of_one_kind(tmp_path: Path, bits: float | None, zeros: bool) -> None:
    made, store = calibrated(tmp_path, bits=bits)
    four_bits = ladder(EIGHT_BITS, zeros=zeros)[0]
    table = made.recipe.format_of("embed")  # which is quantized only if the budget gives it four bits
    assert (store.get("embed", four_bits) is None) == (table == EIGHT_BITS)
    for name in [*MATRICES, *(["embed"] if table == four_bits else [])]:
        blocks = store.get(name, four_bits)
        assert blocks is not None
        assert (blocks.bits, blocks.codes.shape[2], blocks.zeros is None) == (4, 32, not zeros)
        assert blocks.codes.max() < 16
        assert store.get(name, ladder(EIGHT_BITS, zeros=not zeros)[0]) is None
        assert store.get(name, EIGHT_BITS) is None
    assert made.warnings == ()


def test_calibration_rounds_the_smoothed_weights(tmp_path: Path) -> None:
    made, store = calibrated(tmp_path)
    blocks = store.get("layers.1.mlp.up", FOUR_BITS)
    assert blocks is not None
    weight = made.tensors["layers.1.mlp.up.weight"].read()
    assert np.linalg.norm(blocks.values() - weight) < 0.15 * np.linalg.norm(weight)
    assert np.linalg.norm(weight - values("layers.1.mlp.up.weight")) > 0.05 * np.linalg.norm(weight)


def test_the_same_model_is_quantized_alike(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    (first, a), (second, b) = calibrated(tmp_path / "a"), calibrated(tmp_path / "b")
    assert first.recipe == second.recipe
    for name in MATRICES:
        left, right = a.get(name, FOUR_BITS), b.get(name, FOUR_BITS)
        assert left is not None
        assert right is not None
        np.testing.assert_array_equal(left.codes, right.codes)


def test_the_matrix_that_matters_most_gets_eight_bits(tmp_path: Path) -> None:
    """One whose output is the better part of the residual stream."""
    large = {"layers.1.attn.o.weight": values("layers.1.attn.o.weight") * 40}
    made, _ = calibrated(tmp_path, large, bits=5)
    assert made.recipe.exceptions["layers.1.attn.o"] == EIGHT_BITS


@pytest.mark.parametrize("budget", [4.5, 4.6, 4.85, 5.2, 6.5, 7.5, 9.0])
def test_a_budget_is_kept_and_used(tmp_path: Path, budget: float) -> None:
    made, _ = calibrated(tmp_path, bits=budget)
    tensors = made.tensors
    shapes = {name: stored(name, tensors) for name in [*MATRICES, "embed"]}
    bits = sum(stored_bits(shape, made.recipe.format_of(name)) for name, shape in shapes.items())
    weights = sum(n * k for n, k in shapes.values())
    assert bits <= budget * weights
    if budget == 9.0:
        assert all(made.recipe.format_of(name).bits == 8 for name in [*MATRICES, "embed"])
    else:
        assert bits > (budget - 0.6) * weights


def stored(name: str, tensors: dict[str, LazyTensor]) -> tuple[int, int]:
    modules = {name: (name,)} | {k: v for layer in range(3) for k, v in layer_matrices(PLAIN, layer).items()}
    shapes = [tensors[f"{module}.weight"].shape for module in modules[name]]
    return sum(shape[0] for shape in shapes), shapes[0][1]


def test_a_budget_that_cannot_be_kept_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"budget of 2.4 cannot be kept: .* takes 2.5 per weight"):
        calibrated(tmp_path, bits=2.4)
    assert not list(tmp_path.iterdir())


def outlier_of_gelu(size: float) -> dict[str, Array]:
    """Channels of the first MLP's inside, which no norm and no other matrix makes: they are always large."""
    bias, down = values("layers.0.mlp.up.bias"), values("layers.0.mlp.down.weight")
    bias[::16] = size
    down[:, ::16] /= size
    return {"layers.0.mlp.up.bias": bias, "layers.0.mlp.down.weight": down}


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_outliers_that_cannot_be_smoothed_get_smaller_blocks_or_floats(tmp_path: Path, scheme: str) -> None:
    recipe = CALIBRATED["int4" if scheme == "int4" else "int8"]
    mild, _ = calibrated(tmp_path, outlier_of_gelu(12), recipe, bits=5.2)
    assert mild.recipe.exceptions["layers.0.mlp.down"].block_size < recipe.linear.block_size
    assert mild.warnings == ()
    hard, _ = calibrated(tmp_path, outlier_of_gelu(300), recipe, bits=5.2)
    assert hard.recipe.exceptions["layers.0.mlp.down"] == FLOATS
    (warning,) = hard.warnings
    assert "layers.0.mlp.down stays in 32-bit floats" in warning


@pytest.mark.parametrize("block_size", [16, 32, 64])
def test_activation_errors_are_those_of_rounding_by_hand(block_size: int) -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((9, 100)), rng.standard_normal((20, 100))
    x[4] = 0
    errors = list[float]()
    for row in x:
        rounded = row.copy()
        for start in range(0, 100, block_size):
            part = row[start : start + block_size]
            scale = np.abs(part).max() / 127 or 1
            rounded[start : start + block_size] = np.round(part / scale) * scale
        if row.any():
            errors.append(float(np.linalg.norm((rounded - row) @ weight.T) / np.linalg.norm(row @ weight.T)))
    found = activation_error(x.astype(np.float32), weight.astype(np.float32), block_size)
    assert found == pytest.approx(np.mean(errors), rel=1e-3)
    assert found < TOLERABLE < BEARABLE


def test_a_healthy_matrix_keeps_its_format() -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((9, 128)).astype(np.float32), rng.standard_normal((20, 128)).astype(np.float32)
    forms: list[MatrixFormat] = [EIGHT_BITS, FOUR_BITS, replace(EIGHT_BITS, block_size=16)]
    assert [bearable_format(x, weight, form) for form in forms] == forms


def test_a_store_gives_back_what_it_was_given(tmp_path: Path) -> None:
    store, matrix = BlockStore(tmp_path), np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    blocks = round_rows(matrix, 4, 16)
    zeros = np.arange(18, dtype=np.uint8).reshape(6, 3)
    plain = replace(FOUR_BITS, symmetric=True)
    store.put("layers.0.attn.o", plain, blocks)
    store.put("layers.0.attn.o", FOUR_BITS, replace(blocks, zeros=zeros))
    first, second = store.get("layers.0.attn.o", plain), store.get("layers.0.attn.o", FOUR_BITS)
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.values(), blocks.values())
    assert (first.zeros, first.bits, first.columns) == (None, 4, 40)
    np.testing.assert_array_equal(second.zeros, zeros)
    assert store.get("layers.1.attn.o", plain) is None


# Whole exports.


def test_the_manifest_says_what_was_done(tmp_path: Path, test_data: Path) -> None:
    bundle, report = export(
        str(test_data / "models/gpt2-stories-0.9m"), tmp_path / "int4", ExportOptions(scheme="int4")
    )
    recipe = bundle.manifest.quantization
    assert (recipe.scheme, recipe.method, recipe.smoothing) == ("int4", "gptq", 0.5)
    assert (recipe.calibration, recipe.calibration_tokens) == ("sampled from the model", 8192)
    assert recipe.exceptions
    assert recipe.bits_per_weight < 5.2  # positions take 8.25
    assert report.preferred.mean_kl < 0.002  # plain rounding: 0.0045
    assert Bundle.open(bundle.path).manifest.quantization == recipe


def test_formats_in_the_manifest_are_those_of_the_file(tmp_path: Path, test_data: Path) -> None:
    for fast in (True, False):
        source = test_data / "models/stories260K"
        bundle, _ = export(str(source), tmp_path / str(fast), ExportOptions(scheme="int4", fast=fast))
        names = [t.name for t in onnx.ModelProto.FromString(bundle.file("prefill.onnx").read_bytes()).graph.initializer]
        recipe = bundle.manifest.quantization
        ends = ("q+k+v.weight", ".o.weight", "up.weight", "down.weight", "embed.weight")
        matrices = [name for name in names if name.endswith(ends)]
        assert len(matrices) == 21
        for name in matrices:
            form = recipe.format_of(name.removesuffix(".weight"))
            assert (f"{name}.zeros" in names) != form.symmetric


def test_planted_outliers_cost_nothing_once_smoothed(tmp_path: Path, test_data: Path) -> None:
    source = str(test_data / "models/stories260K-outliers")
    smooth, plain = (export(source, tmp_path / str(fast), ExportOptions(fast=fast))[1] for fast in (False, True))
    assert smooth.preferred.mean_kl < 0.003 < 0.03 < plain.preferred.mean_kl


def test_a_text_can_be_given_to_calibrate_on(tmp_path: Path, test_data: Path) -> None:
    text = test_data / "corpora/tinystories_cased_197k.txt"
    bundle, _ = export(str(test_data / "models/stories260K"), tmp_path / "b", ExportOptions(calibration=text))
    recipe = bundle.manifest.quantization
    assert (recipe.calibration, recipe.calibration_tokens) == ("text", 1024)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"scheme": "int4", "via": "optimum"}, "8 bits or in floats"),
        ({"scheme": "fp32", "calibration": Path("x")}, "of no use to plain rounding"),
        ({"fast": True, "calibration": Path("x")}, "of no use to plain rounding"),
        ({"bits_budget": 5.0}, "a bits budget is for int4"),
        ({"scheme": "int4", "fast": True, "bits_budget": 5.0}, "a bits budget is for int4"),
        ({"scheme": "int4", "bits_budget": 2.0}, "lies between 2.5 and 10.0, not at 2"),
    ],
)
def test_options_that_contradict_each_other_are_refused(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        export("nowhere", tmp_path / "bundle", ExportOptions(**options))
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("scheme", CALIBRATED)
def test_a_calibration_text_is_for_the_recipes_that_calibrate(scheme: Scheme) -> None:
    if CALIBRATED[scheme].calibrates:
        assert ExportOptions(scheme=scheme, calibration=Path("text")).calibration == Path("text")
    else:
        with pytest.raises(UsageError, match="of no use to plain rounding"):
            ExportOptions(scheme=scheme, calibration=Path("text"))


def test_sixteen_bits_take_half_the_room_and_change_next_to_nothing(tmp_path: Path, test_data: Path) -> None:
    source = str(test_data / "models/gpt2-stories-0.9m")
    half, report = export(source, tmp_path / "half", ExportOptions(scheme="fp16"))
    assert report.preferred.mean_kl < 1e-6
    assert half.manifest.quantization.bits_per_weight == 16
    ids = list(range(40))
    a, b = (
        decoded(r, r.new_cache(), ids) for r in (runner_of(half), runner_of(export_to(Path(source), tmp_path / "f")))
    )
    np.testing.assert_allclose(a, b, atol=0.02)


def test_weights_that_sixteen_bits_cannot_hold_are_named(tmp_path: Path) -> None:
    checkpoint = write_llama(tmp_path / "llama")
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 3] = 7e4
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(TensorError, match=r"export it with --fp32.*up_proj.weight: has values beyond 65504"):
        export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme="fp16"))
    assert not (tmp_path / "bundle").exists()
