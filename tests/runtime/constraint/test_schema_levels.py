"""Schemas whose definitions would have llguidance's calls nest until the stack overflows, which ends the process."""

import json
from typing import Any

import pytest

from edgegen.constraint import Grammar, JsonSchema
from edgegen.constraint.schema_levels import MOST_LEVELS, schema_levels
from edgegen.errors import ConstraintError
from tests.runtime.constraint.vocabulary import Vocabulary

Schema = dict[str, Any]
SAID = r"the JSON schema is too deep: .* make [\d,]+ levels, and 500 are allowed"


def nested(depth: int, inner: Schema) -> Schema:
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return inner


def chain(count: int, depth: int = 0, end: Schema | None = None) -> Schema:
    """Definitions, each of which goes on in the next one."""
    made = {f"a{i}": nested(depth, {"$ref": f"#/$defs/a{i + 1}"}) for i in range(count)}
    return {"$defs": made | {f"a{count}": end or {"type": "string"}}, "$ref": "#/$defs/a0"}


def circle(count: int) -> Schema:
    return chain(count, 1, {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/a0"}]})


def by_anchor(count: int) -> Schema:
    made = {f"a{i}": {"$anchor": f"x{i}", "items": {"$ref": f"#x{i + 1}"}} for i in range(count)}
    return {"$defs": made | {"end": {"$anchor": f"x{count}"}}, "$ref": "#x0"}


def by_id(count: int) -> Schema:
    made = {f"a{i}": {"$id": f"http://a/x{i}", "items": {"$ref": f"x{i + 1}"}} for i in range(count)}
    return {"$id": "http://a/", "$defs": made | {"end": {"$id": f"http://a/x{count}"}}, "$ref": "x0"}


def within(schema: Schema) -> Schema:
    """A schema of its own within another: its paths begin there."""
    return {"properties": {"x": {"$id": "http://b/", **schema}}}


def escaped(count: int) -> Schema:
    return json.loads(json.dumps(chain(count)).replace("#/$defs/a", "#/%24defs/%61"))


DEEP = {
    "a chain": chain(5000),
    "a chain of deep ones": chain(100, 20),
    "a circle": circle(2000),
    "anchors": by_anchor(3000),
    "ids": by_id(3000),
    "one within another": within(chain(3000)),
    "escaped paths": escaped(3000),
}


@pytest.mark.parametrize("schema", DEEP.values(), ids=DEEP)
def test_deep_definitions_are_refused(gpt2: Vocabulary, schema: Schema) -> None:
    with pytest.raises(ConstraintError, match=SAID):
        gpt2.compiler.compile(JsonSchema.of(schema))


@pytest.mark.parametrize("schema", DEEP.values(), ids=DEEP)
def test_those_within_a_grammar_too(gpt2: Vocabulary, schema: Schema) -> None:
    text = json.dumps(schema).replace("$ref", "\\u0024ref")
    with pytest.raises(ConstraintError, match=SAID):
        gpt2.compiler.compile(Grammar(f"start: %json {text}"))


@pytest.mark.parametrize("schema", [chain(240, 0), chain(20, 20), circle(60), by_anchor(20), by_id(20), {}])
def test_schemas_within_the_limit_are_compiled(gpt2: Vocabulary, schema: Schema) -> None:
    assert schema_levels(schema) <= MOST_LEVELS
    gpt2.compiler.compile(JsonSchema.of(schema))


def test_a_definition_counts_where_it_is_referred_to() -> None:
    assert schema_levels({"type": "string"}) == 1
    assert schema_levels(nested(3, {})) == 4
    assert schema_levels({"$defs": {"a": nested(7, {})}}) == 10
    assert schema_levels({"$defs": {"a": nested(7, {})}, "items": nested(4, {"$ref": "#/$defs/a"})}) == 1 + 5 + 8
    assert schema_levels({"items": {"$ref": "#"}}) == 2


def test_complaints_that_quote_a_constraint_are_cut(gpt2: Vocabulary) -> None:
    with pytest.raises(ConstraintError) as raised:
        gpt2.compiler.compile(Grammar("start: /" + 5000 * "(" + "a" + 5000 * ")" + "/"))
    assert len(str(raised.value)) < 2200
