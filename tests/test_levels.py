"""Which level of the test pyramid a test is on."""

from pathlib import PurePosixPath

import pytest

from tests.levels import FOLDERS, LEVELS, MATERIAL, level_of
from tests.root import ROOT

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("path", "marks", "fixtures", "level"),
    [
        ("runtime/engine/test_engine.py", [], [], "unit"),
        ("runtime/engine/test_engine.py", [], ["tmp_path", "int8_bundle"], "graph"),
        ("runtime/engine/test_engine.py", [], ["test_data", "checkpoint"], "golden"),
        ("runtime/engine/test_engine.py", ["parametrize", "parity"], ["int8_bundle"], "parity"),
        ("export/graph/test_blocks.py", [], [], "graph"),
        ("export/graph/test_bundles_against_transformers.py", ["parity"], ["test_data"], "parity"),
        ("cli/test_score.py", [], ["int8_bundle"], "e2e"),
        ("cli/test_systems.py", ["unit"], ["int8_bundle"], "unit"),
        ("server/test_server.py", [], [], None),
    ],
)
def test_mark_material_and_folder_decide_in_this_order(
    path: str, marks: list[str], fixtures: list[str], level: str | None
) -> None:
    assert level_of(PurePosixPath(path), marks, fixtures) == level


def test_the_table_names_what_exists() -> None:
    assert {*FOLDERS.values(), *MATERIAL.values()} <= set(LEVELS)
    assert [path for path in FOLDERS if not (ROOT / "tests" / path).exists()] == []
