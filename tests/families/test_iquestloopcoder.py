"""IQuest-Coder Loop, which transformers does not have, against its formulas."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UnsupportedModelError
from edgegen_export.families.iquestloopcoder import IQUESTLOOPCODER
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from tests.export.bundles import export_to, runner_of
from tests.families.cases import Case
from tests.families.harness import assert_computes
from tests.families.iquestloopcoder import BASE, VARIANTS, Floats, computed, written
from tests.families.long_prompts import (
    assert_a_prefix_and_proposals_do_not_show,
    assert_greedy_ids,
    assert_rows_are_as_if_alone,
)
from tests.families.test_exactness import assert_bit_exact


@pytest.mark.parametrize("variant", VARIANTS)
def test_iquestloopcoder_computes_its_formulas(variant: str, tmp_path: Path) -> None:
    config, tensors = written(variant, tmp_path / "checkpoint")
    ids: list[int] = np.random.default_rng(0).integers(3, 96, 50).tolist()
    judge = partial(computed, config, tensors)
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    assert judge(ids).std() > 0.5
    assert_computes(runner_of(bundle), judge, ids)


Exported = Callable[[Scheme], Bundle]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Floats]]:
    folder = tmp_path_factory.mktemp("loop") / "checkpoint"
    return folder, *written("base", folder)


@pytest.fixture(scope="module")
def exported(
    model: tuple[Path, dict[str, Any], dict[str, Floats]], tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    @cache
    def made(scheme: Scheme) -> Bundle:
        bundle, report = export(str(model[0]), tmp_path_factory.mktemp("loop") / scheme, scheme=scheme)
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
    assert_bit_exact(exported(scheme), Case("iquestloopcoder", "base", BASE))


def test_a_prefix_is_reused_and_proposals_do_not_show(exported: Exported) -> None:
    assert_a_prefix_and_proposals_do_not_show(exported("int8"))


def test_the_second_pass_keeps_a_window_and_reads_the_first_one(exported: Exported) -> None:
    kv = exported("int8").manifest.variants[0].kv
    assert [(state.layer, state.kind, state.window, state.source) for state in kv.states] == [
        *((i, "growing", None, None) for i in range(3)),
        *(state for i in range(3, 6) for state in ((i, "shared", None, i - 3), (i, "windowed", 12, None))),
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loop_num": 3}, "loop_num = 3: only two passes are supported"),
        ({"loop_num": 1}, "loop_num = 1: only two passes are supported"),
        ({"loop_window_size": 0}, "loop_window_size: must be positive, found 0"),
    ],
)
def test_other_loops_are_refused(changes: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        IQUESTLOOPCODER.read_config({**BASE, **changes})
