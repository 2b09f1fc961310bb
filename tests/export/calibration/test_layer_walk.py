"""LayerWalk where matrices are rounded to 8 bits while it runs: nearly the same inputs, and layers shown in floats."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgegen_export.calibration.layer_walk import LayerMatrix, LayerWalk
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.graph.layerwise_model import LayerRun, LayerwiseModel
from edgegen_export.quantize.recipe import CALIBRATED
from tests.export.calibration.test_calibrate import IDS, PLAIN
from tests.export.quantize.test_smoothing import random_tensors

Array = NDArray[np.float32]
RECIPE = replace(CALIBRATED["int4"], smoothing=0)


def walked(*, in_int8: bool) -> tuple[list[LayerMatrix], list[Array]]:
    """The matrices of all layers, and the states after each as the layers shown compute them."""
    tensors = random_tensors(PLAIN)
    reference = LayerwiseModel(tensors, PLAIN, kv_spec(PLAIN))
    walk = LayerWalk(tensors, PLAIN, reference, RECIPE, Scratch(), hessians=True, in_int8=in_int8)
    states = [reference.embed(IDS[:2])]

    def on_run(run: LayerRun) -> None:
        states.append(run(states[-1]))

    def on_layer(done: int, total: int) -> None: ...

    return [*walk.matrices(IDS, on_run, on_layer)], states


def test_hessians_of_a_walk_in_8_bits_are_nearly_those_in_floats() -> None:
    (exact, _), (rounded, _) = walked(in_int8=False), walked(in_int8=True)
    assert [matrix.name for matrix in rounded] == [matrix.name for matrix in exact]
    differences = list[float]()
    for one, other in zip(rounded, exact, strict=True):
        assert one.hessian is not None
        assert other.hessian is not None
        for found, expected in zip(one.hessian.squares, other.hessian.squares, strict=True):
            upper = np.triu(found - expected)
            differences.append(float(np.linalg.norm(upper) / np.linalg.norm(np.triu(expected))))
    assert max(differences) < 0.03
    assert max(differences) > 0  # they ran in 8 bits


def test_a_walk_in_8_bits_shows_the_layers_in_floats() -> None:
    tensors = random_tensors(PLAIN)
    expected = [*LayerwiseModel(tensors, PLAIN, kv_spec(PLAIN)).states(IDS[:2])]
    _, states = walked(in_int8=True)
    for found, wanted in zip(states[1:], expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_walk_in_8_bits_needs_no_one_to_look_at_its_layers() -> None:
    tensors = random_tensors(PLAIN)
    reference = LayerwiseModel(tensors, PLAIN, kv_spec(PLAIN))
    walk = LayerWalk(tensors, PLAIN, reference, RECIPE, Scratch(), hessians=False, in_int8=True)
    done = list[int]()
    matrices = [*walk.matrices(IDS, None, lambda layer, total: done.append(layer))]
    assert [matrix.hessian for matrix in matrices] == [None] * len(matrices)
    assert done == [1, 2, 3]
