"""Fixed states of long texts hold no denormal numbers, with which `LinearAttention` takes 11 times as long."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.export.bundles import export_to, prefilled, runner_of
from tests.families.cases import Case, cases_also
from tests.families.harness import checkpoint_of, tokens

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
]

LENGTH = 2048


@pytest.mark.parametrize("case", cases_also("denormals"), ids=str)
def test_states_of_long_texts_hold_no_denormals(case: Case, tmp_path: Path) -> None:
    case = replace(case, config={**case.config, "max_position_embeddings": LENGTH})
    runner = runner_of(export_to(checkpoint_of(case, tmp_path / "checkpoint"), tmp_path / "bundle"))
    random = tokens(case, LENGTH // 2, seed=1)
    for text in (random * 2, [random[0]] * LENGTH, random + [random[0]] * (LENGTH // 2)):
        cache = runner.new_cache()
        prefilled(runner, cache, text, 256)
        (state,) = (arrays for at, arrays in cache.save(0).states.items() if at == LENGTH)
        values = np.abs(np.concatenate([array.ravel() for array in state]))
        assert values.max() > 0
        assert not ((values > 0) & (values < np.finfo(np.float32).tiny)).any()
