"""Phi-4-mini-flash, which transformers does not have, against its formulas."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UnsupportedModelError
from edgegen_export.families.phi4flash import PHI4FLASH
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import export_to, runner_of
from tests.families.cases import Case
from tests.families.harness import assert_computes
from tests.families.long_prompts import (
    assert_a_prefix_and_proposals_do_not_show,
    assert_greedy_ids,
    assert_rows_are_as_if_alone,
)
from tests.families.phi4flash import BASE, VARIANTS, Floats, computed, written
from tests.families.test_exactness import assert_bit_exact


@pytest.mark.parametrize("variant", VARIANTS)
def test_phi4flash_computes_its_formulas(variant: str, tmp_path: Path) -> None:
    config, tensors = written(variant, tmp_path / "checkpoint")
    ids: list[int] = np.random.default_rng(0).integers(3, 96, 50).tolist()
    judge = partial(computed, config, tensors)
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    assert judge(ids).std() > 0.5
    assert_computes(runner_of(bundle), judge, ids)


Exported = Callable[[Scheme], Bundle]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Floats]]:
    folder = tmp_path_factory.mktemp("flash") / "checkpoint"
    return folder, *written("base", folder)


@pytest.fixture(scope="module")
def exported(
    model: tuple[Path, dict[str, Any], dict[str, Floats]], tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    @cache
    def made(scheme: Scheme) -> Bundle:
        bundle, report = export(str(model[0]), tmp_path_factory.mktemp("flash") / scheme, scheme=scheme)
        assert report.preferred.mean_kl < {"fp32": 1e-6, "int8": 0.05, "int4": 1.0}[scheme]
        return bundle

    return made


def test_prompts_of_many_lengths_get_the_ids_of_the_formulas(
    model: tuple[Path, dict[str, Any], dict[str, Floats]], exported: Exported
) -> None:
    assert_greedy_ids(exported("fp32"), partial(computed, *model[1:]))


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_rows_of_many_lengths_are_as_if_alone(scheme: Scheme, exported: Exported) -> None:
    assert_rows_are_as_if_alone(exported(scheme))


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_quantized_is_bit_exact(scheme: Scheme, exported: Exported) -> None:
    assert_bit_exact(exported(scheme), Case("phi4flash", "base", BASE))


def test_a_prefix_is_reused_and_proposals_do_not_show(exported: Exported) -> None:
    assert_a_prefix_and_proposals_do_not_show(exported("int8"))


def test_the_second_half_reads_what_the_first_has_kept(exported: Exported) -> None:
    kv = exported("int8").manifest.variants[0].kv
    assert [(state.layer, state.kind, state.window, state.source) for state in kv.states] == [
        *((0, "fixed", None, None), (0, "fixed", None, None), (1, "windowed", 12, None)),
        *((2, "fixed", None, None), (2, "fixed", None, None), (3, "windowed", 12, None)),
        *((4, "fixed", None, None), (4, "fixed", None, None), (5, "growing", None, None), (7, "shared", None, 5)),
    ]
    assert [(layer.kv_heads, layer.head_dim) for layer in kv.layers] == [(2, 16)] * 3  # pairs of keys


def test_the_second_half_runs_for_wanted_tokens_alone() -> None:
    assert PHI4FLASH.read_config(BASE).cached_until == 6


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 6}, "num_hidden_layers = 6: a multiple of 4 expected"),
        ({"num_key_value_heads": 1}, "num_key_value_heads = 1: an even number expected"),
        ({"mb_per_layer": 4}, "mb_per_layer = 4: only attention in every other layer is supported"),
        ({"sliding_window": [12] * 8}, "sliding_window: one size expected, in every other layer of the first half"),
        ({"sliding_window": [None, 0, None, 0, *[None] * 4]}, "sliding_window: one size expected"),
        ({"hidden_act": "gelu"}, "hidden_act: recurrent layers are supported with silu only"),
    ],
)
def test_other_models_of_the_type_are_refused(changes: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        PHI4FLASH.read_config({**BASE, **changes})
