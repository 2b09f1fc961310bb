"""GGUF files of the mixtures of experts of 2025: the same model as the checkpoint they were written from."""

from pathlib import Path

import numpy as np
import pytest

from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families import FAMILIES
from tests.export.bundles import decoded, export_to, random_ids, runner_of
from tests.export.checkpoint.gguf_steps_of_experts import FAMILIES_OF_EXPERTS
from tests.export.checkpoint.test_gguf_hybrids import written
from tests.families.cases import CASES, Case

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that write the files


def _is_said(case: Case) -> bool:
    family = FAMILIES_OF_EXPERTS.get(case.family)
    return family is not None and not case.refused and not any(name in case.name for name in family.left)


SAID = [case for case in CASES if _is_said(case)]
BASES = [case for case in SAID if case.name == "base"]


@pytest.mark.parametrize("case", SAID, ids=str)
def test_it_is_the_checkpoint_that_was_written(case: Case, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(str(written(case, tmp_path, FAMILIES_OF_EXPERTS[case.family])))
    original = Checkpoint.open(str(tmp_path / "checkpoint"))
    theirs, ours = (find_architecture(it.config, FAMILIES).read_config(it.config) for it in (original, checkpoint))
    assert ours == theirs
    assert set(checkpoint.tensors) == set(original.tensors)
    for name, tensor in checkpoint.tensors.items():
        np.testing.assert_array_equal(tensor.read(), original.tensors[name].read(), err_msg=name)


@pytest.mark.parametrize("case", BASES, ids=str)
def test_it_computes_what_the_checkpoint_computes(case: Case, tmp_path: Path) -> None:
    of_file = export_to(written(case, tmp_path, FAMILIES_OF_EXPERTS[case.family]), tmp_path / "of_file")
    of_folder = export_to(tmp_path / "checkpoint", tmp_path / "of_folder")
    ids = random_ids(of_folder, 12)
    found, expected = (
        decoded(runner, runner.new_cache(), ids) for runner in (runner_of(of_file), runner_of(of_folder))
    )
    assert np.abs(expected).max() > 0.01
    np.testing.assert_array_equal(found, expected)
