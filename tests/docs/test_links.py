"""Every relative link of every Markdown file leads somewhere, anchors included."""

from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, ROOT, anchors, links

EVERYWHERE = sorted({*PAGES, *(ROOT / "bench").rglob("*.md"), *(ROOT / "models").rglob("*.md")})


@pytest.mark.parametrize("path", EVERYWHERE, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    broken: list[str] = []
    for line, target in links(path):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        found = path.parent / file if file else path
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(f"{path.name}:{line}: {target}")
    assert not broken
