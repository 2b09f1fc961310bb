"""Words of JSON Schema, for the description of a wire that both its document and its checks are made of.

Beside the keywords of the dialect 2020-12 a schema may have annotations, which :func:`published` takes out.
"""

from collections.abc import Mapping
from typing import Any, cast

Schema = Mapping[str, Any]
"""A JSON Schema of the dialect 2020-12, as OpenAPI 3.1 has them."""

ADVICE = "x-advice"
"""Key of the advice for a value that does not fit."""
EXPECTED = "x-expected"
"""Key of a description of the expected value, in better words than those made from the keywords."""
REFUSED = "x-refused"
"""The value is known, and never accepted: why, or what to do."""
CHECKED_LATER = "x-checked-later"
"""Another reader checks the value."""
ELSEWHERE = "x-elsewhere"
"""Keys that belong to something else, each with what it is here."""

ANYTHING: Schema = {}
STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
OBJECT: Schema = {"type": "object"}


def ref(name: str) -> dict[str, str]:
    """The schema of that name among the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def const(value: object) -> dict[str, Any]:
    return {"const": value}


def enum(*values: object) -> dict[str, Any]:
    return {"enum": [*values]}


def any_of(*schemas: Schema) -> dict[str, Any]:
    return {"anyOf": [*schemas]}


def text(most: int) -> dict[str, Any]:
    """The schema of a text of at most ``most`` characters."""
    return {"type": "string", "maxLength": most}


def array_of(items: Schema, least: int | None = None, most: int | None = None) -> dict[str, Any]:
    bounds = {"minItems": least, "maxItems": most}
    return {"type": "array", "items": items} | {name: n for name, n in bounds.items() if n is not None}


def object_of(
    properties: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, *, more: bool = False
) -> dict[str, Any]:
    """An object that has all ``properties``; with ``more``, also others than those that are named."""
    made: dict[str, Any] = {"type": "object", "properties": {**properties, **(optional or {})}}
    if properties:
        made["required"] = [*properties]
    return made if more else made | {"additionalProperties": False}


def map_of(values: Schema) -> dict[str, Any]:
    """An object of any names."""
    return {"type": "object", "additionalProperties": values}


def nullable(schema: Schema) -> dict[str, Any]:
    """``schema``, or null."""
    if schema == ANYTHING:
        return {}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    said = {name: schema[name] for name in ("description", CHECKED_LATER) if name in schema}
    return {"anyOf": [schema, {"type": "null"}], **said}


def parameters(given: Mapping[str, Schema]) -> dict[str, Schema]:
    """Parameters that may be left out, or be null, which is the same."""
    return {name: nullable(schema) for name, schema in given.items()}


def described(schema: Schema, words: str) -> dict[str, Any]:
    return {**schema, "description": words}


def advised(schema: Schema, words: str) -> dict[str, Any]:
    return {**schema, ADVICE: words}


def expecting(schema: Schema, words: str) -> dict[str, Any]:
    return {**schema, EXPECTED: words}


def refused(schema: Schema, words: str) -> dict[str, Any]:
    return {**schema, REFUSED: words}


def checked_later(schema: Schema) -> dict[str, Any]:
    return {**schema, CHECKED_LATER: True}


def published(schema: Any) -> Any:
    """``schema`` without annotations, and without branches of what is refused."""
    if isinstance(schema, list):
        return [published(one) for one in cast(list[Any], schema) if not _is_refused(one)]
    if not isinstance(schema, Mapping):
        return schema
    return {key: published(one) for key, one in cast(Schema, schema).items() if not key.startswith("x-")}


def _is_refused(schema: Any) -> bool:
    properties: Mapping[str, Schema] = cast(Schema, schema).get("properties", {}) if isinstance(schema, Mapping) else {}
    return any(REFUSED in one for one in properties.values())
