"""Families that transformers does not have, against their formulas in NumPy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
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


@dataclass(frozen=True)
class Model:
    """One of a family, and its bundles by their schemes."""

    family: str
    judge: Callable[[list[int]], Floats]
    exported: Callable[[Scheme], Bundle]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    family: str = request.param
    folder = tmp_path_factory.mktemp(family)
    judge = partial(FAMILIES[family].computed, *FAMILIES[family].written("base", folder / "checkpoint"))

    @cache
    def exported(scheme: Scheme) -> Bundle:
        with little_calibration():
            bundle, report = export(str(folder / "checkpoint"), folder / scheme, scheme=scheme)
        assert report.preferred.mean_kl < {"fp32": 1e-6, "int8": 0.05, "int4": 1.0}[scheme]
        return bundle

    return Model(family, judge, exported)


def test_prompts_of_many_lengths_get_the_ids_of_the_formulas(model: Model) -> None:
    assert_greedy_ids(model.exported("fp32"), model.judge)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_rows_of_many_lengths_are_as_if_alone(scheme: Scheme, model: Model) -> None:
    assert_rows_are_as_if_alone(model.exported(scheme))


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_quantized_is_bit_exact(scheme: Scheme, model: Model) -> None:
    assert_bit_exact(model.exported(scheme), Case(model.family, "base", FAMILIES[model.family].base))


def test_a_prefix_is_reused_and_proposals_do_not_show(model: Model) -> None:
    assert_a_prefix_and_proposals_do_not_show(model.exported("int8"))


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


def test_what_a_model_keeps_between_tokens(model: Model) -> None:
    states, caches = KEPT[model.family]
    kv = model.exported("int8").manifest.variants[0].kv
    assert [(state.layer, state.kind, state.window, state.source) for state in kv.states] == states
    assert [(layer.kv_heads, layer.head_dim) for layer in kv.layers] == caches
    assert kv.layers or kv.bytes_per_row == 3 * (64 + 4 * 16 * 16 + 64) * 4
