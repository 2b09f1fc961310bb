"""Strict JSON: the object in a text (:func:`json_object`), and parsed JSON as a frozen dataclass (:func:`decode`).

An unknown key, a missing one and a value of the wrong type are problems; all of them are listed, each with its path.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from reprlib import repr as shortened
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from edgegen.errors import first_line, suggestions

OPTIONAL = {"optional": True}
"""Metadata of a field that may be absent; a default alone does not make it so."""


def decode(kind: Any, value: Any, path: str, problems: list[str]) -> Any:
    """``value`` (parsed JSON) as ``kind``; what does not fit is appended to ``problems`` with its path."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _decode_object(cast(type, kind), value, path, problems)
    if origin in (Union, UnionType):
        if value is None and NoneType in args:
            return None
        return decode(next(a for a in args if a is not NoneType), value, path, problems)
    if origin is Literal:
        if value not in args:
            problems.append(f"{path}: {value!r} is not one of {', '.join(map(repr, args))}")
    elif origin is tuple and isinstance(value, list):
        return tuple(decode(args[0], v, f"{path}[{i}]", problems) for i, v in enumerate(cast(list[Any], value)))
    elif origin is dict and isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {k: decode(args[1], v, f"{path}.{k}", problems) for k, v in items}
    elif not isinstance(value, origin or kind) or (kind is int and isinstance(value, bool)):
        expected = {tuple: "list", dict: "object"}.get(cast(Any, origin), getattr(kind, "__name__", str(kind)))
        problems.append(f"{path}: {expected} expected, found {type(value).__name__}")
    return value


def _decode_object(kind: type, value: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(value, dict):
        problems.append(f"{path}: object expected, found {type(value).__name__}")
        return None
    raw = cast(Mapping[str, Any], value)
    prefix = f"{path}." if path else ""
    known, required = _fields_of(kind)
    unknown = [key for key in raw if key not in known]
    nearest = suggestions(unknown, [*known])
    problems += [f"{prefix}{key}: unknown key{near}" for key, near in zip(unknown, nearest, strict=True)]
    missing = [key for key in required if key not in raw]
    problems += [f"{prefix}{key}: missing" for key in missing]
    values = {key: decode(known[key], raw[key], prefix + key, problems) for key in known if key in raw}
    return None if missing else kind(**values)


@cache  # a manifest has dozens of objects of a class
def _fields_of(kind: type) -> tuple[Mapping[str, Any], Sequence[str]]:
    """The types of a dataclass's fields, and the names of those that must be there."""
    types = get_type_hints(kind)
    required = [f.name for f in fields(kind) if not f.metadata.get("optional")]
    return {f.name: types[f.name] for f in fields(kind)}, required


def json_object(text: str, problems: list[str]) -> dict[str, Any] | None:
    """The object that ``text`` is; None if it is no object, and ``problems`` says why.

    Raises:
        RecursionError: too many brackets stand in one another.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        problems.append(f"not JSON: {error.msg} at character {error.colno}")
        return None
    except ValueError as error:  # a number of too many digits
        problems.append(f"not JSON: {first_line(error)}")
        return None
    if isinstance(value, dict):
        return cast(dict[str, Any], value)
    problems.append(f"a JSON object expected, found {shortened(value)}")
    return None
