"""The docs use the field's terms: words that only this project used are nowhere."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, ROOT, blocks, prose

SCANNED: tuple[str, ...] = ("edgegen", "export", "bench", "models")
"""The folders of sources whose docstrings, comments and messages are scanned like the pages."""

PRIVATE = {
    r"at work": "running",
    r"compan(y|ies)": "the other requests in the batch",
    r"(the|a|its|their|same|shared|common|longest) beginnings?(?! of)|beginnings(?! of)": "prefix",
    r"beg[ia]ns? alike": "prefix caching",
    r"guess(es|ed|ing)?": "propose, proposal",
    r"(its|their|float32|int8|keeps?|kept|past) keys and values|keys and values (take|stay|lie|of a row)": "KV cache",
    r"how (a|the) prompt is cut|how the work (is|was) cut|how it is cut|under any cut|another cut": "chunking",
    r"cannot be right": "invalid arguments",
    r"short cuts?": "bit-exact",
    r"drawn alike": "has its own seed",
    r"climb(s|ed|ing)?": "int4 allocation",
    r"shortfalls?": "warnings",
    r"unfinished": "resume",
    r"faults": "problems, validation errors",
    r"boards?": "system, machine",
    r"who (sits|runs|is) where": "slots",
    r"nobody overtakes|nobody else|somebody (knows|needs|else)": "the noun",
}
"""Words that only this project used, as expressions, and what to write instead."""

PRIVATE_IN_PAGES = {
    r"(?<!those )(?<!lag )behind": "after, before",
    r"(?-i:(is|are) none)": "is not a …, there is no …",
    r"so many": "at most n, the first n",
    r"(?<!supply )chains?": "fused layers, operator fusion",
    r"half attention": "float16 attention",
    r"think(s|ing)? aloud|thoughts": "reasoning",
    r"bytes (per|of) (a )?row|far back a row|rows? (can|may|that begin|has up to)": "sequence",
    r"nobody|somebody": "the noun",
}
"""More of them, to which only pages are held that are written by hand."""

_GENERATED = {"families.md", "options.md"}
"""Pages whose words are those of sources."""


def _compiled(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.])(?:{word})(?![\w-])", re.IGNORECASE)


class _Words:
    """Expressions and what to write instead; ``found`` finds any of them, for most texts have none."""

    def __init__(self, words: dict[str, str]) -> None:
        self.found = _compiled("|".join(words)).search
        self.instead = {_compiled(word): instead for word, instead in words.items()}


_PRIVATE = _Words(PRIVATE)
_PRIVATE_IN_PAGES = _Words(PRIVATE | PRIVATE_IN_PAGES)

_STORIES = {"sample_text.py"}
"""Sources of prose that is data."""


def test_glossary_defines_each_term_once() -> None:
    """A definition is a line of the list that begins with its term in bold."""
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    heads = [head for bold in re.findall(r"^- \*\*(.+?)\*\*", text, re.MULTILINE) for head in bold.lower().split(", ")]
    assert heads
    assert sorted(heads) == sorted(set(heads))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page_has_no_private_words(path: Path) -> None:
    texts = [*prose(path), *((block.line, block.code) for block in blocks(path) if block.kind != "help")]
    assert _private(texts, _PRIVATE if path.name in _GENERATED else _PRIVATE_IN_PAGES) == []


def test_sources_have_no_private_words() -> None:
    files = [file for folder in SCANNED for file in sorted((ROOT / folder).rglob("*.py")) if file.name not in _STORIES]
    found = {str(file): _private(_said(file)) for file in files}
    assert {file: words for file, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "sentence", ["A row at work stays.", "Texts that begin alike", "no short cut", "It guesses ahead"]
)
def test_private_words_are_found(sentence: str) -> None:
    assert _private([(1, sentence)])


@pytest.mark.parametrize("sentence", ["Norms behind attention", "There are none.", "keeps so many bytes", "a chain"])
def test_words_private_to_pages_are_found(sentence: str) -> None:
    assert _private([(1, sentence)], _PRIVATE_IN_PAGES)


@pytest.mark.parametrize("sentence", ["blocks those behind it", "the supply chain", "none of them"])
def test_usual_words_are_not_found(sentence: str) -> None:
    assert not _private([(1, sentence)], _PRIVATE_IN_PAGES)


def test_docstrings_comments_and_messages_are_read(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""At\nwork."""\nraise ValueError(f"{1} the unfinished")  # who climbs\nclimb = 1\n')
    assert len(_private(_said(file))) == 3


def _private(texts: Iterable[tuple[int, str]], words: _Words = _PRIVATE) -> list[str]:
    """The private words in numbered texts, and what to write instead."""
    plain = ((line, re.sub(r"\s+", " ", text)) for line, text in texts)
    return [
        f"{line}: {match[0]!r}: write {instead!r}"
        for line, text in plain
        if words.found(text)
        for expression, instead in words.instead.items()
        for match in expression.finditer(text)
    ]


def _said(file: Path) -> Iterator[tuple[int, str]]:
    """The strings and comments of a source file, with their lines."""
    source = file.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    ends = (line.partition("#")[2] for line in source.split("\n"))  # of comments, and of some strings
    if any(_PRIVATE.found(end) for end in ends):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
