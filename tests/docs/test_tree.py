"""The tree in the README is the tree of the repository, and names in the prose are names in the code."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, ROOT, blocks, code_spans

PACKAGES = ("edgegen", "export/edgegen_export")
UNLISTED = {"__init__.py", "py.typed"}


@pytest.fixture(scope="module")
def listed() -> set[str]:
    """The paths that the tree in the README names."""
    (tree,) = (block for block in blocks(ROOT / "README.md") if block.kind == "tree")
    found: set[str] = set()
    parent = ""
    for line in tree.code.split("\n"):
        match = re.fullmatch(r"( *)([\w./]+) {2,}\S.*", line)
        assert match, f"not 'path  what it is': {line!r}"
        if match[1]:
            found.add(f"{parent}/{match[2].rstrip('/')}")
        else:
            parent = match[2].rstrip("/")
            found.add(parent)
    return found


def test_everything_listed_exists(listed: set[str]) -> None:
    assert [path for path in sorted(listed) if not (ROOT / path).exists()] == []


def test_every_package_file_is_listed_or_in_a_listed_folder(listed: set[str]) -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    missing: list[str] = []
    for path in (file.relative_to(ROOT) for file in files if file.name not in UNLISTED):
        # A package itself is no answer: its files are listed one by one.
        folders = {str(folder) for folder in path.parents} - set(PACKAGES)
        if str(path) not in listed and not folders & listed:
            missing.append(str(path))
    assert missing == []


@pytest.mark.parametrize("path", [*PAGES], ids=lambda path: path.name)
def test_names_in_code_spans_exist(path: Path) -> None:
    """A dotted name is made of words of the sources, a path of a package is there."""
    folders = ("edgegen", "export", "bench", "models")
    sources = [file.read_text("utf-8") for folder in folders for file in (ROOT / folder).rglob("*.py")]
    words = {word for source in sources for word in re.findall(r"\w+", source)}
    invented = {"families/toy.py", "TOY", "toy", "read_toy"} | {"v1", "v2"}
    unknown: list[str] = []
    for span in sorted(code_spans(path) - invented):
        if re.fullmatch(r"(edgegen|export|bench|models)/[\w./]+", span):
            unknown += [] if (ROOT / span).exists() else [span]
        elif re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?", span):
            unknown += [span] if set(re.findall(r"\w+", span)) - words else []
    assert unknown == []
