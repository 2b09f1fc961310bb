"""docs/installing.md: where everything installs, derived by pip's dry run."""

import os
import re
from collections.abc import Sequence

import pytest

from docs.make_installs import (
    BEGIN,
    END,
    PAGE,
    PLATFORMS,
    PYTHONS,
    NoIndexError,
    cell,
    check_index,
    in_page,
    missing,
    table,
    with_dependencies,
)


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in requirements}


class Index:
    """A pip that has no wheels for ``absent``, and says so as pip 23 and later do."""

    def __init__(self, *absent: str) -> None:
        self.absent = absent
        self.asked = list[Sequence[str]]()

    def __call__(self, arguments: Sequence[str]) -> tuple[int, str]:
        self.asked.append(arguments)
        for name in self.absent:
            if name in names([*arguments]):
                return 1, (
                    f"ERROR: Could not find a version that satisfies the requirement {name}>=1.9 (from versions: 0.1)\n"
                    f"ERROR: No matching distribution found for {name}>=1.9\n"
                )
        return 0, ""


class TestDryRun:
    def test_everything_is_there(self) -> None:
        index = Index()
        tags = PLATFORMS["Linux aarch64, glibc 2.28"]
        assert missing(["numpy>=1.26", "click"], tags, "3.12", pip=index) == []
        (asked,) = index.asked
        assert asked[:3] == ["install", "--no-deps", "--dry-run"]
        assert "--only-binary=:all:" in asked
        assert asked[asked.index("--python-version") + 1] == "3.12"
        assert "manylinux_2_28_aarch64" in asked
        assert "manylinux_2_31_aarch64" not in asked

    def test_what_is_missing_is_taken_out_and_the_rest_asked_for(self) -> None:
        index = Index("llguidance", "nh3")
        asked = ["numpy>=1.26", "llguidance>=1.9", "nh3"]
        assert missing(asked, ["any"], "3.11", pip=index) == ["llguidance", "nh3"]
        assert [arguments[-1] for arguments in index.asked] == ["nh3", "nh3", "numpy>=1.26"]

    def test_dependencies_of_dependencies_are_asked_for_once(self) -> None:
        asked = with_dependencies(["tokenizers>=0.21", "tqdm>=4.66", "huggingface_hub>=0.26"])
        found = [re.split(r"[<>=!~]", requirement)[0].lower().replace("_", "-") for requirement in asked]
        assert {"pyyaml", "huggingface-hub", "filelock"} <= set(found)
        assert len(found) == len(set(found))
        assert asked[0] == "tokenizers>=0.21"

    def test_without_an_index_there_is_no_table(self) -> None:
        with pytest.raises(NoIndexError, match="pip finds no click: it reaches no package index"):
            check_index(Index("click"))
        with pytest.raises(NoIndexError, match="no such option"):
            table(lambda arguments: (2, "Usage:\n\nno such option: --dry-run\n"))

    @pytest.mark.slow
    def test_the_table_says_whole_generating_or_what_is_missing(self) -> None:
        rows = table(Index()).splitlines()
        assert rows[2] == "| Linux x86-64, glibc 2.28 | whole | whole | whole | whole |"
        assert "| generating (no llguidance) |" in table(Index("llguidance"))
        assert "| no onnxruntime |" in table(Index("onnxruntime"))


def test_the_page_has_a_row_of_every_platform() -> None:
    text = PAGE.read_text("utf-8")
    rows = text.partition(BEGIN)[2].partition(END)[0].splitlines()
    assert [row.split(" | ")[0].strip("| ") for row in rows[2:]] == [*PLATFORMS]
    assert rows[0].count("Python") == len(PYTHONS)
    assert in_page("\n".join(rows) + "\n", text) == text


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("EDGEGEN_REAL_SYSTEM"), reason="EDGEGEN_REAL_SYSTEM is not set: it takes a minute"
)
def test_a_column_of_the_table_is_what_the_index_says() -> None:
    """That of Python 3.12; the whole takes minutes."""
    try:
        check_index()
    except NoIndexError as error:
        pytest.skip(str(error))
    rows = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()
    column = PYTHONS.index("3.12")
    for row in rows[2:]:
        name, *cells = row.strip("| ").split(" | ")
        assert cells[column] == cell(PLATFORMS[name], "3.12"), f"{name}: run python docs/make_installs.py"
