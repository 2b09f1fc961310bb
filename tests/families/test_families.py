"""Every variant of every family: the bundle's logits and greedy ids are those of transformers."""

from pathlib import Path

import numpy as np
import pytest

from edgegen.errors import UnsupportedModelError
from tests.families.cases import CASES, Case
from tests.families.harness import (
    MARGIN,
    TOLERANCE,
    Subject,
    checkpoint_of,
    continuation,
    differences,
    export_case,
    margins,
    subject_of,
)

# GPT-BigCode's module in transformers says so when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")


@pytest.fixture(scope="module", params=[case for case in CASES if not case.refused], ids=str)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(request.param, tmp_path_factory.mktemp("family"))


def test_logits_are_those_of_transformers(subject: Subject) -> None:
    found = differences(subject)
    assert found.greatest <= TOLERANCE, found


def test_greedy_ids_are_those_of_transformers(subject: Subject) -> None:
    found = continuation(subject)
    assert margins(found.expected).min() >= MARGIN, "too near to call: give the case another seed"
    assert found.ids == found.expected.argmax(axis=-1).tolist()
    np.testing.assert_allclose(found.found, found.expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", [case for case in CASES if case.refused], ids=str)
def test_what_cannot_be_exported_is_refused(case: Case, tmp_path: Path) -> None:
    folder = checkpoint_of(case, tmp_path / "checkpoint")
    with pytest.raises(UnsupportedModelError, match=case.refused):
        export_case(case, folder, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
