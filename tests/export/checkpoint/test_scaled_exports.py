"""Exports of checkpoints stored with scales: the logits of transformers, and codes kept where that is exact."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import Listener, decoded, random_ids, runner_of
from tests.export.calibration.test_prequantized import QWEN, stored_arrays, values_of
from tests.export.checkpoint.packed_checkpoints import LINEAR
from tests.export.checkpoint.scaled_checkpoints import (
    Made,
    compressed,
    float8_in_blocks,
    int8_of_channels,
    mlx_groups,
    nvfp4,
    packed_integers,
    write_scaled,
)
from tests.oracle import Oracle
from tests.second_oracle import SECOND, open_oracle

Floats = NDArray[np.float32]

FP8 = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]}}
MLX = {"group_size": 32, "bits": 4, "mode": "affine"}
WITH_EMBEDDING = re.compile(rf"{LINEAR.pattern}|.*embed_tokens\.weight")


def exported(folder: Path, target: Path, scheme: Scheme) -> tuple[Bundle, list[str]]:
    listener = Listener()
    bundle, _ = export(str(folder), target, ExportOptions(scheme=scheme, fast=True), progress=listener)
    return bundle, listener.warnings


def logits(bundle: Bundle, ids: list[int]) -> Floats:
    runner = runner_of(bundle)
    cache = runner.new_cache()
    cache.reserve(1, len(ids))
    return decoded(runner, cache, ids)


def test_logits_of_fp8_in_blocks_are_those_of_transformers(tmp_path: Path, test_data: Path) -> None:
    """transformers 5 dequantizes such checkpoints on a CPU."""
    source = test_data / "models/qwen2-stories-0.9m"
    folder, _, _ = write_scaled(source, tmp_path, FP8, lambda weight: float8_in_blocks(weight, 32, 32))
    bundle, warnings = exported(folder, tmp_path / "fp32", "fp32")
    assert warnings == []
    ids = random_ids(bundle, 64)
    expected = open_oracle(folder, SECOND).logits(np.array([ids]))[0]
    np.testing.assert_allclose(logits(bundle, ids), expected, rtol=0, atol=2e-4)


def test_fp8_becomes_what_its_floats_become(tmp_path: Path, test_data: Path) -> None:
    source = test_data / "models/qwen2-stories-0.9m"
    folder, floats, _ = write_scaled(source, tmp_path, FP8, lambda weight: float8_in_blocks(weight, 32, 32))
    found, warnings = exported(folder, tmp_path / "found", "int8")
    expected, _ = exported(floats, tmp_path / "expected", "int8")
    assert found.manifest.quantization == expected.manifest.quantization
    assert found.manifest.files["weights.data"] == expected.manifest.files["weights.data"]
    assert warnings == []


def test_mlx_groups_become_what_their_floats_become(tmp_path: Path, test_data: Path) -> None:
    """The embedding is quantized, too."""
    source = test_data / "models/qwen2-stories-0.9m"
    settings = {"quantization": MLX, "quantization_config": MLX}
    made = write_scaled(source, tmp_path, settings, lambda weight: mlx_groups(weight, 4, 32), WITH_EMBEDDING)
    found, warnings = exported(made[0], tmp_path / "found", "int4")
    expected, _ = exported(made[1], tmp_path / "expected", "int4")
    assert "model.embed_tokens.weight" in made[2]
    assert found.manifest.files["weights.data"] == expected.manifest.files["weights.data"]
    assert warnings == []


INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "group_size": None, "dynamic": False}
INT4 = {**INT8, "num_bits": 4, "strategy": "group", "group_size": 32, "actorder": "weight"}


def four_bits(weight: Floats) -> Made:
    return packed_integers(weight, 4, 32)


def eight_bits(weight: Floats) -> Made:
    return packed_integers(weight, 8, 32)


KEPT: dict[str, tuple[dict[str, Any], Any, Scheme]] = {
    "packed 4 bits": (compressed("pack-quantized", INT4), four_bits, "int4"),
    "packed 8 bits": (
        compressed("pack-quantized", {**INT4, "num_bits": 8}),
        eight_bits,
        "int8",
    ),
    "int8": (compressed("int-quantized", INT8), int8_of_channels, "int8"),
    "nvfp4": ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, nvfp4, "int8"),
}


@pytest.mark.parametrize("name", KEPT)
def test_codes_are_kept_where_the_bundle_holds_them_exactly(tmp_path: Path, test_data: Path, name: str) -> None:
    settings, made, scheme = KEPT[name]
    folder, floats, matrices = write_scaled(test_data / "models/qwen2-stories-0.9m", tmp_path, settings, made)
    bundle, warnings = exported(folder, tmp_path / "bundle", scheme)
    assert bundle.manifest.quantization.method == "repacked"
    stored = stored_arrays(bundle)
    for ours, theirs in QWEN.items():
        for layer in range(bundle.manifest.model.num_layers):
            parts = [matrices[each.replace("{i}", str(layer))] for each in theirs]
            found = values_of(stored, ours.replace("{i}", str(layer)), parts[0].shape[1])
            np.testing.assert_allclose(found, np.concatenate(parts), rtol=1e-6, atol=0, err_msg=ours)
    assert [warning for warning in warnings if "not used" not in warning] == []
    assert len(warnings) == (name == "nvfp4")  # its scales of activations
    ids = random_ids(bundle, 64)
    expected = Oracle(floats).logits(np.array([ids]))[0]
    assert np.linalg.norm(logits(bundle, ids) - expected) < 0.02 * np.linalg.norm(expected)
