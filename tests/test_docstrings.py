"""Docstrings begin with a noun or a verb: not with what is raised, and not in the middle of a sentence."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.root import ROOT

pytestmark = pytest.mark.unit

FOLDERS = (".ci", "bench", "docs", "edgegen", "examples", "export", "kernels", "models", "packaging", "tests")


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_noun_or_a_verb(folder: str) -> None:
    names = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).rglob("*.py"))]
    read = [name for name in names if "/node_modules/" not in name]
    assert [place for name in read for place in _refused(name, (ROOT / name).read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "begin", ["Raises:\n    ValueError: always.", "What it returns.", "Those of a list.", "So many."]
)
def test_other_beginnings_are_found(begin: str) -> None:
    assert [*_refused("module.py", f'"""{begin}"""\n')] == ["module.py:1"]
    assert [*_refused("module.py", f'def f():\n    """\n    {begin}\n    """\n')] == ["module.py:2"]
    assert [*_refused("module.py", f'class A:\n    x = 1\n    """{begin}"""\n')] == ["module.py:3"]
    assert not [*_refused("module.py", f'"""Fail.\n\n{begin}"""\n')]


@pytest.mark.parametrize("begin", ["Whatever", "Some", "Softmax of x."])
def test_usual_beginnings_are_not_found(begin: str) -> None:
    assert not [*_refused("module.py", f'"""{begin}"""\n')]


_BEGIN = re.compile(r"\s*(?:Raises:|(?:What|Those|So)\b)")
_CANDIDATE = re.compile(r"""["'](?:\s|\\\n)*(?:Raises:|(?:What|Those|So)\b)""")
"""Sign of a source that may have such a docstring; few have, and only they are parsed."""


def _refused(name: str, source: str) -> Iterator[str]:
    """Yield the places of strings that stand alone, as docstrings do, and begin otherwise."""
    if not _CANDIDATE.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if _BEGIN.match(text):
                yield f"{name}:{node.lineno}"
            case _:
                pass
