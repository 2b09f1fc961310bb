"""A release's notes: a tag that is the version, with a dated section in the changelog."""

import re
import tomllib
from pathlib import Path

import pytest

import edgegen
from release_notes import ReleaseError, main, notes, version
from tests.root import ROOT

CHANGELOG = (
    "# Changelog\n\n## [0.2.0] - 2026-01-31\n\nTwo.\n\n### Added\n\n- More.\n\n## [0.1.0] - 2025-12-01\n\nOne.\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sources of version 0.2.0."""
    (tmp_path / "edgegen").mkdir()
    (tmp_path / "edgegen" / "__init__.py").write_text('"""Doc."""\n\n__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_the_section_of_the_tag_is_printed(root: Path) -> None:
    assert notes("v0.2.0", root) == "Two.\n\n### Added\n\n- More.\n"


def test_the_version_is_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "edgegen/__init__.py"
    assert version() == edgegen.__version__
    assert f"\n## [{edgegen.__version__}] - " in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("tag", "changelog", "words"),
    [
        ("v0.1.0", CHANGELOG, "the tag v0.1.0 is not v0.2.0, the version in edgegen/__init__.py"),
        ("0.2.0", CHANGELOG, "the tag 0.2.0 is not v0.2.0"),
        ("v0.2.0", "## [0.1.0] - 2025-12-01\n", "CHANGELOG.md has no section '## [0.2.0] - DATE'"),
        ("v0.2.0", CHANGELOG.replace("2026-01-31", "unreleased"), "is dated 'unreleased': give it the day"),
        ("v0.2.0", "## [0.2.0] - 2026-01-31\n\n## [0.1.0] - 2025-12-01\n\nOne.\n", "is empty: say what is new"),
    ],
)
def test_what_is_no_release_is_refused(root: Path, tag: str, changelog: str, words: str) -> None:
    (root / "CHANGELOG.md").write_text(changelog)
    with pytest.raises(ReleaseError, match=re.escape(words)):
        notes(tag, root)


def test_a_tag_of_another_version_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["v9.9.9"]) == 1
    assert capsys.readouterr().err.startswith("error: the tag v9.9.9 is not v")
