"""docs/architecture.md has the tree, places, layers and numbers, and names in prose are names in the code."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, ROOT, Block, blocks, code_spans
from tests.test_layout import MOST_ENTRIES, MOST_EXPORTER_ENTRIES, MOST_LAYERS, layers

PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("edgegen", "export/edgegen_export")
UNLISTED = {"__init__.py", "py.typed", "__pycache__"}


@pytest.fixture(scope="module")
def listed() -> list[str]:
    """The paths that the tree names, in order."""
    found: list[str] = []
    parent = ""
    for line in _block("tree").code.split("\n"):
        match = re.fullmatch(r"( *)([\w./]+) {2,}\S.*", line)
        assert match, f"not 'path  what it is': {line!r}"
        if match[1]:
            found.append(f"{parent}/{match[2].rstrip('/')}")
        else:
            parent = match[2].rstrip("/")
            found.append(parent)
    return found


def test_everything_listed_exists(listed: list[str]) -> None:
    assert [path for path in listed if not (ROOT / path).exists()] == []


def test_the_tree_lists_no_file_twice(listed: list[str]) -> None:
    assert sorted(listed) == sorted(set(listed))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_wing_is_listed(package: str, listed: list[str]) -> None:
    entries = {f"{package}/{path.name}" for path in (ROOT / package).iterdir() if path.name not in UNLISTED}
    assert sorted(entries - set(listed)) == []


def test_layers_are_those_of_the_contract() -> None:
    assert _block("layers").code.split("\n") == layers("runtime-layers")


def test_numbers_are_current() -> None:
    """``tests/test_layout.py`` holds the limits."""
    rows = re.findall(r"^\| .* \| ([\d,]+) \| ([\d,]+) \| `.*` \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    limits, stated = ([int(cell.replace(",", "")) for cell in column] for column in zip(*rows, strict=True))
    assert limits == [MOST_ENTRIES, MOST_EXPORTER_ENTRIES, MOST_LAYERS]
    packages = [(ROOT / package).iterdir() for package in ("edgegen", "export/edgegen_export")]
    entries = [len({path.name for path in paths} - {"__pycache__"}) for paths in packages]
    assert stated == [*entries, len(layers("runtime-layers"))]


CHANGED = {
    "a model family",
    "a kind of layer",
    "a kernel",
    "the dtype of a KV cache",
    "a checkpoint format",
    "a tokenizer",
    "a sampling parameter",
    "an API of the server",
    "an option of a request or of the engine",
    "a verb or a flag",
    "the bundle's format",
    "a page of the docs",
    "a test",
}
"""Rows that the table of places has, among others."""


@pytest.fixture(scope="module")
def places() -> dict[str, tuple[str, str]]:
    """The table "Where to change what": for each thing where it is, and where its tests are."""
    part = PAGE.read_text("utf-8").partition("## Where to change what\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    return {what: (where, tests) for what, where, tests in rows[2:]}


def test_the_table_of_places_has_what_is_changed_most(places: dict[str, tuple[str, str]]) -> None:
    assert sorted(CHANGED - places.keys()) == []


def test_places_exist(places: dict[str, tuple[str, str]]) -> None:
    """Each is a path of the repository, linked by its own name; of its tests one lies in ``tests``."""
    wrong: list[str] = []
    for what, (where, tests) in places.items():
        here, there = (re.findall(r"\[`([^`]+)`\]\(\.\./([^)]+)\)", cell) for cell in (where, tests))
        made = re.findall(r"`python ([^`]+)`", where)
        wrong += [f"{what}: {name} leads to {path}" for name, path in (*here, *there) if name != path]
        wrong += [f"{what}: {path}" for path in (*made, *(path for _, path in here)) if not (ROOT / path).exists()]
        wrong += [f"{what}: {path}" for _, path in there if not (path.startswith("tests/") and (ROOT / path).exists())]
        wrong += [f"{what}: no path"] * (not here or not there)
    assert wrong == []


def test_every_api_has_a_place(places: dict[str, tuple[str, str]]) -> None:
    """The folders of the server that read requests of an API."""
    folders = {file.parent.name for file in (ROOT / "edgegen" / "server").glob("*/schema.py")}
    where, _ = places["an API of the server"]
    assert folders
    assert sorted(name for name in folders if f"`edgegen/server/{name}`" not in where) == []


OF_CLIENTS = {
    "ANTHROPIC_AUTH_TOKEN",
    "API_TIMEOUT_MS",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "OPENAI_API_BASE_URL",
    "OPENAI_API_KEY",
    "api_key_name",
    "cache_read_input_tokens",
}
"""Settings of programs that talk to the server, and a field of Anthropic's API."""


@pytest.mark.parametrize("path", [*PAGES], ids=lambda path: path.name)
def test_names_in_code_spans_exist(path: Path) -> None:
    """A dotted name is made of words of the sources, a path of a package is there."""
    words = _words_of_sources()
    invented = {"families/toy.py", "TOY", "toy", "read_toy"} | {"v1", "v2"} | {"answers.jsonl", "answers.jsonl.part"}
    invented |= OF_CLIENTS
    unknown: list[str] = []
    for span in sorted(code_spans(path) - invented):
        if re.fullmatch(r"(edgegen|export|bench|models)/[\w./]+", span):
            unknown += [] if (ROOT / span).exists() else [span]
        elif re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?", span):
            unknown += [span] if set(re.findall(r"\w+", span)) - words else []
    assert unknown == []


@cache
def _words_of_sources() -> frozenset[str]:
    folders = ("edgegen", "export", "bench", "models", "tests")
    sources = [file.read_text("utf-8") for folder in folders for file in (ROOT / folder).rglob("*.py")]
    return frozenset(word for source in sources for word in re.findall(r"\w+", source))


def _block(kind: str) -> Block:
    (block,) = (block for block in blocks(PAGE) if block.kind == kind)
    return block
