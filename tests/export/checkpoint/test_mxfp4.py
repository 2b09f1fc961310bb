"""MXFP4 experts: values against transformers' own reading, what is refused, and bundles of a packed gpt-oss."""

import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.errors import TensorError
from edgegen.evaluation.parity.report import ParityReport
from edgegen_export.checkpoint.mxfp4 import mxfp4_stacks
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.checkpoint.scaled_matrix import ScaledMatrix
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.blockwise import round_rows
from edgegen_export.tensors.lazy import ArrayTensor, LazyTensor
from tests.export.bundles import Listener, decoded, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of, tokens
from tests.oracle import Oracle, import_torch, import_transformers

pytestmark = pytest.mark.usefixtures("little_parity")

Arrays = dict[str, NDArray[Any]]
BASE = next(case for case in CASES if str(case) == "gpt_oss: base")
EXPERTS = "model.layers.{}.mlp.experts.{}_proj"


def load(folder: Path) -> Arrays:
    """The tensors of a checkpoint as they are stored."""
    tensors = open_safetensors(folder / "model.safetensors")
    return {name: tensor.stored.copy() for name, tensor in tensors.items() if isinstance(tensor, ArrayTensor)}


def random_parts(rng: np.random.Generator, experts: int, rows: int, columns: int) -> Arrays:
    """Blocks and scales of one stack, about as large as the weights of the tiny model."""
    shape = (experts, rows, columns // 32)
    blocks = rng.integers(0, 256, (*shape, 16)).astype(np.uint8)
    exponent = 127 + round(math.log2(2.0 / columns**0.5 / 3))
    return {"blocks": blocks, "scales": rng.integers(exponent - 1, exponent + 2, shape).astype(np.uint8)}


def dequantized(parts: Arrays) -> NDArray[np.float32]:
    """As transformers reads them: [experts, in, out]."""
    import_transformers()
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors  # pyright: ignore

    torch = import_torch()
    blocks, scales = (torch.from_numpy(parts[name].copy()) for name in ("blocks", "scales"))
    converted = cast(Any, convert_moe_packed_tensors)(blocks, scales, dtype=torch.float32)
    return converted.numpy()


def stack(parts: Arrays) -> LazyTensor:
    found, problems = mxfp4_stacks({f"w_{part}": ArrayTensor(array, name=part) for part, array in parts.items()})
    assert not problems
    return found["w"]


def test_values_are_those_of_transformers() -> None:
    parts = random_parts(np.random.default_rng(0), 3, 10, 96)
    expected, found = dequantized(parts), stack(parts)
    assert found.shape == expected.shape == (3, 96, 10)
    np.testing.assert_array_equal(found.read(), expected)
    np.testing.assert_array_equal(found.take(1, 3).read(), expected[1:])
    np.testing.assert_array_equal(found.take(5, 40, axis=1).read(), expected[:, 5:40])
    matrix = found.take(2, 3).reshaped((96, 10)).transposed()
    assert isinstance(matrix, ScaledMatrix)
    np.testing.assert_array_equal(matrix.read(), expected[2].T)
    np.testing.assert_array_equal(matrix.take(3, 7).take(10, 50, axis=1).read(), expected[2].T[3:7, 10:50])
    assert matrix.take(10, 50, axis=1).grouping is None


def test_eight_bits_hold_them_exactly() -> None:
    parts = random_parts(np.random.default_rng(1), 2, 12, 64)
    parts["scales"][0, 0] = [2, 250]
    matrix = stack(parts).take(0, 1).reshaped((64, 12)).transposed()
    groups = matrix.groups()
    values = (groups.codes.astype(np.float32) - 128).reshape(12, 2, 32) * groups.scales.astype(np.float32)[..., None]
    np.testing.assert_array_equal(values.reshape(12, 64), dequantized(parts)[0].T)
    assert (groups.zeros == 128).all()


def test_a_scale_that_is_no_number_makes_values_that_are_none() -> None:
    parts = random_parts(np.random.default_rng(1), 1, 2, 64)
    parts["scales"][0, 1, 0] = 255
    nan = np.isnan(stack(parts).read()[0].T)
    assert nan[1, :32].all()
    assert nan.sum() == 32


def test_all_that_does_not_fit_is_named() -> None:
    def tensor(*shape: int, dtype: str = "uint8") -> ArrayTensor:
        array: NDArray[Any] = np.zeros(shape, dtype)
        return ArrayTensor(array, name="x")

    found, problems = mxfp4_stacks(
        {
            "a.up_blocks": tensor(2, 4, 1, 16),
            "b.up_scales": tensor(2, 4, 1),
            "c.up_blocks": tensor(2, 4, 1, 8),
            "c.up_scales": tensor(2, 4, 1),
            "d.up_blocks": tensor(2, 4, 1, 16, dtype="int32"),
            "d.up_scales": tensor(2, 4, 1),
            "e.up_blocks": tensor(2, 4, 1, 16),
            "e.up_scales": tensor(2, 4, 1),
            "e.up": tensor(2, 32, 4, dtype="float32"),
            "norm": tensor(4, dtype="float32"),
        }
    )
    assert found.keys() == {"norm", "e.up"}
    shapes = (
        "blocks of shape [2, 4, 1, 8] and scales of shape [2, 4, 1] do not fit: "
        "[experts, rows, blocks, 16] and [experts, rows, blocks] expected"
    )
    assert problems == [
        "a.up: has no up_scales",
        "b.up: has no up_blocks",
        f"c.up: {shapes}",
        "d.up_blocks: stored as int32, uint8 expected",
        "e.up: stored twice, as floats and in MXFP4",
    ]


# Bundles.


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny gpt-oss whose experts are in MXFP4, and the same in floats."""
    root, rng = tmp_path_factory.mktemp("gpt_oss"), np.random.default_rng(5)
    floats, packed = checkpoint_of(BASE, root / "floats"), root / "packed"
    packed.mkdir()
    arrays = load(floats)
    mixed: Arrays = dict(arrays)
    for layer in range(2):
        for name in ("gate_up", "down"):
            weight = EXPERTS.format(layer, name)
            experts, columns, rows = arrays[weight].shape
            parts = random_parts(rng, experts, rows, columns)
            del mixed[weight]
            mixed |= {f"{weight}_{part}": array for part, array in parts.items()}
            arrays[weight] = dequantized(parts).copy()
    write_safetensors(floats / "model.safetensors", arrays)
    write_safetensors(packed / "model.safetensors", mixed)
    config = json.loads((floats / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (packed / "config.json").write_text(json.dumps(config))
    return floats, packed


def stored(bundle: Bundle, name: str) -> NDArray[np.float32]:
    """The values of the experts ``name``: [experts, rows, columns]."""
    model: onnx.ModelProto = cast(Any, onnx).load(bundle.file("decode.onnx"))
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    codes, scales = arrays[f"{name}.weight.table"], arrays[f"{name}.weight.scales"].astype(np.float32)
    middle = 128
    if codes.shape[2] < scales.shape[2] * 32:
        middle, codes = 8, np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:2], -1)
    return (codes.astype(np.float32) - middle) * np.repeat(scales, 32, axis=2)


def theirs(floats: Path, layer: int, name: str) -> NDArray[np.float32]:
    return load(floats)[EXPERTS.format(layer, name)].transpose(0, 2, 1)


def test_in_float32_logits_are_those_of_transformers(folders: tuple[Path, Path], tmp_path: Path) -> None:
    floats, packed = folders
    bundle, _ = export(str(packed), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    ids, runner = tokens(BASE, 48, seed=1), runner_of(bundle)
    expected = Oracle(floats).logits(np.array([ids]))[0]
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, rtol=0, atol=1e-3)


def test_int8_keeps_experts_exactly(folders: tuple[Path, Path], tmp_path: Path) -> None:
    floats, packed = folders
    listener = Listener()
    bundle, _ = export(str(packed), tmp_path / "bundle", ExportOptions(scheme="int8"), progress=listener)
    for layer in range(2):
        for ours, name in (("gate+up", "gate_up"), ("down", "down")):
            np.testing.assert_array_equal(stored(bundle, f"layers.{layer}.mlp.{ours}"), theirs(floats, layer, name))
    assert bundle.manifest.quantization.method == "repacked"
    assert any("4 of 8 matrices of the layers are rounded to 8 bits" in text for text in listener.warnings)


def test_int4_rounds_them_with_searched_scales_and_reports_the_cost(folders: tuple[Path, Path], tmp_path: Path) -> None:
    floats, packed = folders
    listener = Listener()
    bundle, report = export(str(packed), tmp_path / "bundle", ExportOptions(scheme="int4"), progress=listener)
    assert any("quantized again for int4: 4 stored in 8 bits" in text for text in listener.warnings)
    expected, found = theirs(floats, 0, "gate_up"), stored(bundle, "layers.0.mlp.gate+up")
    searched = float(np.square(found - expected).sum() / np.square(expected).sum()) ** 0.5
    rounded = round_rows(expected.reshape(-1, 64), 4, 32).values().reshape(expected.shape)
    plain = float(np.square(rounded - expected).sum() / np.square(expected).sum()) ** 0.5
    assert searched < 0.95 * plain
    assert searched < 0.1
    assert bundle.manifest.quantization.format_of("layers.0.mlp.down").bits == 4
    assert report.preferred.mean_kl == ParityReport.read(bundle).preferred.mean_kl > 0


def test_a_checkpoint_with_a_stack_missing_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    _, packed = folders
    arrays = load(packed)
    del arrays[f"{EXPERTS.format(1, 'down')}_scales"]
    write_safetensors(tmp_path / "model.safetensors", arrays)
    (tmp_path / "config.json").write_bytes((packed / "config.json").read_bytes())
    with pytest.raises(TensorError, match=r"layers\.1\.mlp\.experts\.down_proj: has no down_proj_scales"):
        export(str(tmp_path), tmp_path / "bundle", ExportOptions(scheme="int8"))
