"""Reads ``response_format``, as OpenAI's API has it, as a constraint."""

from collections.abc import Mapping
from typing import Any, cast

from edgegen.constraint.any_json import AnyJson
from edgegen.constraint.constraint import Constraint, Whitespace
from edgegen.constraint.json_schema import JsonSchema
from edgegen.errors import ConstraintError, did_you_mean

_TYPES = ("text", "json_object", "json_schema")


def read_response_format(value: object, whitespace: Whitespace = "flexible") -> Constraint | None:
    """The constraint of a ``response_format``; None for free text.

    Args:
        value: None, a constraint, a pydantic model class, or a mapping as OpenAI's API has it:
            ``{"type": "text"}``, ``{"type": "json_object"}``, or
            ``{"type": "json_schema", "json_schema": {"name": …, "schema": …}}``.

    Raises:
        ConstraintError: it is none of these.
    """
    if value is None:
        return None
    if callable(getattr(value, "source", None)):
        return cast(Constraint, value)
    if callable(getattr(value, "model_json_schema", None)):
        return JsonSchema.of(value, whitespace)
    if not isinstance(value, Mapping):
        raise ConstraintError(
            f"response_format is a mapping with a 'type', a pydantic model or a constraint, not {type(value).__name__}"
        )
    asked = cast(Mapping[str, Any], value)
    match asked.get("type"):
        case "text":
            return None
        case "json_object":
            return AnyJson(whitespace=whitespace)
        case "json_schema":
            inner = asked.get("json_schema")
            if not isinstance(inner, Mapping) or "schema" not in inner:
                raise ConstraintError("response_format 'json_schema' holds the schema at ['json_schema']['schema']")
            return JsonSchema.of(cast(Mapping[str, Any], inner)["schema"], whitespace)
        case other:
            hint = did_you_mean(str(other), _TYPES)
            raise ConstraintError(
                f"response_format's type is {', '.join(_TYPES)}, not {other!r}{hint}; "
                "a schema goes into {'type': 'json_schema', 'json_schema': {'schema': …}}"
            )
