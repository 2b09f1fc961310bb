"""The definitions of Python functions are those of transformers' ``get_json_schema``, where both have one."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, Optional, Union, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.chat.tools import function_schema
from edgegen.errors import ConversationError
from tests.oracle import import_transformers

pytestmark = pytest.mark.parity

JSON = dict[str, Any]


def expected(function: Callable[..., Any]) -> JSON:
    """Transformers' definition, with what differs by intent: ``nullable`` is OpenAPI's, not JSON Schema's."""
    definition: JSON = import_transformers().utils.get_json_schema(function)
    definition["function"].pop("return", None)
    definition["function"]["parameters"] = with_null(definition["function"]["parameters"])
    return definition


def with_null(schema: Any) -> Any:
    if isinstance(schema, list):
        return [with_null(entry) for entry in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    fields = {key: with_null(value) for key, value in cast(JSON, schema).items()}
    if fields.pop("nullable", None) is not True:
        return fields
    description = {key: fields.pop(key) for key in [*fields] if key == "description"}
    if fields.keys() == {"type"}:
        given_type: Any = fields["type"]
        types = cast(list[str], given_type) if isinstance(given_type, list) else [str(given_type)]
        return {"type": sorted([*types, "null"]), **description}
    branches = fields["anyOf"] if fields.keys() == {"anyOf"} else [fields]
    return {"anyOf": [*branches, {"type": "null"}], **description}


def simple(a: int, b: float, c: str, d: bool) -> str:
    """Does something.

    Args:
        a: the first
        b: the second
        c: the third
        d: the fourth

    Returns:
        a text
    """
    return f"{a}{b}{c}{d}"


def of_lines(query: str, limit: int = 10) -> list[str]:
    """Searches.

    Looks in many places,
    and in some twice.

    Args:
        query: what to look for,
            over two lines
        limit: how many
            at most

    Raises:
        ValueError: never
    """
    return [query] * limit


def nothing() -> None:
    """Takes nothing."""


def of_types(
    a: list[int],
    b: dict[str, float],
    c: Literal["x", "y"],
    d: Literal[1, "z", None],
    e: int | str,
    f: Optional[str],  # noqa: UP045
    g: list[dict[str, list[bool]]] | None,
    h: Union[int, bool],  # noqa: UP007
    i: tuple[int, str],
    j: Any,
    k: list[Any] | None = None,
) -> None:
    """Of many types.

    Args:
        a: a
        b: b
        c: c
        d: d
        e: e
        f: f
        g: g
        h: h
        i: i
        j: j
        k: k
    """


def of_choices(drink: str, size: int = 1) -> None:
    """Drinks.

    Args:
        drink: what (choices: ["tea", "coffee"])
        size: how much
    """


@pytest.mark.parametrize("function", [simple, of_lines, nothing, of_types, of_choices], ids=lambda f: f.__name__)
def test_functions(function: Callable[..., Any]) -> None:
    assert function_schema(function) == expected(function)


SIMPLE: st.SearchStrategy[Any] = st.sampled_from([int, float, str, bool, dict])
"""Not a bare ``list``, which transformers takes for an object."""
UNIONS = st.tuples(SIMPLE, SIMPLE).map(lambda hints: hints[0] | hints[1])
"""Of simple types: of others, transformers forgets what is in them."""
LITERALS = st.sampled_from([Literal["a", "b"], Literal[1, 2.5, True], Literal["x", 3, None]])
HINTS: st.SearchStrategy[Any] = st.recursive(
    SIMPLE | UNIONS | LITERALS,
    lambda inner: st.one_of(
        inner.map(lambda hint: list[hint]),
        inner.map(lambda hint: dict[str, hint]),
        st.tuples(inner, inner).map(lambda hints: tuple[hints]),
        inner.map(lambda hint: hint | None),
    ),
    max_leaves=4,
)
WORDS = st.text("abc é-,.()", min_size=1, max_size=20).map(str.strip).filter(bool)


@settings(max_examples=150, deadline=None)
@given(hints=st.lists(st.tuples(HINTS, WORDS, st.booleans()), max_size=4), said=WORDS)
def test_signatures(hints: list[tuple[Any, str, bool]], said: str) -> None:
    names = [f"argument_{n}" for n in range(len(hints))]
    described = "".join(f"    {name}: {text}\n" for name, (_, text, _) in zip(names, hints, strict=True))
    function: Any = lambda: None  # noqa: E731
    function.__name__ = "made_up"
    function.__doc__ = f"{said}\n\nArgs:\n{described}" if described else said
    function.__annotations__ = {name: hint for name, (hint, *_) in zip(names, hints, strict=True)}
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=hint,
                default=None if has_default else inspect.Parameter.empty,
            )
            for name, (hint, _, has_default) in zip(names, hints, strict=True)
        ]
    )
    assert function_schema(function) == expected(function)


def test_what_transformers_takes_for_an_object_is_refused() -> None:
    def of_keys(a: dict[int, str]) -> None:
        """Keys of JSON are texts.

        Args:
            a: a
        """

    def of_sets(a: set[int]) -> None:
        """A set is no object.

        Args:
            a: a
        """

    for function in (of_keys, of_sets):
        with pytest.raises(ConversationError, match="parameter a has the type hint"):
            function_schema(function)


def test_choices_that_are_no_list_are_refused() -> None:
    def drink(what: str) -> None:
        """Drinks.

        Args:
            what: it (choices: [tea, coffee])
        """

    with pytest.raises(ConversationError, match=r"parameter what has choices that are no JSON list: \[tea, coffee\]"):
        function_schema(drink)
