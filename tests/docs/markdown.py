"""Code blocks, headings and links of a Markdown file, for the tests of the documentation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.root import ROOT

_ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PAGES = [*(ROOT / name for name in _ROOT_PAGES), *sorted((ROOT / "docs").glob("*.md"))]
"""The pages that tests/docs answers for."""

_FENCE = re.compile(r" {0,3}(`{3,})(.*)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"(`+)(.+?)\1")


@dataclass(frozen=True)
class Block:
    """A fenced code block: ``language kind`` stand after its fence, ``line`` is that of its first line of code."""

    path: Path
    line: int
    language: str
    kind: str
    code: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """The fenced code blocks of a page, in order."""
    found: list[Block] = []
    fence, info, begin = "", "", 0
    lines = path.read_text("utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        match = _FENCE.fullmatch(line)
        if match and not fence:
            fence, info, begin = match[1], match[2].strip(), number + 1
        elif match and match[1] == fence and not match[2].strip():
            language, _, kind = info.partition(" ")
            found.append(Block(path, begin, language, kind, "\n".join(lines[begin - 1 : number - 1])))
            fence = ""
    assert not fence, f"{path}: a code block is never closed"
    return found


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a page that stand outside its code blocks."""
    inside = {n for block in blocks(path) for n in range(block.line - 1, block.line + block.code.count("\n") + 2)}
    for number, line in enumerate(path.read_text("utf-8").split("\n"), start=1):
        if number not in inside:
            yield number, line


def code_spans(path: Path) -> set[str]:
    """The texts between backticks in the prose of a page."""
    return {match[2] for _, line in prose(path) for match in _SPAN.finditer(line)}


def links(path: Path) -> Iterator[tuple[int, str]]:
    """Line and target of every inline link."""
    for number, line in prose(path):
        yield from ((number, match[1]) for match in _LINK.finditer(_SPAN.sub("code", line)))


def anchors(path: Path) -> set[str]:
    """The anchors that a forge gives the headings of a page."""
    found: set[str] = set()
    for _, line in prose(path):
        if match := re.match(r"#{1,6} +(.*)", line):
            text = _LINK.sub(lambda link: link[0][1 : link[0].index("]")], match[1])
            slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            repeats = sum(1 for known in found if known == slug or re.fullmatch(re.escape(slug) + r"-\d+", known))
            found.add(f"{slug}-{repeats}" if repeats else slug)
    return found
