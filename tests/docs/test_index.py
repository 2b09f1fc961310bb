"""docs/index.md and the README lead to every page."""

import pytest

from tests.docs.markdown import PAGES, ROOT, links

PAGE = ROOT / "docs" / "index.md"


def test_index_lists_every_page() -> None:
    listed = {(PAGE.parent / target.partition("#")[0]).resolve() for _, target in links(PAGE)}
    assert [page.name for page in PAGES if page.parent == PAGE.parent and page not in {*listed, PAGE}] == []


@pytest.mark.parametrize("name", ["docs/index.md", "docs/glossary.md", "CONTRIBUTING.md"])
def test_readme_links_to_the_entrances(name: str) -> None:
    assert name in {target for _, target in links(ROOT / "README.md")}


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 200
