"""Variants of every family: the bundle's logits and greedy ids are those of transformers.

Of each family the base, and the variants that :func:`~tests.families.harness.sampled` chooses. Each is compared with
its case's first oracle, and each family's first ones with all that know them: the later oracle computes the same as the
first, but names keys and tensors differently. EDGEGEN_EVERY_CASE=1 compares every variant with all, and lets the export
of each compare the bundle with its checkpoint, as otherwise that of a family's base does.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import UnsupportedModelError
from tests.every_case import EVERY
from tests.export.bundles import LITTLE, compared_on
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
    sampled,
    subject_of,
    with_oracles,
)
from tests.second_oracle import judged

# GPT-BigCode's module in transformers says so when it is imported.
pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
]


WRITTEN = with_oracles(sampled(CASES))


def named(written: list[tuple[Case, int]]) -> list[Any]:
    """Parameters of tests: the case, and the version of transformers that writes its checkpoint."""
    return judged(written, lambda one: one[1], lambda one: f"{one[0]}, transformers {one[1]}")


@pytest.fixture(scope="module", params=named([one for one in WRITTEN if not one[0].refused]))
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    (case, oracle), folder = request.param, tmp_path_factory.mktemp("family")
    with compared_on(LITTLE if EVERY or case.name == "base" else None):
        made = subject_of(case, folder, oracle)
    yield made
    shutil.rmtree(folder)  # there are hundreds


def test_logits_are_those_of_transformers(subject: Subject) -> None:
    found = differences(subject)
    assert found.greatest <= TOLERANCE, found


def test_greedy_ids_are_those_of_transformers(subject: Subject) -> None:
    found = continuation(subject)
    assert margins(found.expected).min() >= MARGIN, "too near to call: give the case another seed"
    assert found.ids == found.expected.argmax(axis=-1).tolist()
    np.testing.assert_allclose(found.found, found.expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("written", named([one for one in WRITTEN if one[0].refused]))
def test_what_cannot_be_exported_is_refused(written: tuple[Case, int], tmp_path: Path) -> None:
    case, oracle = written
    folder = checkpoint_of(case, tmp_path / "checkpoint", oracle=oracle)
    with pytest.raises(UnsupportedModelError, match=case.refused):
        export_case(case, folder, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
