"""docs/index.md and the README lead to every page, and to where pages went."""

import re

import pytest

from tests.docs.markdown import PAGES, ROOT, links

PAGE = ROOT / "docs" / "index.md"


def test_index_lists_every_page() -> None:
    listed = {(PAGE.parent / target.partition("#")[0]).resolve() for _, target in links(PAGE)}
    assert [page.name for page in PAGES if page.parent == PAGE.parent and page not in {*listed, PAGE}] == []


GONE = {"adding-a-component.md", "llama-server.md", "machine.md", "ollama.md"}
"""Pages that became sections of others."""


def test_index_says_where_pages_went() -> None:
    part = PAGE.read_text("utf-8").partition("## Pages that moved\n")[2]
    moved = re.findall(r"^- `([\w-]+\.md)` is now \[.+\]\(([\w-]+\.md)[#)]", part, re.MULTILINE)
    assert {old for old, _ in moved} == GONE
    assert [old for old, new in moved if (PAGE.parent / old).exists() or not (PAGE.parent / new).exists()] == []


@pytest.mark.parametrize("name", ["docs/index.md", "docs/glossary.md", "CONTRIBUTING.md"])
def test_readme_links_to_the_entrances(name: str) -> None:
    assert name in {target for _, target in links(ROOT / "README.md")}


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 200
