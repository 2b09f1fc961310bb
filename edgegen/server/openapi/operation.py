"""Operation: one method of one path, as the OpenAPI document describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

Schema = Mapping[str, Any]
"""A JSON Schema of the dialect 2020-12, as OpenAPI 3.1 has them."""

JSON, SSE, TEXT, HTML = "application/json", "text/event-stream", "text/plain", "text/html"

ANYTHING: Schema = {}
STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}


@dataclass(frozen=True, slots=True)
class Operation:
    """
    Attributes:
        summary: one sentence.
        body: the schema of the JSON object that is sent; None where there is none.
        answers: schemas of the answer with status 200, by media type.
        errors: statuses of errors, beside those that every request may be refused with.
        error: the schema of an error's body.
        parameters: of the path and the query, as OpenAPI describes them.
        headers: of the answer, by name, with what they tell.
        open: no key is needed.
    """

    method: Literal["get", "post"]
    path: str
    summary: str
    answers: Mapping[str, Schema]
    _: KW_ONLY
    body: Schema | None = None
    errors: Sequence[int] = ()
    error: Schema = field(default_factory=lambda: ref("Error"))
    parameters: Sequence[Mapping[str, Any]] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    open: bool = False

    @property
    def name(self) -> str:
        """What client generators call it."""
        words = self.path.replace("{", "").replace("}", "").replace(".", "_").strip("/").split("/")
        return "_".join([self.method, *filter(None, words)])


def ref(name: str) -> dict[str, str]:
    """The schema of that name among the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def event(data: str, schema: Schema | None = None) -> dict[str, Any]:
    """A server-sent event; ``schema`` is of the JSON that its data has, unless it is the last one, ``[DONE]``."""
    text: Schema = STRING
    if schema is not None:
        text = any_of(const("[DONE]"), {"type": "string", "contentMediaType": JSON, "contentSchema": schema})
    return object_of({"data": described(text, data)}, {"event": STRING}, more=True)


def const(value: object) -> dict[str, Any]:
    return {"const": value}


def enum(*values: object) -> dict[str, Any]:
    return {"enum": [*values]}


def any_of(*schemas: Schema) -> dict[str, Any]:
    return {"anyOf": [*schemas]}


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
    described = {name: schema[name] for name in ("description",) if name in schema}
    return {"anyOf": [schema, {"type": "null"}], **described}


def described(schema: Schema, text: str) -> dict[str, Any]:
    return {**schema, "description": text}


def parameters(given: Mapping[str, Schema]) -> dict[str, Schema]:
    """Parameters that may be left out, or be null, which is the same."""
    return {name: nullable(schema) for name, schema in given.items()}
