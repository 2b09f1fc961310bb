"""Moves kept of a calibration make of each matrix what the calibration made of it."""

from pathlib import Path

import numpy as np
import pytest

from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.layer_walk import LayerWalk
from edgegen_export.calibration.moves import Moves
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.quantize.recipe import CALIBRATED
from tests.export.quantize.test_smoothing import decoders, random_tensors


@pytest.mark.parametrize("config", [pytest.param(config, id=name) for name, config in [*decoders()][::8]])
def test_moved_matrices_are_those_that_are_quantized(config: DecoderConfig, tmp_path: Path) -> None:
    tensors, ids = random_tensors(config), np.random.default_rng(0).integers(0, config.vocab_size, (4, 12))
    reference = LayerwiseModel(tensors, config, kv_spec(config))
    walk = LayerWalk(tensors, config, reference, CALIBRATED["int8"], Scratch(tmp_path), hessians=False)
    for _ in walk.matrices(ids, lambda run: None, lambda done, total: None):
        pass
    walk.head()
    read = Moves(walk.moves.arrays)
    changed = 0
    for name, tensor in tensors.items():
        if name.endswith(".weight") and len(tensor.shape) == 2:
            wanted = walk.tensors[name].read()
            found = read.applied(config, name.removesuffix(".weight"), tensor).read()
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max(), err_msg=name)
            changed += walk.tensors[name] is not tensor
    assert bool(changed) is bool(read.arrays)
