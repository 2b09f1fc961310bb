"""Docstrings begin with a sentence on what the function does, not with what it raises."""

import ast
import re

import pytest

from tests.root import ROOT

FOLDERS = ("bench", "docs", "edgegen", "examples", "export", "kernels", "models", "packaging", "tests")


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_say_first_what_is_done(folder: str) -> None:
    names = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).rglob("*.py"))]
    assert [place for name in names for place in _begin_with_errors(name, (ROOT / name).read_text("utf-8"))] == []


def test_what_begins_with_errors_is_found() -> None:
    source = 'def f():\n    """\n    Raises:\n        ValueError: always.\n    """\n'
    assert _begin_with_errors("module.py", source) == ["module.py:1"]
    assert _begin_with_errors("module.py", source.replace('"""\n    R', '"""Fail.\n\n    R', 1)) == []


_CANDIDATE = re.compile(r"""["'](?:\s|\\\n)*Raises:""")
"""What a source has that has such a docstring; few have, and only they are parsed."""


def _begin_with_errors(name: str, source: str) -> list[str]:
    if not _CANDIDATE.search(source):
        return []
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    begin = [(node, (ast.get_docstring(node) or "").lstrip()) for node in nodes]
    return [f"{name}:{getattr(node, 'lineno', 1)}" for node, text in begin if text.startswith("Raises:")]
