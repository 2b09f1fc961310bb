"""Python's private ``re._parser``, on which stop expressions lean, has the shape that ``stop_regex/parser.py`` reads.

Should one of these fail with a new version of Python, ``edgegen/stop_regex/parser.py`` is the only file to adapt.
"""

from importlib import import_module
from typing import Any, cast

import pytest

ADAPT = "re._parser has changed: adapt edgegen/stop_regex/parser.py to this version of Python"


def private_parser() -> Any:
    try:
        return import_module("re._parser")
    except ImportError:
        pytest.fail(ADAPT)


def test_pythons_private_parser_has_what_is_used_of_it() -> None:
    module = private_parser()
    assert callable(getattr(module, "parse", None)), ADAPT
    assert int(module.MAXREPEAT) > 10**6, ADAPT


@pytest.mark.parametrize(
    ("pattern", "shape"),
    [
        ("a", [("LITERAL", 97)]),
        ("[^a]", [("NOT_LITERAL", 97)]),
        (".", [("ANY", None)]),
        ("^", [("AT", "AT_BEGINNING")]),
        (r"\b", [("AT", "AT_BOUNDARY")]),
        ("[a-c]", [("IN", [("RANGE", (97, 99))])]),
        (r"\d", [("IN", [("CATEGORY", "CATEGORY_DIGIT")])]),
    ],
)
def test_its_trees_have_the_known_shape(pattern: str, shape: list[tuple[str, Any]]) -> None:
    tree = private_parser().parse(pattern)
    assert _plain(list(tree)) == shape, ADAPT
    assert len(tree.getwidth()) == 2, ADAPT
    assert isinstance(tree.state.flags, int), ADAPT


@pytest.mark.parametrize(
    ("pattern", "kind", "parts"), [("a*", "MAX_REPEAT", 3), ("a*?", "MIN_REPEAT", 3), ("(a)", "SUBPATTERN", 4)]
)
def test_its_compound_items_have_the_known_parts(pattern: str, kind: str, parts: int) -> None:
    ((name, value),) = list(private_parser().parse(pattern))
    assert (str(name), len(value)) == (kind, parts), ADAPT


def _plain(value: Any) -> Any:
    """Opcodes by their names."""
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in cast(list[Any], value)]
        return items if isinstance(value, list) else tuple(items)
    return value if value is None or type(value) is int else str(value)
