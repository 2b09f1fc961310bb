"""An int8 bundle of every family gives the same bits however the work is cut, as docs/performance.md says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.runners import Runner
from edgegen_export.pipeline import export
from tests.export.bundles import decoded, prefilled, runner_of
from tests.families.cases import CASES, Case
from tests.families.harness import Logits, checkpoint_of, tokens

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")

UNRELATED = 0.5
"""No tiny model loses so much by 8 bits; logits that have nothing to do with it would lose several nats."""


def runner(case: Case, folder: Path, **changes: Any) -> Runner[Any]:
    """An int8 bundle of the case, running."""
    changed = replace(case, config={**case.config, **changes})
    bundle, report = export(str(checkpoint_of(changed, folder / "checkpoint")), folder / "bundle", scheme="int8")
    assert report.mean_kl < UNRELATED
    return runner_of(bundle)


def base(family: str) -> Case:
    return next(case for case in CASES if (case.family, case.name) == (family, "base"))


@pytest.mark.parametrize("case", [case for case in CASES if case.name == "base"], ids=str)
def test_every_cut_gives_the_same_bits(case: Case, tmp_path: Path) -> None:
    # The experts' operator adds more than two in an order of its own.
    two = {"num_experts_per_tok": 2} if "num_experts_per_tok" in case.config else {}
    run = runner(case, tmp_path, **two)
    assert_the_graphs_agree(run, case)
    assert_rows_are_alone(run, case)
    ids = tokens(case, 64, seed=1)
    whole = prefilled(run, run.new_cache(), ids, 64)[-1]
    for chunk in (2, 16, 31):
        np.testing.assert_array_equal(prefilled(run, run.new_cache(), ids, chunk)[-1], whole)


def test_wide_heads_differ_in_chunks_only(tmp_path: Path) -> None:
    case = base("gemma3_text")
    run = runner(case, tmp_path, head_dim=256)
    assert_the_graphs_agree(run, case)
    assert_rows_are_alone(run, case)


def test_many_experts_per_token_differ_in_all_but_the_graphs(tmp_path: Path) -> None:
    case = base("olmoe")
    assert_the_graphs_agree(runner(case, tmp_path, num_experts_per_tok=4), case)


def assert_the_graphs_agree(run: Runner[Any], case: Case) -> None:
    """Prefill and decode, over the same tokens after the same past."""
    ids, caches = tokens(case, 80, seed=1), (run.new_cache(), run.new_cache())
    for start, stop in [(0, 50), (50, 51), (51, 80)]:
        prefill = prefilled(run, caches[0], ids[start:stop], stop - start)[-1]
        np.testing.assert_array_equal(prefill, decoded(run, caches[1], ids[start:stop])[-1])


def assert_rows_are_alone(run: Runner[Any], case: Case) -> None:
    """Rows of several lengths, decoded in one batch."""
    prompts = [tokens(case, count, seed=count) for count in (40, 7, 23)]
    steps = np.array([tokens(case, 6, seed=row) for row in range(3)])
    together = run.new_cache()
    for row, prompt in enumerate(prompts):
        run.prefill(together, row, prompt)
    batch: list[Logits] = [run.decode(together, steps[:, k : k + 1])[:, 0].copy() for k in range(6)]
    for row, prompt in enumerate(prompts):
        alone = run.new_cache()
        run.prefill(alone, 0, prompt)
        for k in range(6):
            np.testing.assert_array_equal(decoded(run, alone, [int(steps[row, k])])[0], batch[k][row])
