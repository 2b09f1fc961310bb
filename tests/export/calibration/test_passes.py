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

from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.calibrate import calibrate
from edgegen_export.calibration.layer_walk import LayerWalk, layer_matrices
from edgegen_export.calibration.sensitivity import Sensitivity
from edgegen_export.families import FAMILIES
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.decoder import kv_spec
from edgegen_export.graph.fused import fused_weight
from edgegen_export.graph.layerwise_model import LayerRun, LayerwiseModel
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.preflight.estimate import estimate
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.blockwise import rounded_plainly
from edgegen_export.quantize.hessian import Hessian
from edgegen_export.quantize.recipe import CALIBRATED, FOUR_BITS, ROUNDED, Scheme
from edgegen_export.reading.passes import in_passes
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.bundles import little_calibration
from tests.export.calibration import test_calibrate
from tests.export.calibration.test_calibrate import PLAIN
from tests.export.quantize.test_smoothing import random_tensors
from tests.families.cases import CASES
from tests.families.formulas import iquestloopcoder
from tests.families.harness import checkpoint_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_parity")]

Array = NDArray[np.float32]

IDS, HELD_OUT = test_calibrate.IDS % 96, test_calibrate.HELD_OUT % 96
ORDER = [0, 1, 0, 1, 2, 1]
"""Pairs of layers again, and one of them once more after another."""
STARTS = {2: PassStart("begins"), 4: PassStart(), 5: PassStart("change")}
AGAIN = in_passes(PLAIN, ORDER, STARTS)
ZAMBA2 = next(case for case in CASES if str(case) == "zamba2: rotated and updated")
SHARED = find_architecture({"model_type": "zamba2"}, FAMILIES).read_config(ZAMBA2.config)
"""Layers that have matrices of their own beside those that they share."""
MIXED = find_architecture(iquestloopcoder.BASE, FAMILIES).read_config(iquestloopcoder.BASE)
"""Layers that attend to the keys of an earlier pass as well."""


def apart(config: DecoderConfig) -> DecoderConfig:
    """The same with tensors of each pass."""
    return replace(config, layers=tuple(replace(layer, repeats=None, own=()) for layer in config.layers))


def copied(tensors: dict[str, LazyTensor], config: DecoderConfig) -> dict[str, LazyTensor]:
    """Tensors for every pass."""
    found = {name: tensor for name, tensor in tensors.items() if not name.startswith("layers.")}
    for layer in range(config.num_layers):
        for stored in (config.stored(layer), f"layers.{layer}."):
            inside = {name.removeprefix(stored): one for name, one in tensors.items() if name.startswith(stored)}
            found |= {f"layers.{layer}.{name}": one for name, one in inside.items()}
    return found


def uses(config: DecoderConfig) -> dict[str, list[str]]:
    """Of each matrix, its names in all passes, where each has tensors."""
    found: dict[str, list[str]] = {"head": ["head"]}
    for layer in range(config.num_layers):
        for name, alone in zip(layer_matrices(config, layer), layer_matrices(apart(config), layer), strict=True):
            found.setdefault(name, []).append(alone)
    return found


@pytest.fixture(params=[AGAIN, SHARED, MIXED], ids=["passes", "shared blocks", "keys of both passes"])
def config(request: pytest.FixtureRequest) -> DecoderConfig:
    return request.param


def walked(config: DecoderConfig, tensors: dict[str, LazyTensor], folder: Path) -> dict[str, Array]:
    """The Hessian of each matrix, the head's too."""
    reference = LayerwiseModel(tensors, config, kv_spec(config))
    recipe = replace(CALIBRATED["int4"], smoothing=0.0)
    walk = LayerWalk(tensors, config, reference, recipe, Scratch(folder), hessians=True)
    found: dict[str, Array] = {}
    for one in walk.matrices(IDS, unseen, unheard):
        assert one.hessian is not None
        found[one.name] = _squares(one.hessian)
    head = walk.head()
    assert head is not None
    return {**found, "head": _squares(head)}


def _squares(hessian: Hessian) -> Array:
    return np.array(hessian.squares)


def unseen(run: LayerRun) -> None: ...


def unheard(done: int, total: int) -> None: ...


def test_hessians_are_those_of_all_passes_together(config: DecoderConfig, tmp_path: Path) -> None:
    tensors = random_tensors(config)
    together, alone = walked(config, tensors, tmp_path), walked(apart(config), copied(tensors, config), tmp_path)
    assert together.keys() == uses(config).keys()
    assert len(together) < len(alone)
    for name, names in uses(config).items():
        expected: Array = np.sum([alone[each] for each in names], axis=0)
        np.testing.assert_allclose(together[name], expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())


def test_a_matrix_costs_what_it_costs_in_all_passes_together(config: DecoderConfig) -> None:
    tensors = random_tensors(config)
    together, alone = costs(config, tensors), costs(apart(config), copied(tensors, config))
    for name, cost in together.items():
        assert cost == pytest.approx(sum(alone[each] for each in uses(config)[name]), rel=1e-3)


def costs(config: DecoderConfig, tensors: dict[str, LazyTensor]) -> dict[str, float]:
    model, tokens = LayerwiseModel(tensors, config, kv_spec(config)), IDS.shape[1]
    probe = Sensitivity(model, IDS[:2], Scratch(), config.num_layers)
    for layer in range(config.num_layers):
        with model.layer(layer, tokens) as run:
            probe.advance(run)
        for name, modules in layer_matrices(config, layer).items():
            blocks = {name: rounded_plainly(fused_weight(tensors, modules), FOUR_BITS)}
            with model.layer(layer, tokens, blocks=blocks) as run:
                probe.branch((name, FOUR_BITS), run)
    return {name: cost for (name, _), cost in probe.divergences().items()}


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_smoothing_leaves_the_logits_as_they_are(scheme: Scheme, config: DecoderConfig, tmp_path: Path) -> None:
    tensors = random_tensors(config)
    reference = LayerwiseModel(tensors, config, kv_spec(config))
    made = calibrate(
        tensors,
        config,
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
    assert [name for name, tensor in tensors.items() if made.tensors[name] is not tensor]
    np.testing.assert_allclose(after, before, atol=1e-3 * np.abs(before).max())


@pytest.mark.parametrize("scheme", ["fp32", "int8", "int4"])
def test_a_shared_block_is_stored_once_and_what_a_use_has_for_each(scheme: Scheme, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(ZAMBA2, tmp_path / "checkpoint")
    with little_calibration():
        bundle, report = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme=scheme))
    graph = onnx.ModelProto.FromString(bundle.file(bundle.variant.prefill).read_bytes()).graph
    found: dict[str, set[int]] = {}
    for one in graph.initializer:
        if module := re.fullmatch(r"layers\.(\d+)\.(attn|mlp|low|linear|mamba)(\..*)?\.weight", one.name):
            found.setdefault(module[2], set()).add(int(module[1]))
    hybrid = {1, 2, 4, 5}
    assert found == {"attn": {1, 2}, "mlp": {1, 2}, "low": hybrid, "linear": hybrid, "mamba": {*range(6)}}
    assert len(bundle.variant.kv.layers) == len(hybrid)
    assert scheme != "fp32" or report.preferred.max_logprob_diff < 1e-3


@pytest.mark.parametrize("scheme", ["fp32", "int8", "int4"])
def test_weights_are_stored_once(scheme: Scheme, tmp_path: Path) -> None:
    case = next(case for case in CASES if str(case) == "hrm_text: base")
    checkpoint = checkpoint_of(case, tmp_path / "checkpoint")
    with little_calibration():
        bundle, report = export(str(checkpoint), tmp_path / "bundle", ExportOptions(scheme=scheme))
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
    assert scheme != "fp32" or report.preferred.max_logprob_diff < 1e-3


def norm_weights(graph: onnx.GraphProto) -> int:
    """Of norms that have none in the checkpoint."""
    return sum(int(np.prod(one.dims)) for one in graph.initializer if "norm.weight" in one.name)


def test_estimates_count_weights_once_and_passes_as_they_run() -> None:
    models = (AGAIN, apart(AGAIN), PLAIN)
    again, alone, once = (estimate(config, "int4", fast=False, gflops=50.0) for config in models)
    assert again.bundle == once.bundle + 4 * 2 * PLAIN.hidden_size  # the norm of passes, which has weight and bias
    assert alone.running - again.running == alone.bundle - again.bundle > 0
    assert again.total_seconds == pytest.approx(alone.total_seconds, rel=0.05)
