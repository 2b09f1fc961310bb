"""Families that transformers does not have, against their formulas in NumPy."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import export_to, little_calibration, runner_of
from tests.families.cases import Case
from tests.families.formulas import FORMULAS
from tests.families.harness import assert_computes
from tests.families.long_prompts import (
    assert_a_prefix_and_proposals_do_not_show,
    assert_greedy_ids,
    assert_rows_are_as_if_alone,
)
from tests.families.test_exactness import assert_bit_exact

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_parity")]


@pytest.mark.parametrize(
    ("family", "variant"), [(name, variant) for name, family in FORMULAS.items() for variant in family.variants]
)
def test_a_family_computes_its_formulas(family: str, variant: str, tmp_path: Path) -> None:
    formulas = FORMULAS[family]
    config, tensors = formulas.written(variant, tmp_path / "checkpoint")
    ids: list[int] = np.random.default_rng(0).integers(3, 96, 50).tolist()
    judge = partial(formulas.computed, config, tensors)
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    assert judge(ids).std() > 0.5
    assert_computes(runner_of(bundle), judge, ids)


@pytest.mark.parametrize("family", FORMULAS)
def test_prompts_of_many_lengths_get_the_ids_of_the_formulas(family: str, tmp_path: Path) -> None:
    judge = partial(FORMULAS[family].computed, *FORMULAS[family].written("base", tmp_path / "checkpoint"))
    bundle, report = export(str(tmp_path / "checkpoint"), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    assert report.preferred.mean_kl < 1e-6
    assert_greedy_ids(bundle, judge)


@pytest.mark.release
@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("family", FORMULAS)
def test_calibrated_bundles_are_exact_whatever_runs_with_a_prompt(family: str, scheme: Scheme, tmp_path: Path) -> None:
    """All of one bundle here, for to calibrate takes as long as the rest."""
    FORMULAS[family].written("base", tmp_path / "checkpoint")
    with little_calibration():
        bundle, report = export(str(tmp_path / "checkpoint"), tmp_path / "bundle", ExportOptions(scheme=scheme))
    assert report.preferred.mean_kl < (0.05 if scheme == "int8" else 1.0)
    assert_keeps(family, bundle)
    assert_rows_are_as_if_alone(bundle)
    assert_bit_exact(bundle, Case(family, "base", FORMULAS[family].base))
    if scheme == "int8":
        assert_a_prefix_and_proposals_do_not_show(bundle)


def assert_keeps(family: str, bundle: Bundle) -> None:
    """That the layers keep what the family says: layer, kind, window, and the layer whose keys are read."""
    formulas, kv = FORMULAS[family], bundle.manifest.variants[0].kv
    assert [(state.layer, state.kind, state.window, state.source) for state in kv.states] == [
        (
            layer,
            kind,
            formulas.window if kind == "windowed" else None,
            formulas.sources[layer] if kind == "shared" else None,
        )
        for layer, kind in formulas.kept.states
    ]
    assert tuple((layer.kv_heads, layer.head_dim) for layer in kv.layers) == formulas.caches
    assert kv.bytes_per_row == formulas.kept.bytes_per_row
