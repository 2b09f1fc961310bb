"""Changed checkpoints are refused with an error of edgegen's, or exported; a long test tries more of them."""

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgegen.errors import EdgegenError, UnsupportedModelError
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.checkpoint.hostile import Sources, changed_copy, export_arguments, write_sources
from tests.export.checkpoint.layouts import write_gpt2

pytestmark = pytest.mark.graph

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
            export(source, tmp_path / str(n), ExportOptions(scheme="int8", fast=True, adapter=adapter))


@pytest.mark.parametrize(
    "changed", [{"layer_types": ["x"] * 100_000}, {"rope_scaling": {f"k{n}": n for n in range(50_000)}}]
)
def test_an_error_does_not_repeat_a_megabyte(tmp_path: Path, changed: dict[str, Any]) -> None:
    write_gpt2(tmp_path / "gpt2", layout="original")
    config = tmp_path / "gpt2" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changed))
    with pytest.raises(UnsupportedModelError) as raised:
        export(str(tmp_path / "gpt2"), tmp_path / "out", ExportOptions(fast=True))
    assert len(str(raised.value)) < 5000
