"""The checker of JSON: it accepts what the ``jsonschema`` library accepts, and says what is wrong with the rest."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.strict_json.check import MOST_PROBLEMS, SchemaCheck
from edgegen.strict_json.schema import (
    BOOLEAN,
    COUNT,
    STRING,
    Schema,
    advised,
    any_of,
    array_of,
    checked_later,
    const,
    enum,
    expecting,
    map_of,
    nullable,
    object_of,
    parameters,
    published,
    ref,
    refused,
    text,
)

NAMES = ["type", "role", "a", "b"]
names = st.sampled_from(NAMES)
plain = st.none() | st.booleans() | st.integers(-3, 5) | st.sampled_from([0.5, -1.5, "", "a", "b", "text", "long text"])
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=8
)
COMPONENTS: dict[str, Schema] = {
    "Block": object_of({"type": const("a"), "a": STRING}),
    "Numbers": array_of({"type": "integer", "minimum": 0, "maximum": 4}, 1, 3),
}
leaves: st.SearchStrategy[Schema] = st.sampled_from(
    [
        {}, STRING, BOOLEAN, COUNT, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2}, const("a"),
        const(1), const(False), enum("a", "b"), enum(0, None, "text"), text(3), {"type": "string", "minLength": 1},
        {"type": "string", "pattern": "^[a-z]+$"}, {"type": ["string", "object", "null"]}, ref("Block"),
        ref("Numbers"), {"type": "object", "maxProperties": 1}, {"type": "object", "propertyNames": {"not": enum("a")}},
        {"type": "array", "prefixItems": [STRING, COUNT], "minItems": 2, "maxItems": 2},
    ]
)  # fmt: skip


def objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    fields = st.dictionaries(names, inner, max_size=3)
    return st.builds(object_of, fields, fields, more=st.booleans())


schemas = st.recursive(
    leaves,
    lambda inner: (
        st.builds(array_of, inner, st.none() | st.integers(0, 2), st.none() | st.integers(1, 3))
        | objects(inner)
        | st.builds(map_of, inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda found: any_of(*found))
        | st.lists(objects(inner), min_size=2, max_size=3).map(lambda found: any_of(*found))
        | inner.filter(lambda schema: "const" not in schema).map(nullable)
    ),
    max_leaves=8,
)


def judge(schema: Schema) -> Any:
    return jsonschema.Draft202012Validator({**schema, "components": {"schemas": COMPONENTS}})


@given(schemas, values)
def test_what_fits_is_what_jsonschema_accepts(schema: Schema, value: Any) -> None:
    problems = SchemaCheck(schema, COMPONENTS).problems(value)
    assert (not problems) == judge(schema).is_valid(value), problems


@given(schemas, values)
def test_a_problem_is_where_something_is_or_is_missing(schema: Schema, value: Any) -> None:
    for problem in SchemaCheck(schema, COMPONENTS).problems(value):
        inner = value
        for key in problem.path[:-1]:
            inner = inner[key]
        if problem.path and " is missing" not in problem.text and problem.path[-1] not in inner:
            assert isinstance(problem.path[-1], int)
            assert problem.path[-1] < len(inner)


TEXT = object_of({"type": const("text"), "text": STRING})
CALL = object_of({"type": const("call"), "id": STRING}, parameters({"input": map_of({})}))
IMAGE = object_of({"type": refused(const("image"), "models read text only")}, more=True)
BLOCK = any_of(TEXT, CALL, IMAGE)
ONE_OF = object_of({"a": STRING}, {"b": STRING}) | {"anyOf": [{"required": ["b"]}], "x-advice": "b is missing too"}


SAID: list[tuple[Schema, Any, list[str]]] = [
    (STRING, 3, ["it: text expected, found 3"]),
    (text(3), "long", ["it: text of at most 3 characters expected, found 'long'"]),
    (COUNT, True, ["it: a whole number of at least 0 expected, found True"]),
    (COUNT, 1.0, ["it: a whole number of at least 0 expected, found 1.0"]),
    (BOOLEAN, "yes", ["it: true or false expected, found 'yes'"]),
    (nullable(enum("low", "high")), "hgh", ["it: low, high expected, found 'hgh' (did you mean 'high'?)"]),
    (any_of(enum("auto"), TEXT), "aut", ["it: auto or an object of type, text expected, found 'aut' (did"]),
    (expecting(STRING, "a name"), None, ["it: a name expected, found None"]),
    (advised(enum(False), "leave it out"), True, ["it: True is not supported: leave it out"]),
    (checked_later(STRING), 3, []),
    (any_of(STRING, TEXT, CALL), 3, ["it: text or an object whose type is text, call expected, found 3"]),
    (any_of(object_of({"a": const("x")}), object_of({"a": const(1)})), 3, ["it: an object whose a is x, 1 expected"]),
    (array_of(STRING, most=1), ["a", "b"], ["it: at most 1, found 2"]),
    (array_of(STRING), ["a", 1, 2], ["[1]: text expected, found 1", "[2]: text expected, found 2"]),
    (BLOCK, {"type": "text", "txt": 1}, ["'txt' is not a parameter of it (did you mean", "text is missing"]),
    (array_of(BLOCK), [{"type": "call", "id": 1, "x": 1}], ["'x' is not a key of [0]", "[0].id: text expected"]),
    (array_of(BLOCK), [{"type": "tex"}], ["[0].type: text, call expected, found 'tex' (did you mean 'text'?)"]),
    (array_of(BLOCK), [{}], ["[0].type is missing: text, call expected"]),
    (array_of(BLOCK), [{"type": "image"}], ["[0].type: 'image' is not supported: models read text only"]),
    (any_of(STRING, array_of(COUNT), array_of(STRING)), ["a", 1], ["[1]: text expected, found 1"]),
    (ONE_OF, {"a": 1}, ["b is missing too", "a: text expected, found 1"]),
    (map_of(text(1)) | {"propertyNames": text(1)}, {"ab": "", "c": "de"}, ["a key of it: text of", "c: text of at"]),
    (object_of({}) | {"x-elsewhere": {"n": "it is 'm' here"}}, {"n": 1}, ["'n' is not a parameter of it: it is"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "said"), SAID)
def test_the_error_of_each_fault(schema: Schema, value: Any, said: list[str]) -> None:
    problems = SchemaCheck(schema, {}, "it").problems(value)
    assert len(problems) == len(said), problems
    for problem, expected in zip(problems, said, strict=True):
        assert problem.text.startswith(expected)


def test_problems_are_not_looked_for_without_end() -> None:
    schema = array_of(object_of({"a": STRING}))
    assert len(SchemaCheck(schema, {}).problems([{"b": 1}] * 100_000)) == MOST_PROBLEMS
    assert len(SchemaCheck(schema, {}).problems([{f"key {n}": 1 for n in range(100_000)}])) == MOST_PROBLEMS


def test_what_is_published_has_no_annotations() -> None:
    assert published(array_of(expecting(BLOCK, "a block"))) == array_of(any_of(TEXT, CALL))
