"""Changed checkpoints are refused with an error of edgegen's, or exported; a long test tries more of them."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from edgegen.errors import EdgegenError
from edgegen_export.pipeline import export
from tests.export.checkpoint.hostile import Sources, changed_copy, export_arguments, write_sources

TRIES, TOGETHER = 120, 10


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return write_sources(tmp_path_factory.mktemp("sources"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(0, TRIES, TOGETHER))
def test_no_change_ends_in_another_error(sources: Sources, tmp_path: Path, seed: int) -> None:
    root = next(iter(sources)).parent
    for n in range(seed, seed + TOGETHER):
        folder = changed_copy(sources, root / str(n), random.Random(n))
        source, adapter = export_arguments(folder)
        with suppress(EdgegenError):
            export(source, tmp_path / str(n), scheme="int8", fast=True, adapter=adapter)
