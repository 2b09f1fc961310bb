"""Sensitivity: its passes over the layers grow with their number, and costs between measured layers are about right."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from edgegen_export.calibration.calibrate import calibrate
from edgegen_export.calibration.layer_walk import layer_matrices
from edgegen_export.calibration.sensitivity import Sensitivity
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.graph.fused import fused_weight
from edgegen_export.graph.layerwise_model import Hidden, LayerRun, LayerwiseModel
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.blockwise import Blocks, round_rows
from edgegen_export.quantize.recipe import CALIBRATED, FOUR_BITS, ROUNDED
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.calibration.test_calibrate import IDS, PLAIN
from tests.export.quantize.test_smoothing import random_tensors


class Counted(LayerwiseModel):
    """Counts how often a layer is run over hidden states."""

    runs = 0

    @contextmanager
    def layer(
        self,
        layer: int,
        tokens: int,
        taps: Sequence[str] = (),
        changed: Mapping[str, LazyTensor] | None = None,
        blocks: Mapping[str, Blocks] | None = None,
        *,
        kernels: bool = False,
        in_int8: bool = False,
        cache_only: bool = False,
    ) -> Generator[LayerRun]:
        ways = {"kernels": kernels, "in_int8": in_int8, "cache_only": cache_only}
        with super().layer(layer, tokens, taps, changed, blocks, **ways) as run:
            yield cast(LayerRun, CountedRun(run, self))


class CountedRun:
    def __init__(self, run: LayerRun, model: Counted) -> None:
        self._run, self._model = run, model

    def __call__(self, x: Hidden) -> Hidden:
        self._model.runs += 1
        return self._run(x)

    def tapped(self, x: Hidden) -> tuple[Hidden, dict[str, Hidden]]:
        self._model.runs += 1
        return self._run.tapped(x)


def runs(layers: int, folder: Path) -> int:
    config = replace(PLAIN, layers=PLAIN.layers[:1] * layers)
    tensors = random_tensors(config)
    model = Counted(tensors, config, kv_spec(config))
    store, recipe = BlockStore(folder), CALIBRATED["int4"]
    plain = ROUNDED["int4"]
    calibrate(
        tensors,
        config,
        model,
        IDS,
        recipe,
        store,
        None,
        lambda done, total: None,
        Scratch(folder),
        held_out=IDS,
        plain=plain,
    )
    return model.runs


def test_runs_grow_with_the_layers_not_with_their_square(tmp_path: Path) -> None:
    (tmp_path / "8").mkdir()
    (tmp_path / "16").mkdir()
    few, many = (runs(layers, tmp_path / str(layers)) for layers in (8, 16))
    assert few > 8 * 4
    assert many <= 2.2 * few


def test_costs_between_measured_layers_are_near_those_measured() -> None:
    config = replace(PLAIN, layers=PLAIN.layers[:1] * 7)
    tensors = random_tensors(config)
    model, found = LayerwiseModel(tensors, config, kv_spec(config)), list[dict[str, float]]()
    for measured in (7, 3):
        probe = Sensitivity(model, IDS, Scratch(), measured)
        for layer in range(config.num_layers):
            with model.layer(layer, IDS.shape[1]) as run:
                probe.advance(run)
            for name, modules in layer_matrices(config, layer).items():
                blocks = {name: round_rows(fused_weight(tensors, modules).read(), 4, 32)}
                with model.layer(layer, IDS.shape[1], blocks=blocks) as run:
                    probe.branch((name, FOUR_BITS), run)
        found.append({name: cost for (name, _), cost in probe.divergences().items()})
    exact, between = found
    assert exact.keys() == between.keys()
    assert len(exact) == 7 * 4
    ratios = np.array([between[name] / exact[name] for name in exact])
    measured = np.isclose(ratios, 1, rtol=1e-6)
    assert measured.sum() == 3 * 4  # the first, the middle and the last layer
    # 384 positions of a random model measure a cost itself no better.
    assert np.median(np.abs(np.log(ratios[~measured]))) < np.log(1.6)
    assert np.abs(np.log(ratios)).max() < np.log(5)
