"""Rewrites or refuses JSON schemas that llguidance would not enforce exactly.

It refuses itself what it knows that it cannot do. These are the cases in which it would let a text through
that does not validate, found with the JSON-Schema-Test-Suite and by reading.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from edgegen.constraint.pattern import control_character, ecma_pattern
from edgegen.constraint.schema_levels import check_levels
from edgegen.errors import ConstraintError, refuse_any

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose values are schemas by name."""
_DATA = ("const", "enum", "default", "examples")
"""Keywords whose values are data."""
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_YEAR = "^(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
_LEAP_YEAR = "^([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-"
_DAY = f"^[0-9]{{4}}-(02-([01][0-9]|2[0-8])|0[13-9]|1[0-2])|{_LEAP_YEAR}02-29"
_SECOND = "[0-9]{2}:[0-9]{2}:[0-5]"
_STRICTER = {"date": (_YEAR, _DAY), "date-time": (_YEAR, _DAY, f"^.{{11}}{_SECOND}"), "time": (f"^{_SECOND}",)}
"""Formats, and patterns beside them: llguidance lets February 29 come every year, and the sixtieth second in
every minute."""
_EXACT = 2**53
"""Whole numbers beyond are rounded."""

Schema = dict[str, Any]


def enforceable(schema: object) -> Schema:
    """A copy of ``schema`` of which llguidance lets through only what validates.

    Raises:
        ConstraintError: it is no schema, nothing satisfies it, or parts of it cannot be enforced; all of these
            are listed.
    """
    if schema is False:
        raise ConstraintError("the JSON schema is false: nothing satisfies it")
    if schema is not True and not isinstance(schema, dict):
        raise ConstraintError(f"a JSON schema is an object, true or false, not {type(schema).__name__}")
    root: Schema = {} if schema is True else copy.deepcopy(cast(Schema, schema))
    check_levels(root)
    root.pop("x-guidance", None)  # llguidance takes its own options from there
    parts = list(_schemas(root, "#"))
    problems = [f"{problem} at {place}" for place, part in parts for problem in _problems(part)]
    refuse_any(problems, ConstraintError, "this JSON schema cannot be enforced: ")
    for _, part in parts:
        _simplify(part)
    plain = copy.deepcopy(root)
    for _, part in parts:
        if isinstance(branches := part.get("oneOf"), list):
            # llguidance tells branches apart by what they say, and does not follow references.
            part["oneOf"] = [_target(branch, plain) for branch in cast(list[object], branches)]
    return root


def places_of(schema: object, keyword: str, value: object = None) -> list[str]:
    """The JSON pointers of schemas with ``keyword``, of any value or of one."""
    return places_where(schema, lambda part: keyword in part and (value is None or part[keyword] == value))


def places_where(schema: object, holds: Callable[[Schema], bool]) -> list[str]:
    """The JSON pointers of those schemas of which it ``holds``."""
    return [place for place, part in _schemas(schema, "#") if holds(part)]


def _schemas(node: object, place: str) -> Iterator[tuple[str, Schema]]:
    """Every object of a schema that may be a schema itself, with its JSON pointer."""
    if isinstance(node, list):
        for index, item in enumerate(cast(list[object], node)):
            yield from _schemas(item, f"{place}/{index}")
    elif isinstance(node, dict):
        part = cast(Schema, node)
        yield place, part
        for keyword, value in part.items():
            if keyword in _DATA:
                continue
            if keyword in _MAPS and isinstance(value, dict):
                for name, inner in cast(Schema, value).items():
                    yield from _schemas(inner, f"{place}/{keyword}/{_escaped(name)}")
            else:
                yield from _schemas(value, f"{place}/{_escaped(keyword)}")


def _problems(part: Schema) -> Iterator[str]:
    texts = [*_texts(part.get("const")), *_texts(part.get("enum"))]
    texts += [text for keyword in ("properties", "required") for text in _names(part.get(keyword))]
    for text in texts:
        if control := control_character(text):
            yield f"the control character {control} in {text!r}"
    for pattern in (part.get("pattern"), *_names(part.get("patternProperties"))):
        if isinstance(pattern, str) and (problem := ecma_pattern(pattern)[1]):
            yield f"{problem} in the pattern {pattern!r}"
    if any(abs(number) > _EXACT for keyword in _BOUNDS for number in _numbers(part.get(keyword))):
        yield "a number beyond 2**53"
    least, required = part.get("minProperties", 0), part.get("required", [])
    # Names that the schema does not list may come twice and count once.
    if isinstance(least, (int, float)) and least > 1 + len(set(_names(required))):
        yield "'minProperties' of more than one name that 'required' does not list"
    if isinstance(reference := part.get("$ref"), str) and re.search(r"/(const|enum|default|examples)(/|$)", reference):
        yield f"'$ref' to the data {reference!r}"


def _simplify(part: Schema) -> None:
    """Write what llguidance refuses or reads otherwise in a form that it accepts."""
    if part.get("uniqueItems") is False:
        del part["uniqueItems"]
    for keyword in _COUNTS:
        if isinstance(part.get(keyword), float) and part[keyword].is_integer():
            part[keyword] = int(part[keyword])
    if (patterns := _STRICTER.get(str(part.get("format")))) and isinstance(part.get("allOf", []), list):
        part["allOf"] = [*part.get("allOf", []), *({"pattern": pattern} for pattern in patterns)]
    if isinstance(part.get("pattern"), str):
        part["pattern"] = ecma_pattern(part["pattern"])[0]
    if isinstance(named := part.get("patternProperties"), dict):
        part["patternProperties"] = {ecma_pattern(p)[0]: value for p, value in cast(Schema, named).items()}


def _target(branch: Any, root: Schema) -> Any:
    """Return the target of a branch that is but a reference into the schema; any other branch as it is."""
    reference = _keywords(branch).get("$ref")
    if not isinstance(reference, str) or len(branch) != 1 or not re.fullmatch(r"#(/[^/~%]+)+", reference):
        return branch
    target = root
    for name in reference[2:].split("/"):
        target = {} if "$id" in target else _keywords(target.get(name))
    return branch if not target or "$id" in target else target


def _keywords(schema: object) -> Schema:
    return cast(Schema, schema) if isinstance(schema, dict) else {}


def _names(value: object) -> list[str]:
    if isinstance(value, (Mapping, list)):
        return [name for name in cast(list[object], value) if isinstance(name, str)]
    return []


def _texts(value: object) -> Iterator[str]:
    """Every string of some data, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in cast(Schema, value).items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast(list[object], value):
            yield from _texts(inner)


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (dict, list)):
        inside = cast(Schema, value).values() if isinstance(value, dict) else cast(list[object], value)
        for inner in inside:
            yield from _numbers(inner)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
