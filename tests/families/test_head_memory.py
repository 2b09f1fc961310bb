"""The memory forecast and the estimate of an export count the weights that propose further tokens."""

import json
from pathlib import Path

import pytest

from bench.compare.checkpoints import write_checkpoint
from bench.compare.shapes import Qwen35Shape
from edgegen import EngineOptions
from edgegen.benchmark.memory_forecast import forecast_memory, kv_bytes
from edgegen.benchmark.memory_plan import plan_memory
from edgegen.bundle.bundle import Bundle
from edgegen.model.loading import open_runner
from edgegen.speculation.mtp_head import MTPHead, open_mtp_head
from edgegen_export.families import FAMILIES
from edgegen_export.files.progress import Silent
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.preflight.estimate import estimate
from edgegen_export.quantize.recipe import Scheme
from edgegen_export.source.family_source import FamilyLoader

ON, OFF = EngineOptions(threads=1, speculate="mtp"), EngineOptions(threads=1, speculate="off")
Bundles = tuple[Path, Bundle, Bundle]


SHAPE = Qwen35Shape(4, 256, 4, 2, 1024, 64, 4, 64, vocab=2000, context=256, with_head=True)
"""Wide enough that the pages which tensors are padded to do not count."""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """A checkpoint with a head, and its bundles with the head and without."""
    folder = tmp_path_factory.mktemp("memory")
    write_checkpoint(folder / "checkpoint", SHAPE)
    source = str(folder / "checkpoint")
    return (
        folder / "checkpoint",
        export(source, folder / "with", ExportOptions(scheme="int8", fast=True))[0],
        export(source, folder / "without", ExportOptions(scheme="int8", fast=True, mtp=False))[0],
    )


def test_a_head_counts_where_it_proposes(bundles: Bundles) -> None:
    """Its weights are those by which the bundle is larger, and its KV cache is what it reserves."""
    _, with_head, without = bundles
    alone, off, on = (forecast_memory(*one) for one in ((without, OFF), (with_head, OFF), (with_head, ON)))
    assert forecast_memory(with_head, EngineOptions(threads=1)) == off  # of a small model it is not asked
    sizes = [one.manifest.files["weights.data"].size for one in (with_head, without)]
    of_head = sizes[0] - sizes[1]
    assert off.weights == pytest.approx(alone.weights, abs=0.05 * of_head)
    assert on.weights - off.weights == pytest.approx(of_head, rel=0.05)
    assert (off.head, off.kv) == (0, alone.kv)
    runner = open_runner(with_head, ON)
    head = open_mtp_head(with_head, ON, runner)
    assert isinstance(head, MTPHead)
    assert on.kv - off.kv == head.new_cache().bytes_for(1, with_head.manifest.model.max_context)
    head.close()
    runner.close()


def test_a_plan_has_room_for_a_head(bundles: Bundles) -> None:
    _, bundle, _ = bundles
    bare = forecast_memory(bundle, ON, kv=0, context=0)
    plans = [plan_memory(bundle, 10**9, one) for one in (OFF, ON)]
    assert [plan.options.kv_budget for plan in plans] == [kv_bytes(bundle, one)(plans[0].context) for one in (OFF, ON)]
    assert plans[1].forecast.total - (plans[1].options.kv_budget or 0) == bare.total
    assert "prediction head" in str(plans[1])
    assert "prediction head" not in str(plans[0])


def test_a_draft_model_proposes_by_itself_alone(bundles: Bundles) -> None:
    """Its own head is not loaded."""
    _, bundle, without = bundles
    drafts = [forecast_memory(without, OFF, draft=one).draft for one in (bundle, without)]
    assert drafts[0] == pytest.approx(drafts[1], rel=0.01)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_an_export_is_estimated_with_its_head(bundles: Bundles, scheme: Scheme, tmp_path: Path) -> None:
    checkpoint, *made = bundles
    if scheme != "int8":
        made = [
            export(str(checkpoint), tmp_path / str(n), ExportOptions(scheme=scheme, fast=True, mtp=not n))[0]
            for n in range(2)
        ]
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    found = list[tuple[int, int]]()
    for mtp in (True, False):
        loader = FamilyLoader(FAMILIES, None, None, Silent(), with_head=mtp)
        decoder, head = loader.decoder(config), loader.draft_decoder(config)
        assert (head is not None) == mtp
        one = estimate(decoder, scheme, fast=True, gflops=100.0, head=head)
        found.append((one.bundle, one.running))
    stored = [one.manifest.files["weights.data"].size for one in made]
    assert found[0][0] - found[1][0] == pytest.approx(stored[0] - stored[1], rel=0.1)
    taken = [one.weights + one.kv + one.head for one in (forecast_memory(made[0], options) for options in (ON, OFF))]
    assert found[0][1] - found[1][1] == pytest.approx(taken[0] - taken[1], rel=0.1)


def test_a_config_that_says_that_there_is_no_head_is_believed(bundles: Bundles) -> None:
    config = json.loads((bundles[0] / "config.json").read_text("utf-8"))
    loader = FamilyLoader(FAMILIES, None, None, Silent())
    assert loader.draft_decoder({**config, "num_nextn_predict_layers": 0, "mtp_num_hidden_layers": 0}) is None
