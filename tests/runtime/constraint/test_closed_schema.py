"""Closed objects: they have the properties that a schema lists and no others, however its keywords are combined."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.constraint import JsonSchema
from edgegen.constraint.closed_schema import closed
from edgegen.errors import ConstraintError
from tests.runtime.constraint.vocabulary import Vocabulary

INT = {"type": "integer"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def obj(*names: str, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names, INT), **keywords}


def kind(name: str, *names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"k": {"const": name}, **dict.fromkeys(names, INT)}, "required": ["k"]}


BASE = obj("a")
NODE = {"type": "object", "properties": {"v": INT, "next": {"$ref": "#/$defs/node"}}}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (obj("a", "b"), ['{"a": 1, "b": 2}', "{}"], ['{"c": 1}', '{"a": 1, "c": 1}']),
        (obj(), ["{}"], ['{"a": 1}']),  # as a tool without arguments has it
        (obj("a", additionalProperties=True), ['{"a": 1, "c": 1}'], []),
        (obj("a", additionalProperties={"type": "null"}), ['{"a": 1, "c": null}'], ['{"c": 1}']),
        (obj("a", additionalProperties=False), ['{"a": 1}'], ['{"c": 1}']),
        ({"type": "object"}, ['{"c": 1}'], []),
        ({"type": "object", "required": ["a"]}, ['{"a": 1, "c": 1}'], ['{"c": 1}']),
        (obj("a", required=["z"]), ['{"a": 1, "z": []}'], ['{"a": 1}', '{"z": 1, "c": 1}']),
        (obj("a", minProperties=2, required=["a"]), ['{"a": 1, "c": 1}'], ['{"a": 1}']),
        (obj("a", "b", minProperties=1), ['{"b": 1}'], ["{}", '{"c": 1}']),
        (obj("a", enum=[{"a": 1, "c": 2}]), ['{"a": 1, "c": 2}'], []),
        (obj("a", patternProperties={"^x": INT}), ['{"a": 1, "xy": 2}'], ['{"c": 1}', '{"x": null}']),
        ({"type": "object", "patternProperties": {"^x": INT}}, ['{"x": 1}'], ['{"c": 1}']),
        ({"type": "object", "properties": {"a": obj("b")}}, ['{"a": {"b": 1}}'], ['{"a": {"c": 1}}']),
        ({"type": "array", "items": obj("b")}, ['[{"b": 1}, {}]'], ['[{"c": 1}]']),
        (obj("a", additionalProperties=obj("b")), ['{"x": {"b": 1}}'], ['{"x": {"c": 1}}']),
        ({"allOf": [obj("a"), obj("b")]}, ['{"a": 1, "b": 2}'], ['{"c": 1}']),
        (obj("a", allOf=[obj("b"), {"required": ["b"]}]), ['{"a": 1, "b": 2}'], ['{"a": 1}', '{"b": 2, "c": 1}']),
        ({"allOf": [obj("a"), obj("b", additionalProperties=True)]}, ['{"a": 1, "b": 2, "c": 1}'], []),
        ({"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": obj("a")}}, ['{"a": 1}'], ['{"c": 1}']),
        ({"anyOf": [obj("a"), {"type": "null"}]}, ['{"a": 1}', "null"], ['{"c": 1}']),
        ({"anyOf": [obj("a"), obj("b", additionalProperties=INT)]}, ['{"a": 1}', '{"b": 1, "c": 1}'], ['{"c": null}']),
        (
            obj("a", "b", anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
            ['{"a": 1}', '{"b": 1}', '{"a": 1, "b": 1}'],
            ["{}", '{"a": 1, "c": 1}'],
        ),
        (obj("a", anyOf=[obj("b"), obj("c")]), ['{"a": 1, "b": 1}', '{"c": 1}'], ['{"d": 1}', '{"b": 1, "c": 1}']),
        (
            {"anyOf": [{"$ref": "#/$defs/x"}, obj("c")], "properties": {"a": INT}, "$defs": {"x": obj("b")}},
            ['{"b": 1, "a": 1}', '{"c": 1, "a": 1}'],
            ['{"d": 1}', '{"b": 1, "c": 1}'],
        ),
        ({"oneOf": [kind("x", "a"), kind("y", "b")]}, ['{"k": "x", "a": 1}', '{"k": "y"}'], ['{"k": "x", "b": 1}']),
        (
            {"oneOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}], "$defs": {"x": kind("x", "a"), "y": kind("y")}},
            ['{"k": "x", "a": 1}', '{"k": "y"}'],
            ['{"k": "y", "a": 1}'],
        ),
        (
            {
                "type": "object",
                "properties": {"base": {"$ref": "#/$defs/base"}, "more": {"$ref": "#/$defs/more"}},
                "$defs": {"base": BASE, "more": {"allOf": [{"$ref": "#/$defs/base"}, obj("b")]}},
            },
            ['{"base": {"a": 1}, "more": {"a": 1, "b": 2}}'],
            ['{"base": {"b": 1}}', '{"more": {"c": 1}}', '{"base": {"c": 1}}'],
        ),
        (
            {"$ref": "#/$defs/base", "properties": {"b": INT}, "$defs": {"base": BASE}},
            ['{"a": 1, "b": 2}'],
            ['{"c": 1}'],
        ),
        (
            {"$schema": DRAFT_7, "$ref": "#/definitions/base", "properties": {"b": INT}, "definitions": {"base": BASE}},
            ['{"a": 1}'],
            ['{"b": 1}', '{"c": 1}'],
        ),
        (
            {
                "$schema": DRAFT_7,
                "properties": {"a": INT},
                "anyOf": [{"$ref": "#/definitions/x"}, obj("c")],
                "definitions": {"x": obj("b")},
            },
            ['{"a": 1, "b": 2}', '{"a": 1, "c": 2}'],
            ['{"b": 1, "c": 2}', '{"d": 1}'],
        ),
        ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, ['{"v": 1, "next": {"v": 2}}'], ['{"next": {"c": 1}}']),
        (
            {"allOf": [{"$ref": "#/$defs/node"}, obj("x")], "$defs": {"node": NODE}},
            ['{"v": 1, "next": {"v": 2}, "x": 1}'],
            ['{"next": {"x": 1}}', '{"c": 1}'],
        ),
        (
            {"properties": {"a": {"$ref": "#"}}, "type": "object"},
            ['{"a": {"a": {}}}'],
            ['{"a": {"b": {}}}'],
        ),
        (
            {"$ref": "#x", "$defs": {"x": {"$anchor": "x", **obj("a")}}},
            ['{"a": 1}'],
            ['{"c": 1}'],
        ),
        (  # what an anchor leads to is not looked up
            {"allOf": [{"$ref": "#x"}, obj("b")], "$defs": {"x": {"$anchor": "x", **obj("a")}}},
            ['{"a": 1, "b": 1}', '{"a": 1, "b": 1, "c": 1}'],
            ['{"a": null}'],
        ),
    ],
)
def test_objects_have_the_properties_that_are_listed(
    gpt2: Vocabulary, schema: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    validator = pytest.importorskip("jsonschema").validators.validator_for(schema)(schema)
    assert [text for text in right if not validator.is_valid(json.loads(text))] == []
    constraint = JsonSchema.of(schema, "flexible")
    assert [text for text in right if not gpt2.accepts(constraint, text)] == []
    assert [text for text in wrong if gpt2.accepts(constraint, text)] == []


def test_the_switch_opens_all_objects(gpt2: Vocabulary) -> None:
    schema = {"type": "object", "properties": {"a": obj("b")}}
    text = '{"a": {"b": 1, "c": 2}, "d": 3}'
    assert gpt2.accepts(JsonSchema.of(schema, "flexible", additional_properties=True), text)
    assert not gpt2.accepts(JsonSchema.of(schema, "flexible"), text)
    assert JsonSchema.of(schema, "flexible") != JsonSchema.of(schema, "flexible", additional_properties=True)


@pytest.mark.parametrize(
    "branches",
    [
        [obj("a"), obj("b", required=["b"])],
        [{"properties": {"a": obj("x")}, "required": ["a"]}, {"properties": {"a": obj("y", required=["y"])}}],
    ],
)
def test_branches_are_not_told_apart_by_being_closed(gpt2: Vocabulary, branches: list[dict[str, Any]]) -> None:
    """An object that is of both branches is not of exactly one, though it lists only the names of one."""
    for additional in (True, False):
        schema = JsonSchema.of({"type": "object", "oneOf": branches}, additional_properties=additional)
        with pytest.raises(ConstraintError, match="the branches of 'oneOf' at # may overlap"):
            gpt2.compiler.compile(schema)


def test_the_given_schema_is_not_changed() -> None:
    schema = {"allOf": [{"$ref": "#/$defs/x"}, obj("b")], "$defs": {"x": obj("a")}, "properties": {"c": obj("d")}}
    before = json.dumps(schema)
    assert closed(schema) != schema
    assert json.dumps(schema) == before


def test_conditions_that_must_not_become_stricter_stay() -> None:
    schema = obj("a") | {"not": obj("b"), "if": obj("c")} | {"dependentSchemas": {"a": obj("d")}}
    assert closed(schema) == schema


def test_definitions_that_would_be_written_twice_have_a_size() -> None:
    schema: dict[str, Any] = obj(*(f"name {n}" for n in range(8_000)))
    for n in range(8):
        reference = "#" + "/properties/a" * (n + 1)
        schema = {"type": "object", "properties": {"a": schema, "b": {"allOf": [{"$ref": reference}, obj("b")]}}}
    with pytest.raises(ConstraintError, match=r"the JSON schema, with definitions written twice, has .* characters"):
        closed(schema)


LISTS = st.sets(st.sampled_from("abc"), min_size=1).map(lambda names: {"properties": dict.fromkeys(sorted(names), INT)})
REQUIRES = st.sampled_from("abc").map(lambda name: {"properties": {name: INT}, "required": [name]})
PARTS = st.one_of(LISTS, REQUIRES, st.sampled_from([{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}]))
ONE_OF = st.tuples(LISTS, LISTS).map(
    lambda pair: [
        {"properties": {"k": {"const": k}, **part["properties"]}, "required": ["k"]}
        for k, part in zip("xy", pair, strict=True)
    ]
)
TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "d", "k"]), unique=True, max_size=4).map(
        lambda names: json.dumps({name: "x" if name == "k" else 1 for name in names})
    ),
    min_size=15,
    max_size=15,
)


@settings(deadline=None, max_examples=40)
@given(
    parts=st.fixed_dictionaries(
        {"properties": LISTS.map(lambda part: part["properties"])},
        optional={"allOf": st.lists(PARTS, min_size=1, max_size=2), "oneOf": ONE_OF, "$ref": st.just("#/$defs/y")},
    ),
    branches=st.lists(PARTS, max_size=2),
    texts=TEXTS,
)
def test_closed_schemas_against_unevaluated_properties(
    gpt2: Vocabulary, parts: dict[str, Any], branches: list[dict[str, Any]], texts: list[str]
) -> None:
    """Texts that validate beside ``unevaluatedProperties: false`` can be generated, others cannot."""
    jsonschema = pytest.importorskip("jsonschema")
    definitions = {"x": obj("a", "b"), "y": {"allOf": [{"$ref": "#/$defs/x"}, obj("c")]}}
    schema = {"type": "object", "$defs": definitions, **parts, **({"anyOf": branches} if branches else {})}
    validator = jsonschema.Draft202012Validator(schema)
    exact = jsonschema.Draft202012Validator(schema | {"unevaluatedProperties": False})
    opened, shut = JsonSchema.of(schema, "flexible", additional_properties=True), JsonSchema.of(schema, "flexible")
    for text in texts:
        value = json.loads(text)
        if gpt2.accepts(shut, text):
            assert validator.is_valid(value), text
            assert "d" not in value, text
        elif not branches and exact.is_valid(value):  # of several branches that fit, one gives the names
            assert not gpt2.accepts(opened, text), text  # only the order of the names is wrong
