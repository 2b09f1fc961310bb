"""The log of kinds of bug reports names tests that exist."""

import re

import pytest

from tests.root import ROOT

pytestmark = pytest.mark.unit

TESTS = ROOT / "tests"
ROWS = [row.split(" | ") for row in (TESTS / "REPORTED.md").read_text("utf-8").splitlines() if row.startswith("| ")]


@pytest.mark.parametrize("row", ROWS[1:], ids=lambda row: row[0].removeprefix("| ")[:40])
def test_each_kind_is_held_by_a_test(row: list[str]) -> None:
    assert len(row) == 4
    names = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", row[3])
    assert names
    for path, name in names:
        source = (TESTS / path).read_text("utf-8")
        assert not name or re.search(rf"^\s*(def|class) {name}\b", source, re.MULTILINE), f"{path}::{name}"
