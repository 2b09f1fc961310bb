"""Families that transformers does not have, against their formulas in NumPy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import export_to, little_calibration, runner_of
from tests.families import iquestloopcoder, phi4flash, rwkv7
from tests.families.cases import Case
from tests.families.harness import assert_computes
from tests.families.long_prompts import (
    assert_a_prefix_and_proposals_do_not_show,
    assert_greedy_ids,
    assert_rows_are_as_if_alone,
)
from tests.families.random_tensors import Floats
from tests.families.test_exactness import assert_bit_exact


class Written(Protocol):
    def __call__(self, variant: str, folder: Path) -> tuple[dict[str, Any], dict[str, Floats]]: ...


@dataclass(frozen=True)
class Formulas:
    """A family's random checkpoints by their variants, and the logits [t, vocab] of ids [t]."""

    base: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]]
    written: Written
    computed: Callable[[Mapping[str, Any], Mapping[str, Floats], list[int]], Floats]


FAMILIES = {
    module.BASE["model_type"]: Formulas(module.BASE, module.VARIANTS, module.written, module.computed)
    for module in (iquestloopcoder, phi4flash, rwkv7)
}


@pytest.mark.parametrize(
    ("family", "variant"), [(name, variant) for name, family in FAMILIES.items() for variant in family.variants]
)
def test_a_family_computes_its_formulas(family: str, variant: str, tmp_path: Path) -> None:
    formulas = FAMILIES[family]
    config, tensors = formulas.written(variant, tmp_path / "checkpoint")
    ids: list[int] = np.random.default_rng(0).integers(3, 96, 50).tolist()
    judge = partial(formulas.computed, config, tensors)
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    assert judge(ids).std() > 0.5
    assert_computes(runner_of(bundle), judge, ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_of_many_lengths_get_the_ids_of_the_formulas(family: str, tmp_path: Path) -> None:
    judge = partial(FAMILIES[family].computed, *FAMILIES[family].written("base", tmp_path / "checkpoint"))
    bundle, report = export(str(tmp_path / "checkpoint"), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    assert report.preferred.mean_kl < 1e-6
    assert_greedy_ids(bundle, judge)


KEPT: dict[str, tuple[list[tuple[int, str, int | None, int | None]], list[tuple[int, int]]]] = {
    "iquestloopcoder": (  # the second pass keeps a window, and reads the first one
        [
            *((i, "growing", None, None) for i in range(3)),
            *(state for i in range(3, 6) for state in ((i, "shared", None, i - 3), (i, "windowed", 12, None))),
        ],
        [(2, 16)] * 6,
    ),
    "phi4flash": (  # the second half reads what the first has kept; pairs of keys are one
        [
            *((0, "fixed", None, None), (0, "fixed", None, None), (1, "windowed", 12, None)),
            *((2, "fixed", None, None), (2, "fixed", None, None), (3, "windowed", 12, None)),
            *((4, "fixed", None, None), (4, "fixed", None, None), (5, "growing", None, None), (7, "shared", None, 5)),
        ],
        [(2, 16)] * 3,
    ),
    "rwkv7": ([(i // 3, "fixed", None, None) for i in range(9)], []),
}
"""The states of each layer: layer, kind, window, the layer whose keys it reads; and heads and sizes of KV caches."""


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_calibrated_bundles_are_exact_whatever_runs_with_a_prompt(family: str, scheme: Scheme, tmp_path: Path) -> None:
    """All of one bundle here, for to calibrate takes as long as the rest."""
    FAMILIES[family].written("base", tmp_path / "checkpoint")
    with little_calibration():
        bundle, report = export(str(tmp_path / "checkpoint"), tmp_path / "bundle", ExportOptions(scheme=scheme))
    assert report.preferred.mean_kl < (0.05 if scheme == "int8" else 1.0)
    assert_keeps(family, bundle)
    assert_rows_are_as_if_alone(bundle)
    assert_bit_exact(bundle, Case(family, "base", FAMILIES[family].base))
    if scheme == "int8":
        assert_a_prefix_and_proposals_do_not_show(bundle)


def assert_keeps(family: str, bundle: Bundle) -> None:
    states, caches = KEPT[family]
    kv = bundle.manifest.variants[0].kv
    assert [(state.layer, state.kind, state.window, state.source) for state in kv.states] == states
    assert [(layer.kv_heads, layer.head_dim) for layer in kv.layers] == caches
    assert kv.layers or kv.bytes_per_row == 3 * (64 + 4 * 16 * 16 + 64) * 4
