"""Every family on a device, as far as its operators are there: attention in float16 changes logits by its rounding."""

from pathlib import Path

import numpy as np
import pytest

from edgegen.errors import DeviceError
from edgegen.model.device import Device
from edgegen.model.loading import open_on_device
from edgegen.options.engine import EngineOptions
from tests.export.bundles import Logits, prefilled
from tests.families.cases import CASES, Case
from tests.families.harness import checkpoint_of, export_case, judged_cases, oracle_of, tokens

HOST = Device("cpu", "CPUExecutionProvider")
ROUNDING = 0.08
"""Root of the mean square that logits change by, in units of how far they spread. Random models round worst; where
experts are chosen, the choice of a single token may change."""

FIRST = list({case.family: case for case in reversed(CASES)}.values())[::-1]
"""A case of each family."""

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")


@pytest.mark.parametrize("case", judged_cases(case for case in FIRST if not case.off_device))
def test_logits_are_transformers(case: Case, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(case, tmp_path / "checkpoint")
    runner = open_on_device(export_case(case, checkpoint, tmp_path / "bundle"), EngineOptions(threads=1), HOST)
    ids = tokens(case, case.length, seed=1)
    expected = oracle_of(case, checkpoint).logits(np.array([ids]))[0]
    cache = runner.new_cache()
    steps = runner.decode(cache, np.array([ids[: case.length // 2]]))[0]
    chunks = prefilled(runner, cache, ids[case.length // 2 :], 1)
    difference: Logits = np.concatenate([steps, chunks]) - expected
    assert np.sqrt(np.mean(difference**2)) < ROUNDING * expected.std()


@pytest.mark.parametrize("case", judged_cases(case for case in FIRST if case.off_device))
def test_a_family_that_cannot_run_there_says_why(case: Case, tmp_path: Path) -> None:
    bundle = export_case(case, checkpoint_of(case, tmp_path / "checkpoint"), tmp_path / "bundle")
    with pytest.raises(DeviceError, match="cannot run on cpu: ") as caught:
        open_on_device(bundle, EngineOptions(threads=1), HOST)
    assert case.off_device in str(caught.value)
