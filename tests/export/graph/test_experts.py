"""Mixture of experts in a bundle: stored weights, quality loss of int8, bit-exactness, refusals.

The families' cases compare their logits with transformers.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.errors import TensorError, UnsupportedModelError
from edgegen.evaluation.parity.report import ParityReport
from edgegen.model.kernels import kernel_library
from edgegen.system import has_vnni
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families import FAMILIES
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import FOUR_BITS
from tests.export.bundles import decoded, export_to, prefilled, random_ids, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES, Case
from tests.families.harness import checkpoint_of
from tests.oracle import Oracle

pytestmark = pytest.mark.usefixtures("whole_parity")

BY_NAME = {str(case): case for case in CASES}
MIXTRAL, QWEN = BY_NAME["mixtral: base"], BY_NAME["qwen3_moe: base"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mixtral's base case: experts of 96 in a model of 64."""
    return checkpoint_of(MIXTRAL, tmp_path_factory.mktemp("mixtral") / "checkpoint")


@pytest.fixture(scope="module")
def bundle(checkpoint: Path) -> Bundle:
    return export_to(checkpoint, checkpoint.parent / "int8", "int8")


def tensors_of(checkpoint: Path) -> dict[str, NDArray[np.float32]]:
    tensors = open_safetensors(checkpoint / "model.safetensors")
    return {name: tensor.read() for name, tensor in tensors.items()}


def altered(checkpoint: Path, folder: Path, change: Callable[[str, NDArray[np.float32]], dict[str, Any]]) -> Path:
    """A copy of the checkpoint whose tensors are what ``change`` makes of each."""
    folder.mkdir()
    (folder / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    changed = [change(name, array) for name, array in tensors_of(checkpoint).items()]
    write_safetensors(folder / "model.safetensors", {name: a for one in changed for name, a in one.items()})
    return folder


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "olmoe", "granitemoe", "gpt_oss"])
def test_int8_is_near(tmp_path: Path, family: str) -> None:
    def calmer(name: str, array: NDArray[np.float32]) -> dict[str, Any]:
        """Routers so steep that rounding rarely decides which experts are chosen, and experts that say less."""
        routes = name.endswith((".gate.weight", ".router.layer.weight", ".router.weight"))
        return {name: array * np.float32(3 if routes else 0.5 if ".mlp." in name or "_moe." in name else 1)}

    folder = altered(checkpoint_of(BY_NAME[f"{family}: base"], tmp_path / "random"), tmp_path / "calm", calmer)
    bundle = export_to(folder, tmp_path / "bundle", "int8")
    ids, runner = random_ids(bundle, 96), runner_of(bundle)
    expected, found = Oracle(folder).logits(np.array([ids]))[0], decoded(runner, runner.new_cache(), ids)
    assert np.corrcoef(expected.ravel(), found.ravel())[0, 1] > 0.98
    assert (expected.argmax(-1) == found.argmax(-1)).mean() > 0.8
    assert ParityReport.read(bundle).preferred.mean_kl < 0.1


# In the bundle.


def initializers(bundle: Bundle) -> dict[str, NDArray[Any]]:
    model: onnx.ModelProto = cast(Any, onnx).load(bundle.file("decode.onnx"))
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_codes_are_the_checkpoints_weights_rounded(checkpoint: Path, bundle: Bundle) -> None:
    stored, theirs = initializers(bundle), tensors_of(checkpoint)
    for layer in range(2):
        module, block = f"layers.{layer}.mlp", f"model.layers.{layer}.block_sparse_moe"
        router = stored[f"{module}.router.weight"]
        np.testing.assert_array_equal(router, theirs[f"{block}.gate.weight"])

        def weights(name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            codes, scales = stored[f"{name}.table"], stored[f"{name}.scales"]
            assert codes.dtype == np.uint8
            steps = np.repeat(scales.astype(np.float32), 32, axis=2)  # the largest block that divides both 64 and 96
            return (codes.astype(np.float32) - 128) * steps, steps

        gate_up, gate_up_steps = weights(f"{module}.gate+up.weight")
        down, down_steps = weights(f"{module}.down.weight")
        assert gate_up.shape == (4, 192, 64)
        assert down.shape == (4, 64, 96)
        for expert in range(4):
            w1, w2, w3 = (theirs[f"{block}.experts.{expert}.w{n}.weight"] for n in (1, 2, 3))
            assert (np.abs(gate_up[expert, 0::2] - w1) <= 0.501 * gate_up_steps[expert, 0::2]).all()
            assert (np.abs(gate_up[expert, 1::2] - w3) <= 0.501 * gate_up_steps[expert, 1::2]).all()
            assert (np.abs(down[expert] - w2) <= 0.501 * down_steps[expert]).all()


def test_weights_are_stored_once_and_counted(checkpoint: Path, bundle: Bundle) -> None:
    places: list[dict[str, list[tuple[str, str]]]] = []
    for graph in ("prefill.onnx", "decode.onnx"):
        model: onnx.ModelProto = cast(Any, onnx).load(bundle.file(graph), load_external_data=False)
        stored = [tensor for tensor in model.graph.initializer if tensor.external_data]
        places.append({tensor.name: [(entry.key, entry.value) for entry in tensor.external_data] for tensor in stored})
    assert places[0] == places[1]
    assert sum(".mlp." in name for name in places[0]) == 2 * 5  # codes and scales of two matrices, and the router
    assert bundle.manifest.model.parameters == sum(array.size for array in tensors_of(checkpoint).values())


def test_a_bundle_with_experts_asks_for_an_onnxruntime_that_has_them(tmp_path: Path, bundle: Bundle) -> None:
    assert {variant.minimum_onnxruntime for variant in bundle.manifest.variants} == {"1.31.0"}
    dense = checkpoint_of(BY_NAME["qwen3_moe: no experts in any layer"], tmp_path / "checkpoint")
    assert export_to(dense, tmp_path / "bundle", "fp32").variant.minimum_onnxruntime == "1.23.2"


def test_two_experts_per_token_leave_chunks_threads_and_graphs_bit_equal(bundle: Bundle) -> None:
    runner, ids = runner_of(bundle), random_ids(bundle, 48)
    whole = prefilled(runner, runner.new_cache(), ids, 48)[-1]
    for chunk in (2, 6, 16, 24):
        np.testing.assert_array_equal(prefilled(runner, runner.new_cache(), ids, chunk)[-1], whole)
    np.testing.assert_array_equal(decoded(runner, runner.new_cache(), ids)[-1], whole)
    for other in (runner_of(bundle, threads=2), runner_of(bundle, "two")):
        np.testing.assert_array_equal(prefilled(other, other.new_cache(), ids, 48)[-1], whole)


# What is refused.


@pytest.mark.parametrize(
    ("case", "changes", "reason"),
    [
        (MIXTRAL, {"num_experts_per_tok": 5}, r"num_experts_per_tok = 5 is more than num_local_experts = 4"),
        (MIXTRAL, {"hidden_size": 40, "head_dim": 8}, r"hidden_size = 40: .* only multiples of 16"),
        (MIXTRAL, {"num_local_experts": 0}, r"num_local_experts: must be positive"),
        (MIXTRAL, {"shared_expert_intermediate_size": 32}, r"shared_expert_intermediate_size = 32: not understood"),
        (QWEN, {"moe_intermediate_size": 24}, r"the width of an expert = 24: .* only multiples of 16"),
        (QWEN, {"num_experts": 0}, r"num_experts: must be positive"),
        (BY_NAME["granitemoe: base"], {"position_embedding_type": "nope"}, r"position_embedding_type = 'nope'"),
    ],
)
def test_configs_that_cannot_be_exported_are_refused(case: Case, changes: dict[str, Any], reason: str) -> None:
    config = {"model_type": case.family, **case.config, **changes}
    with pytest.raises(UnsupportedModelError, match=reason):
        find_architecture(config, FAMILIES).read_config(config)


def test_a_missing_expert_is_named(checkpoint: Path, tmp_path: Path) -> None:
    gone = "model.layers.1.block_sparse_moe.experts.2.w3.weight"
    folder = altered(checkpoint, tmp_path / "checkpoint", lambda name, a: {} if name == gone else {name: a})
    with pytest.raises(TensorError) as error:
        export_to(folder, tmp_path / "bundle")
    assert "layers.1.block_sparse_moe.experts.2.w3.weight: missing, shape [96, 64] expected" in str(error.value)
    assert str(error.value).count("missing") == 1


def test_experts_called_otherwise_are_named_once_per_matrix(checkpoint: Path, tmp_path: Path) -> None:
    folder = altered(checkpoint, tmp_path / "checkpoint", lambda name, a: {name.replace(".w1.", ".gate_proj."): a})
    with pytest.raises(TensorError) as error:
        export_to(folder, tmp_path / "bundle")
    experts = "layers.0.block_sparse_moe.experts"
    assert f"{experts}.0.w1.weight to {experts}.3.w1.weight: missing, shape [96, 64] expected" in str(error.value)
    assert f"{experts}.3.gate_proj.weight: not a tensor of this architecture" in str(error.value)
    assert str(error.value).count("missing") == 2


def test_an_expert_that_is_not_finite_is_narrowed_down_to_its_matrix(checkpoint: Path, tmp_path: Path) -> None:
    broken = "model.layers.1.block_sparse_moe.experts.2.w2.weight"
    folder = altered(checkpoint, tmp_path / "checkpoint", lambda name, a: {name: a * np.nan if name == broken else a})
    with pytest.raises(TensorError) as error:
        export_to(folder, tmp_path / "bundle", "int8")
    experts = "model.layers.1.block_sparse_moe.experts"
    assert f"one of {experts}.0.w2.weight to {experts}.3.w2.weight: has values that are NaN" in str(error.value)
    assert "layers.0" not in str(error.value)


# Four bits.


@pytest.mark.parametrize("name", ["mixtral: base", "gpt_oss: base"])
@pytest.mark.parametrize("fast", [False, True])
def test_four_bits_are_bit_equal_in_chunks_threads_and_graphs(tmp_path: Path, name: str, fast: bool) -> None:
    folder = checkpoint_of(BY_NAME[name], tmp_path / "checkpoint")
    bundle, _ = export(str(folder), tmp_path / "bundle", ExportOptions(scheme="int4", fast=fast))
    exceptions = bundle.manifest.quantization.exceptions
    assert exceptions["layers.0.mlp.gate+up"] == exceptions["layers.1.mlp.down"] == replace(FOUR_BITS, symmetric=True)
    ids = random_ids(bundle, 48)
    exact = has_vnni() or kernel_library()  # without, ONNX Runtime adds few rows in another order
    for kv in ("float32", "int8"):
        runner = runner_of(bundle, kv=kv)
        whole = prefilled(runner, runner.new_cache(), ids, 48)[-1]
        np.testing.assert_array_equal(decoded(runner, runner.new_cache(), ids)[-1], whole)
        for other in (runner, runner_of(bundle, kv=kv, threads=2)):
            for chunk in (1, 6, 31) if exact else (16, 31):
                np.testing.assert_array_equal(prefilled(other, other.new_cache(), ids, chunk)[-1], whole)


def test_four_bits_are_near_and_searched_scales_nearer(checkpoint: Path, tmp_path: Path) -> None:
    theirs = tensors_of(checkpoint)
    errors: list[float] = []
    for fast in (False, True):
        bundle, _ = export(str(checkpoint), tmp_path / str(fast), ExportOptions(scheme="int4", fast=fast))
        stored, name = initializers(bundle), "layers.0.mlp.down.weight"
        table, scales = stored[f"{name}.table"], stored[f"{name}.scales"].astype(np.float32)
        codes = np.stack([table & 15, table >> 4], axis=-1).reshape(*scales.shape, 32).astype(np.float32)
        found = ((codes - 8) * scales[..., None]).reshape(4, 64, 96)
        wanted = np.array([theirs[f"model.layers.0.block_sparse_moe.experts.{e}.w2.weight"] for e in range(4)])
        errors.append(float(np.square(found - wanted).sum() / np.square(wanted).sum()) ** 0.5)
    assert errors[0] < 0.97 * errors[1]
    assert errors[1] < 0.12
