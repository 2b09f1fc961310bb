"""Layers that run again: what calibration sees of their matrices in all passes, and what a bundle stores of them, once.

The same model with a copy of its tensors for each pass says what that has to be.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.calibrate import calibrate
from edgegen_export.calibration.layer_walk import LayerWalk, layer_matrices
from edgegen_export.calibration.sensitivity import Sensitivity
from edgegen_export.estimate import estimate
from edgegen_export.families.passes import in_passes
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.graph.fused import fused_weight
from edgegen_export.graph.layerwise_model import LayerRun, LayerwiseModel
from edgegen_export.pipeline import export
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.blockwise import round_rows
from edgegen_export.quantize.recipe import CALIBRATED, FOUR_BITS, ROUNDED, Scheme
from edgegen_export.scratch import Scratch
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.calibration.test_calibrate import HELD_OUT, IDS, PLAIN
from tests.export.quantize.test_smoothing import random_tensors
from tests.families.cases import CASES
from tests.families.harness import checkpoint_of

Array = NDArray[np.float32]

ORDER = [0, 1, 0, 1, 2, 1]
"""Pairs of layers again, and one of them once more behind another."""
STARTS = {2: PassStart("begins"), 4: PassStart(), 5: PassStart("change")}
AGAIN = in_passes(PLAIN, ORDER, STARTS)
APART = replace(AGAIN, layers=tuple(replace(layer, repeats=None) for layer in AGAIN.layers))
"""The same with tensors of each pass."""


def copied(tensors: dict[str, LazyTensor], config: DecoderConfig) -> dict[str, LazyTensor]:
    """Tensors for every pass."""
    found = {name: tensor for name, tensor in tensors.items() if not name.startswith("layers.")}
    for layer in range(config.num_layers):
        stored = config.stored(layer)
        inside = {name.removeprefix(stored): one for name, one in tensors.items() if name.startswith(stored)}
        found |= {f"layers.{layer}.{name}": one for name, one in inside.items()}
    return found


TENSORS = random_tensors(AGAIN)
COPIED = copied(TENSORS, AGAIN)


def walked(config: DecoderConfig, tensors: dict[str, LazyTensor], folder: Path) -> dict[str, tuple[int, Array]]:
    """The layer and the Hessian of each matrix, the head's too."""
    reference = LayerwiseModel(tensors, config, kv_spec(config))
    recipe = replace(CALIBRATED["int4"], smoothing=0.0)
    walk = LayerWalk(tensors, config, reference, recipe, Scratch(folder), hessians=True)
    found: dict[str, tuple[int, Array]] = {}
    for one in walk.matrices(IDS, unseen, unheard):
        assert one.hessian is not None
        found[one.name] = one.layer, one.hessian.copy()
    head = walk.head()
    assert head is not None
    return {**found, "head": (config.num_layers, head)}


def unseen(run: LayerRun) -> None: ...


def unheard(done: int, total: int) -> None: ...


def test_hessians_are_those_of_all_passes_together(tmp_path: Path) -> None:
    together, apart = walked(AGAIN, TENSORS, tmp_path), walked(APART, COPIED, tmp_path)
    assert [*together] == [name for layer in (0, 1, 4) for name in layer_matrices(AGAIN, layer)] + ["head"]
    for name, (layer, hessian) in together.items():
        passes = AGAIN.passes.get(layer, [layer])
        names = [name.replace(f"layers.{layer}.", f"layers.{each}.") for each in passes]
        expected: Array = np.sum([apart[each][1] for each in names], axis=0)
        np.testing.assert_allclose(hessian, expected, rtol=1e-4, atol=1e-2)


def test_a_matrix_costs_what_it_costs_in_all_passes_together() -> None:
    found = [costs(config, tensors) for config, tensors in ((AGAIN, TENSORS), (APART, COPIED))]
    together, apart = found
    for layer, passes in AGAIN.passes.items():
        for name in layer_matrices(AGAIN, layer):
            names = [name.replace(f"layers.{layer}.", f"layers.{each}.") for each in passes]
            assert together[name] == pytest.approx(sum(apart[one] for one in names), rel=1e-4)


def costs(config: DecoderConfig, tensors: dict[str, LazyTensor]) -> dict[str, float]:
    model, tokens = LayerwiseModel(tensors, config, kv_spec(config)), IDS.shape[1]
    probe = Sensitivity(model, IDS[:2], Scratch(), config.num_layers)
    for layer in range(config.num_layers):
        with model.layer(layer, tokens) as run:
            probe.advance(run)
        for name, modules in layer_matrices(config, layer).items():
            blocks = {name: round_rows(fused_weight(tensors, modules).read(), 4, 32)}
            with model.layer(layer, tokens, blocks=blocks) as run:
                probe.branch((name, FOUR_BITS), run)
    return {name: cost for (name, _), cost in probe.divergences().items()}


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_smoothing_leaves_the_logits_as_they_are(scheme: Scheme, tmp_path: Path) -> None:
    reference = LayerwiseModel(TENSORS, AGAIN, kv_spec(AGAIN))
    made = calibrate(
        TENSORS,
        AGAIN,
        reference,
        IDS,
        CALIBRATED[scheme],
        BlockStore(tmp_path),
        None,
        unheard,
        Scratch(tmp_path),
        held_out=HELD_OUT,
        plain=ROUNDED[scheme],
    )
    smoothed = reference.with_tensors(made.tensors)
    before, after = (model.logits(model.hidden([IDS])[0].reshape(-1, 64)) for model in (reference, smoothed))
    assert made.tensors["layers.0.attn_norm.weight"] is not TENSORS["layers.0.attn_norm.weight"]
    np.testing.assert_allclose(after, before, atol=1e-3 * np.abs(before).max())


@pytest.mark.parametrize("scheme", ["fp32", "int8", "int4"])
def test_weights_are_stored_once(scheme: Scheme, tmp_path: Path) -> None:
    case = next(case for case in CASES if str(case) == "hrm_text: base")
    bundle, report = export(str(checkpoint_of(case, tmp_path / "checkpoint")), tmp_path / "bundle", scheme=scheme)
    graph = onnx.ModelProto.FromString(bundle.file(bundle.variant.prefill).read_bytes()).graph
    stored = [one.name for one in graph.initializer if one.name.startswith("layers.")]
    of_passes = {name for name in stored if name.endswith(("_scale", "_scale.float32"))}
    layers = {int(re.findall(r"\d+", name)[0]) for name in {*stored} - of_passes}
    assert layers == {0, 1, 6, 7}  # of 16 that run
    assert len(stored) == len({*stored})
    assert bundle.manifest.model.num_layers == len(bundle.variant.kv.layers) == 16
    assert bundle.variant.kv.bytes_per_token % 16 == 0
    once = sum(np.prod(one.dims) for one in graph.initializer if one.name.endswith(".weight") and scheme == "fp32")
    assert once in (0, bundle.manifest.model.parameters + norm_weights(graph))
    assert report.preferred.max_logprob_diff < (1e-3 if scheme == "fp32" else 2)


def norm_weights(graph: onnx.GraphProto) -> int:
    """Of norms that have none in the checkpoint."""
    return sum(int(np.prod(one.dims)) for one in graph.initializer if "norm.weight" in one.name)


def test_estimates_count_weights_once_and_passes_as_they_run() -> None:
    again, apart, once = (estimate(config, "int4", fast=False, gflops=50.0) for config in (AGAIN, APART, PLAIN))
    assert again.bundle == once.bundle + 4 * 2 * PLAIN.hidden_size  # the norm of passes, which has weight and bias
    assert again.bundle < apart.bundle
    assert again.running - once.running == apart.running - once.running - (apart.bundle - again.bundle)
    assert again.total_seconds == pytest.approx(apart.total_seconds, rel=0.05)
