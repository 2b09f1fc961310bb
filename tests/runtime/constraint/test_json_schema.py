"""JSON schemas: what is enforced, what is written otherwise, and what is refused by keyword and place."""

import json
import re
from datetime import date, datetime, time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.constraint import JsonSchema
from edgegen.constraint.schema_levels import value_levels
from edgegen.constraint.schema_rules import enforceable
from edgegen.errors import ConstraintError
from tests.runtime.constraint.vocabulary import Vocabulary

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"not": {}, "properties": {"a/b": {"uniqueItems": True}}},
         ("the JSON schema cannot be used: 2 problems:\n  - 'not' at # cannot be enforced\n"
         "  - 'uniqueItems' at #/properties/a~1b cannot be enforced")),
        ({"properties": {"not": {"contains": {}}}},
         "the JSON schema cannot be used: 'contains' at #/properties/not cannot be enforced"),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]},
         ("the JSON schema cannot be used: the branches of 'oneOf' at # may overlap, which cannot be enforced: "
         "tell them apart by a required property with a 'const', or write 'anyOf'")),
        ({"properties": {"a": {"format": "dat"}}},
         "the JSON schema cannot be used: format 'dat' at #/properties/a cannot be enforced: leave it out"),
        ({"properties": {"a": {"pattern": "(ab){100}", "minLength": 5, "maxLength": 100_000}, "b": {"pattern": "c"}}},
         ("the JSON schema cannot be used: the pattern at #/properties/a is too complex beside a bound on the length, "
         "which cannot be enforced: leave out one of the two, or put the length into the pattern")),
        ({"items": {"patternProperties": {"^a": {"type": "string"}, "a$": {"type": "number"}}}},
         ("the JSON schema cannot be used: the names '^a' and 'a$' in 'patternProperties' at #/items may both fit one "
         "property, which cannot be enforced: write expressions that exclude each other")),
        ({"properties": {"a": {"pattern": "(?=a)b"}}},
         ("the JSON schema cannot be used: the pattern '(?=a)b' at #/properties/a cannot be enforced: look-around, "
         "including look-ahead and look-behind, is not supported")),
        ({"patternProperties": {r"(a)\1": {}}, "x-data": {"patternProperties": 5}},
         (r"the JSON schema cannot be used: the pattern '(a)\\1' at # cannot be enforced: "
         "backreferences are not supported")),
        ({"$ref": "http://example.org/a"},
         ("the JSON schema cannot be used: Resource 'http://example.org/a' is not in the schema, "
         "and nothing is fetched: put it in '$defs'")),
        ({"type": "strin"}, "the JSON schema cannot be used: Invalid type: strin"),
        ({"minimum": 2, "maximum": 1, "type": "integer"}, ("the JSON schema cannot be used: nothing satisfies it: "
         "minimum (2) is greater than maximum (1)")),
        ('{"a', "the JSON schema is not JSON: Unterminated string starting at: line 1 column 2 (char 1)"),
        ('{"minimum": NaN}', "the JSON schema is not JSON: NaN is no JSON number"),
        ("3", "a JSON schema is an object, true or false, not int"),
        (False, "the JSON schema is false: nothing satisfies it"),
        ({"const": {"a\x01": 1}}, "this JSON schema cannot be enforced: the control character U+0001 in 'a\\x01' at #"),
        ({"required": ["\x7f"]}, "this JSON schema cannot be enforced: the control character U+007F in '\\x7f' at #"),
        ({"items": {"pattern": "a\\x01"}, "minimum": 2**53 + 1}, ("this JSON schema cannot be enforced: 2 problems:\n"
         "  - a number beyond 2**53 at #\n"
         "  - the control character U+0001 in the pattern 'a\\\\x01' at #/items")),
        ({"minProperties": 2, "required": []}, ("this JSON schema cannot be enforced: "
         "'minProperties' of more than one name that 'required' does not list at #")),
        ({"$ref": "#/enum/0", "enum": [{"type": "string"}]},
         "this JSON schema cannot be enforced: '$ref' to the data '#/enum/0' at #"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused(gpt2: Vocabulary, schema: Any, message: str) -> None:
    with pytest.raises(ConstraintError) as error:
        gpt2.compiler.compile(JsonSchema.of(schema))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (3, "a JSON schema is an object, its text, or a pydantic model, not int"),
        ({"const": float("nan")}, "the JSON schema holds what is not JSON"),
        ({"const": object()}, "the JSON schema holds what is not JSON"),
    ],
)
def test_what_is_no_schema_is_refused(schema: object, message: str) -> None:
    with pytest.raises(ConstraintError, match=re.escape(message)):
        JsonSchema.of(schema)


def test_unknown_whitespace_is_refused() -> None:
    with pytest.raises(ConstraintError, match=r"compact, flexible, any, not 'compct' \(did you mean 'compact'\?\)"):
        JsonSchema("{}", "compct")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("depth", [150, 300, 700, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [('{"items":', "}"), ('{"anyOf":[', "]}")])
def test_deep_schemas_are_refused(gpt2: Vocabulary, depth: int, opening: str, closing: str) -> None:
    with pytest.raises(ConstraintError, match=r"nested too deeply|recursion limit exceeded"):
        gpt2.compiler.compile(JsonSchema(opening * depth + "true" + closing * depth))


def test_deep_values_are_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(ConstraintError, match="nested too deeply"):
        JsonSchema.of(schema)


def test_a_schema_without_end_is_refused(gpt2: Vocabulary) -> None:
    with pytest.raises(ConstraintError, match="no text of it goes on from here"):
        gpt2.compiler.compile(JsonSchema.of({"$ref": "#"}))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"name":"a","age":1}', "compact flexible any"),
        ('{"name": "a", "age": 1}', "flexible any"),
        (json.dumps({"name": "a", "age": 1}, indent=2), "flexible any"),
        (json.dumps({"name": "a", "age": 1}, indent="\t"), "flexible any"),
        ('{\n     "name": "a", "age": 1}', "any"),
        ('{\n\n"name": "a", "age": 1}', "any"),
        ('{ "name": "a", "age": 1 }', "any"),
        ('{"name" : "a" , "age": 1}', "any"),
        ('{"name":  "a", "age": 1}', "any"),
        (' {"name": "a", "age": 1}\n', "any"),
        ('{"age": 1, "name": "a"}', ""),
    ],
)
def test_whitespace(gpt2: Vocabulary, text: str, allowed: str) -> None:
    for whitespace in ("compact", "flexible", "any"):
        constraint = JsonSchema.of(PERSON, whitespace)
        assert gpt2.accepts(constraint, text) == (whitespace in allowed.split()), whitespace


NESTED = {"a": {"b": [{"c": {"d": [[1]]}}]}}


def test_indentation_is_as_deep_as_the_schema(gpt2: Vocabulary) -> None:
    inner: dict[str, Any] = {"type": "integer"}
    for name in ("", "", "d", "c", "", "b", "a"):
        properties = {"type": "object", "properties": {name: inner}}
        inner = properties if name else {"type": "array", "items": inner}
    schema = JsonSchema.of(inner, "flexible")
    assert gpt2.accepts(schema, json.dumps(NESTED, indent=4))
    assert not gpt2.accepts(schema, "{\n" + 29 * " " + '"a":{}}')
    for free in ({}, {"type": "object"}, {"type": ["array", "object"]}):
        assert gpt2.accepts(JsonSchema.of(free, "flexible"), json.dumps({"a": {"b": {"c": {"d": {}}}}}, indent=4))
    recursive = JsonSchema.of({"type": "array", "items": {"$ref": "#"}}, "flexible")
    assert gpt2.accepts(recursive, json.dumps([[[[[[[[[]]]]]]]]], indent=4))


@pytest.mark.parametrize(
    ("schema", "levels"),
    [
        ({"type": "string"}, 0),
        ({"const": {"a": [1]}}, 2),
        ({"enum": [1, [], [[2]]]}, 2),
        ({"type": "array", "prefixItems": [{"type": "null"}], "items": False}, 1),
        ({"type": "array", "items": [{"type": "null"}], "additionalItems": {"type": "array", "items": False}}, 2),
        ({"allOf": [{"type": "object"}, {"type": "object", "additionalProperties": False}]}, 1),
        ({"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "null"}}]}, 1),
        ({"type": "array"}, 3),
        ({"type": "object", "additionalProperties": {"type": "array"}}, 4),
        ({"type": "array", "items": {"$ref": "#"}}, 7),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"type": "string"}}}}, 1),
        (False, 0),
    ],
)
def test_levels_of_what_a_schema_describes(schema: Any, levels: int) -> None:
    assert value_levels(schema, free=3, most=7) == levels


def test_names_cannot_come_back_in_disguise(gpt2: Vocabulary) -> None:
    integer = {"properties": {"a": {"type": "integer"}}, "required": ["a"], "type": "object"}
    named = JsonSchema.of(integer, "flexible", additional_properties=True)
    assert gpt2.accepts(named, '{"a": 1, "b": "x"}')
    for text in (r'{"a": 1, "\u0061": "x"}', '{"a": 1, "a": "x"}', '{"a": "x"}'):
        assert not gpt2.accepts(named, text)
    integers = {"patternProperties": {"^f": {"type": "integer"}}, "type": "object"}
    patterned = JsonSchema.of(integers, "flexible", additional_properties=True)
    assert not gpt2.accepts(patterned, r'{"\u0066": "x"}')


def test_options_in_the_schema_cannot_weaken_it(gpt2: Vocabulary) -> None:
    schema = {"x-guidance": {"lenient": True, "whitespace_pattern": ".*"}, "not": {}}
    with pytest.raises(ConstraintError, match="'not' at #"):
        gpt2.compiler.compile(JsonSchema.of(schema))


def test_branches_behind_references_are_told_apart(gpt2: Vocabulary) -> None:
    branches = {
        kind: {"type": "object", "properties": {"kind": {"const": kind}, "inner": {"$ref": "#"}}, "required": ["kind"]}
        for kind in ("cat", "dog")
    }
    schema = {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": branches}
    assert gpt2.accepts(JsonSchema.of(schema, "flexible"), '{"kind": "cat", "inner": {"kind": "dog"}}')
    assert not gpt2.accepts(JsonSchema.of(schema), '{"kind": "cow"}')


def test_the_given_schema_is_not_changed() -> None:
    schema = {"oneOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"oneOf": [{"$ref": "#/$defs/a"}]}}, "minLength": 2.0}
    before = json.dumps(schema)
    assert enforceable(schema)["minLength"] == 2
    assert json.dumps(schema) == before


def test_equal_schemas_are_compiled_once(gpt2: Vocabulary) -> None:
    assert gpt2.compiler.compile(JsonSchema.of(PERSON)) is gpt2.compiler.compile(JsonSchema(json.dumps(PERSON)))


class Model:
    """Part of a pydantic model that is used."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return PERSON


def test_models_give_their_schema() -> None:
    assert JsonSchema.of(Model) == JsonSchema.of(PERSON)


NUMBERS = st.one_of(st.integers(-30, 30), st.decimals(-30, 30, places=2).map(float), st.sampled_from([1e-9, 2**53]))
TEXTS = st.one_of(
    st.integers(-40, 40).map(str),
    st.decimals(-40, 40, places=3).map(str),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][-+]?[0-9]{1,2})?\Z"),
)


@settings(deadline=None, max_examples=150)
@given(
    schema=st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": NUMBERS,
            "maximum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "multipleOf": st.sampled_from([1, 2, 3, 0.5, 0.25]),
        },
    ),
    texts=st.lists(TEXTS, min_size=20, max_size=20),
)
def test_numbers_that_are_allowed_are_in_range(gpt2: Vocabulary, schema: dict[str, Any], texts: list[str]) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator(schema)
    if any(validator.is_valid(json.loads(text)) for text in texts):
        gpt2.compiler.compile(JsonSchema.of(schema))  # what something satisfies is not refused
    else:
        try:
            gpt2.compiler.compile(JsonSchema.of(schema))
        except ConstraintError:
            return
    for text in texts:
        if gpt2.accepts(JsonSchema.of(schema), text):
            assert validator.is_valid(json.loads(text)), text


@settings(deadline=None, max_examples=100)
@given(
    year=st.sampled_from([0, 1, 4, 100, 400, 1900, 1999, 2000, 2023, 2024, 2100, 9999]) | st.integers(0, 9999),
    month=st.integers(0, 13),
    day=st.integers(0, 32) | st.integers(27, 31),
    second=st.integers(0, 61),
)
def test_dates_are_those_of_the_calendar(gpt2: Vocabulary, year: int, month: int, day: int, second: int) -> None:
    texts = {"date": f"{year:04}-{month:02}-{day:02}", "time": f"23:59:{second:02}Z"}
    texts["date-time"] = f"{texts['date']}T{texts['time']}"
    readers = {"date": date.fromisoformat, "time": time.fromisoformat, "date-time": datetime.fromisoformat}
    for name, text in texts.items():
        try:
            readers[name](text)
        except ValueError:
            valid = False
        else:
            valid = True
        assert gpt2.accepts(JsonSchema.of({"type": "string", "format": name}), f'"{text}"') == valid, text


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        ("^[a-z&&[^b]]$", ["&]", "c]"], ["c", "b"]),  # a class of ECMA-262 holds no classes
        ("^.$", ["a", "é"], ["\n", "\r", "\u2028"]),
        (r"^\S$", ["a"], [" ", "\ufeff"]),
        (r"^[^\s]$", ["a"], [" ", "\ufeff"]),
        (r"^\d\w$", ["1a"], ["١a", "1é"]),
        (r"^[\x00-\x7f]*$", ["", "aZ"], ["é"]),
        (r"^[\x0b ]$", [" "], [""]),
        (r"^\u00e9\x41/$", ["éA/"], ["eA/"]),
        ("a$", ["ba"], ["a\n", "ab"]),
        ("^a|b$", ["ac", "cb"], ["cbc"]),
    ],
)
def test_patterns_are_those_of_ecma_262(gpt2: Vocabulary, pattern: str, right: list[str], wrong: list[str]) -> None:
    constraint = JsonSchema.of({"type": "string", "pattern": pattern})
    assert [t for t in right if not gpt2.accepts(constraint, json.dumps(t, ensure_ascii=False))] == []
    assert [t for t in wrong if gpt2.accepts(constraint, json.dumps(t, ensure_ascii=False))] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "\x01",
        r"a\x01b",
        r"\u0000",
        r"\v",
        r"[\x7f]",
        "[\x01]*",
        r"\x{1}",
        r"\u{7F}",
        r"[\x01\u0001]",
        "[a--b]",
        "[a",
        "[]a]",
        "[^]a]",
        "a(?=b)",
        r"(a)\1",
    ],
)
def test_patterns_that_cannot_be_enforced_are_refused(gpt2: Vocabulary, pattern: str) -> None:
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: True}}):
        with pytest.raises(ConstraintError):
            gpt2.compiler.compile(JsonSchema.of(schema))


ATOMS = st.sampled_from(["a", "b", ".", r"\d", r"\w", r"\s", r"\S", "[ab]", "[^a]", "[a-c&]", r"[\w-]", "(a|b)", "é"])
PATTERNS = st.lists(st.tuples(ATOMS, st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}"])), min_size=1, max_size=4).map(
    lambda parts: "".join(atom + count for atom, count in parts)
)


@settings(deadline=None, max_examples=150)
@given(
    pattern=st.tuples(st.sampled_from(["", "^"]), PATTERNS, st.sampled_from(["", "$", "|^a$"])).map("".join),
    texts=st.lists(st.text("abc1 \n-&é", max_size=5), min_size=10, max_size=10),
)
def test_strings_that_are_allowed_match(gpt2: Vocabulary, pattern: str, texts: list[str]) -> None:
    constraint = JsonSchema.of({"type": "string", "pattern": pattern})
    for text in texts:
        matches = re.search(re.sub(r"\$(?=$|\|)", r"\\Z", pattern), text) is not None
        if gpt2.accepts(constraint, json.dumps(text, ensure_ascii=False)):
            assert matches, text
        elif "é" not in pattern + text:
            assert not matches, text
