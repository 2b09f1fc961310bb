"""Quantized experts of GGUF files: what the ``gguf`` library reads of them, MXFP4 kept exactly, and parts missing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import ExpertGatingFuncType, GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize
from numpy.typing import NDArray

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.checkpoint.gguf_models import CASES, random_model, write_gguf
from tests.export.checkpoint.gguf_steps import Arrays
from tests.export.checkpoint.test_mxfp4 import stored

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that write the files

MXFP4 = GGMLQuantizationType.MXFP4


def written(folder: Path, name: str, kind: GGMLQuantizationType) -> Path:
    return write_gguf(folder / "model.gguf", CASES[name], random_model(CASES[name]), kind, least_axes=3)


def values_in(path: Path) -> dict[str, NDArray[np.float32]]:
    """The quantized tensors of the file, as the ``gguf`` library reads them."""
    tensors: list[Any] = list(GGUFReader(path).tensors)
    return {
        tensor.name: dequantize(tensor.data, tensor.tensor_type)
        for tensor in tensors
        if tensor.tensor_type != GGMLQuantizationType.F32
    }


def gate_up(values: dict[str, NDArray[np.float32]], layer: int) -> NDArray[np.float32]:
    """gpt-oss's two matrices, their rows in turns: [experts, rows, columns]."""
    gate, up = (values[f"blk.{layer}.ffn_{name}_exps.weight"] for name in ("gate", "up"))
    return np.stack([gate, up], axis=2).reshape(len(gate), -1, gate.shape[2])


@pytest.mark.parametrize("kind", [MXFP4, GGMLQuantizationType.Q8_0])
def test_quantized_experts_are_read_as_the_library_reads_them(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    path = written(tmp_path, "gpt-oss", kind)
    values, tensors = values_in(path), Checkpoint.open(str(path)).tensors
    assert len(values) == 6
    for i in range(2):
        experts = f"model.layers.{i}.mlp.experts"
        np.testing.assert_array_equal(tensors[f"{experts}.gate_up_proj"].read(), gate_up(values, i).swapaxes(1, 2))
        down = values[f"blk.{i}.ffn_down_exps.weight"]
        np.testing.assert_array_equal(tensors[f"{experts}.down_proj"].read(), down.swapaxes(1, 2))


def test_quantized_experts_have_a_tensor_each(tmp_path: Path) -> None:
    path = written(tmp_path, "mixtral", GGMLQuantizationType.Q8_0)
    values, tensors = values_in(path), Checkpoint.open(str(path)).tensors
    for n, matrix in enumerate(values["blk.1.ffn_gate_exps.weight"]):
        tensor = tensors[f"model.layers.1.block_sparse_moe.experts.{n}.w1.weight"]
        np.testing.assert_array_equal(tensor.read(), matrix)
        np.testing.assert_array_equal(tensor.take(3, 17, axis=1).read(), matrix[:, 3:17])


def test_int8_keeps_mxfp4_exactly(tmp_path: Path) -> None:
    path = written(tmp_path, "gpt-oss", MXFP4)
    values = values_in(path)
    bundle, _ = export(str(path), tmp_path / "bundle", ExportOptions(scheme="int8"))
    assert bundle.manifest.quantization.method == "repacked"
    for i in range(2):
        gates, ups = (values[f"blk.{i}.ffn_{name}_exps.weight"] for name in ("gate", "up"))
        found = stored(bundle, f"layers.{i}.mlp.gate+up")
        np.testing.assert_array_equal(found, gate_up(values, i))
        np.testing.assert_array_equal(stored(bundle, f"layers.{i}.mlp.down"), values[f"blk.{i}.ffn_down_exps.weight"])
        assert found.shape[1] == gates.shape[1] + ups.shape[1]


def test_one_part_of_two_is_refused(tmp_path: Path) -> None:
    def without_ups(config: Any, arrays: Arrays) -> Arrays:
        return {key: array for key, array in arrays.items() if key != "blk.1.ffn_up_exps.weight"}

    case = replace(CASES["granitemoe"], rearrange=(*CASES["granitemoe"].rearrange, without_ups))
    path = write_gguf(tmp_path / "model.gguf", case, random_model(case))
    with pytest.raises(CheckpointError, match=r"blk.1.ffn_gate_exps.weight: the other part of .* is missing"):
        Checkpoint.open(str(path))


def _sigmoid(writer: GGUFWriter, config: Any) -> None:
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)


def test_experts_that_are_weighed_otherwise_are_refused(tmp_path: Path) -> None:
    case = CASES["qwen3moe"]
    case = replace(case, describe=(*case.describe, _sigmoid))
    path = write_gguf(tmp_path / "model.gguf", case, random_model(case))
    with pytest.raises(CheckpointError, match=r"expert_gating_func = 2: experts are weighed by softmax only"):
        Checkpoint.open(str(path))
