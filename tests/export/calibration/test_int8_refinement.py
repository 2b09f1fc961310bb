"""Int8 refinement on small models whose matrices were made to matter: which get better formats, and what that gains."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration import int8_refinement
from edgegen_export.calibration.int8_refinement import GOAL, Refinement, refine
from edgegen_export.calibration.layer_walk import layer_matrices
from edgegen_export.calibration.sensitivity import Change, eval_ids
from edgegen_export.calibration.trial import Trial
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.activations import rounded_inputs
from edgegen_export.quantize.allocation import Rung, upgraded_until
from edgegen_export.quantize.blockwise import round_rows, stored_bits
from edgegen_export.quantize.recipe import CALIBRATED, EIGHT_BITS, FLOATS, SMALL
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.bundles import decoded, runner_of
from tests.export.calibration.test_calibrate import PLAIN
from tests.export.quantize.test_smoothing import random_tensors

pytestmark = pytest.mark.usefixtures("whole_parity")

Array = NDArray[np.float32]

THIRTY_TWO, SIXTEEN = replace(EIGHT_BITS, block_size=32), replace(EIGHT_BITS, block_size=16)
IDS = np.random.default_rng(0).integers(0, 100, (2, 64))
INT8 = CALIBRATED["int8"]


def refined(
    config: DecoderConfig, changes: Mapping[str, Array], exceptions: Mapping[str, object] | None = None
) -> Refinement:
    tensors = random_tensors(config) | {name: LazyTensor.from_array(x) for name, x in changes.items()}
    reference = LayerwiseModel(tensors, config, kv_spec(config))
    matrices = [layer_matrices(config, layer) for layer in range(config.num_layers)]
    recipe = replace(INT8, exceptions=dict(exceptions or {}))
    return refine(Trial(tensors, reference, matrices, IDS, recipe, config.tied_head))


def sharp(config: DecoderConfig, factor: float) -> dict[str, Array]:
    """Logits ``factor`` times as large, and so their errors."""
    norm = "final_norm.weight"
    return {norm: factor * random_tensors(config)[norm].read()}


def test_a_healthy_model_keeps_its_formats() -> None:
    found = refined(PLAIN, {})
    assert 0 < found.divergence <= GOAL
    assert (found.left, found.formats) == (found.divergence, {})


def test_better_formats_leave_no_more_than_the_goal() -> None:
    found = refined(PLAIN, sharp(PLAIN, 8))
    assert found.divergence > 2 * GOAL
    assert 0 < found.left <= GOAL
    again = refined(PLAIN, sharp(PLAIN, 8), found.formats)
    assert again.divergence < 0.5 * found.divergence
    assert again.divergence == pytest.approx(found.left, rel=0.4)


def test_large_matrices_do_not_become_floats() -> None:
    config = replace(PLAIN, vocab_size=SMALL // 64 + 100)
    found = refined(config, sharp(config, 30))
    assert found.left > GOAL
    assert found.formats["embed"] in (THIRTY_TWO, SIXTEEN)
    assert {form for name, form in found.formats.items() if name != "embed"} == {FLOATS}


def test_where_the_best_formats_miss_the_goal_no_matrix_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(trial: Trial) -> dict[Change, float]:
        raise AssertionError("measured alone")

    monkeypatch.setattr(int8_refinement, "_alone", alone)
    config = replace(PLAIN, vocab_size=SMALL // 64 + 100)
    found = refined(config, sharp(config, 30))
    assert set(found.formats) == {*layer_names(config), "embed"}
    again = refined(config, sharp(config, 30), found.formats)
    assert again.divergence == pytest.approx(found.left, rel=1e-6)


@pytest.mark.parametrize(("vocabulary", "rows"), [(100, 2), (16_383, 2), (16_384, 1), (152_000, 1)])
def test_a_model_of_many_words_is_judged_on_one_row(vocabulary: int, rows: int) -> None:
    ids = np.zeros((4, 256), np.int64)
    assert eval_ids(ids, vocabulary).shape == (rows, 256)


def test_an_untied_head_is_judged_apart_from_the_embedding() -> None:
    config = replace(PLAIN, tied_head=False)
    found = refined(config, sharp(config, 12))
    assert "head" in found.formats


def test_a_table_of_positions_is_judged_with_the_others() -> None:
    config = replace(PLAIN, extras=(LearnedPositions(64),))
    table = random_tensors(config)["positions.weight"].read().copy()
    table[:, 3] = 4  # beside what all positions have in common, what tells one from another is rounded coarsely
    changes = {**sharp(config, 8), "positions.weight": table}
    assert refined(config, changes).formats["positions"] == FLOATS
    floats = dict.fromkeys([*layer_names(config), "embed"], FLOATS)
    assert refined(config, changes, floats).divergence > GOAL
    assert refined(config, changes, {**floats, "positions": FLOATS}).divergence == pytest.approx(0, abs=1e-7)


def layer_names(config: DecoderConfig) -> list[str]:
    return [name for layer in range(config.num_layers) for name in layer_matrices(config, layer)]


def test_a_matrix_in_floats_is_left_alone() -> None:
    matrices = layer_names(PLAIN)
    floats = dict.fromkeys([*matrices, "embed"], FLOATS)
    assert refined(PLAIN, sharp(PLAIN, 8), floats).divergence == pytest.approx(0, abs=1e-7)
    found = refined(PLAIN, sharp(PLAIN, 30), dict.fromkeys(matrices, FLOATS))
    assert set(found.formats) == {"embed"}


def test_a_quantized_layer_rounds_what_it_multiplies() -> None:
    """As the bundle will: the operator does so only with matrices that are part of the graph."""
    tensors = random_tensors(PLAIN)
    reference = LayerwiseModel(tensors, PLAIN, kv_spec(PLAIN))
    name, x = "layers.0.mlp.down", reference.embed(IDS)
    blocks = round_rows(tensors[f"{name}.weight"].read(), 8, 64)
    with reference.layer(0, IDS.shape[1], [name]) as run:
        exact, inputs = run.tapped(x)
    with reference.layer(0, IDS.shape[1], blocks={name: blocks}) as run:
        found = run(x)
    weight = tensors[f"{name}.weight"].read()
    change = rounded_inputs(inputs[name], 64) @ blocks.values().T - inputs[name] @ weight.T
    np.testing.assert_allclose((found - exact).reshape(change.shape), change, atol=0.02 * np.abs(change).max())


def test_steps_are_taken_by_what_they_save_for_their_size() -> None:
    ladders = {
        "a": (Rung(1.0, 100), Rung(0.0, 200)),
        "b": (Rung(3.0, 100), Rung(0.0, 300)),
        "c": (Rung(0.5, 10), Rung(0.0, 20)),
        "d": (Rung(0.5, 10), Rung(0.6, 20)),
    }
    assert upgraded_until(ladders, goal=0) == {"a": 1, "b": 1, "c": 1}
    assert upgraded_until(ladders, goal=5) == {}
    assert upgraded_until(ladders, goal=4.5) == {"c": 1}
    assert upgraded_until(ladders, goal=2) == {"b": 1, "c": 1}


def test_a_rung_that_saves_little_is_passed_over() -> None:
    ladders = {"a": (Rung(1.0, 100), Rung(0.9, 110), Rung(0.1, 130), Rung(0.0, 400))}
    assert upgraded_until(ladders, goal=0.2) == {"a": 2}
    assert upgraded_until(ladders, goal=0) == {"a": 3}


def test_floats_have_their_size() -> None:
    assert stored_bits((3, 50), FLOATS) == 3 * 50 * 32


# Whole exports.


def test_a_model_that_stays_bad_is_refined(tmp_path: Path, test_data: Path) -> None:
    source = str(test_data / "models/stories260K")
    bundle, report = export(source, tmp_path / "refined")
    recipe = bundle.manifest.quantization
    assert recipe.exceptions["embed"] == FLOATS
    assert set(recipe.exceptions.values()) >= {FLOATS, SIXTEEN}
    of_weights = report.variants["int8"].mean_kl  # over a float32 KV cache
    assert of_weights < 2 * GOAL
    assert of_weights < 0.5 * export(source, tmp_path / "fast", ExportOptions(fast=True))[1].variants["int8"].mean_kl


def test_floats_keep_int8_keys_exact(tmp_path: Path, test_data: Path) -> None:
    bundle, _ = export(str(test_data / "models/stories260K"), tmp_path / "refined")
    assert FLOATS in bundle.manifest.quantization.exceptions.values()
    ids, runner = list(range(3, 60)), runner_of(bundle, kv="int8")
    together = decoded(runner, runner.new_cache(), ids)
    cache = runner.new_cache()
    np.testing.assert_array_equal(np.concatenate([decoded(runner, cache, [i]) for i in ids]), together)


def test_the_same_export_gives_the_same_weights(tmp_path: Path, test_data: Path) -> None:
    source = str(test_data / "models/stories260K")
    first, second = (export(source, tmp_path / name)[0] for name in "ab")
    assert first.manifest.files["weights.data"] == second.manifest.files["weights.data"]
    assert first.manifest.quantization == second.manifest.quantization
