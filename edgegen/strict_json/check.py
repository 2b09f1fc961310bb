"""SchemaCheck: everything in a JSON value that does not fit a schema, with place, expectation, find and nearest name.

It knows the keywords that :mod:`edgegen.strict_json.schema` writes. Where a value may be of several kinds, the problems
are those of the kind that it seems to be: by its type, and by the constants among its properties. A whole number is
written without a point: :meth:`SchemaCheck.with_whole_numbers` makes it so before.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from reprlib import repr as shortened
from types import NoneType
from typing import Any, cast

from edgegen.errors import did_you_mean
from edgegen.strict_json.schema import ADVICE, CHECKED_LATER, ELSEWHERE, EXPECTED, REFUSED, Schema

MOST_PROBLEMS = 32
"""More are not looked for: a body has room for a hundred thousand."""

_LARGEST_WHOLE = 2.0**63
"""Floats beyond stay what they are: no count is as large."""

_MOST_NAMED = 6
"""Keys of an expected object that a message names."""

_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "text"),
    "boolean": ((bool,), "true or false"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "array": ((list,), "a list"),
    "object": ((dict,), "an object"),
    "null": ((NoneType,), ""),
}
"""The types of Python that a type of JSON is read as, and its name in errors."""

_LIMITS: Mapping[str, tuple[str, Callable[[Any, Any], bool], str]] = {
    "minimum": ("number", lambda value, least: value >= least, "at least {}"),
    "maximum": ("number", lambda value, most: value <= most, "at most {}"),
    "exclusiveMinimum": ("number", lambda value, bound: value > bound, "more than {}"),
    "exclusiveMaximum": ("number", lambda value, bound: value < bound, "less than {}"),
    "minLength": ("string", lambda value, least: len(value) >= least, "at least {} characters"),
    "maxLength": ("string", lambda value, most: len(value) <= most, "at most {} characters"),
    "pattern": ("string", lambda value, pattern: re.search(pattern, value) is not None, "the form {}"),
    "minItems": ("array", lambda value, least: len(value) >= least, "at least {}"),
    "maxItems": ("array", lambda value, most: len(value) <= most, ""),
    "maxProperties": ("object", lambda value, most: len(value) <= most, "at most {} keys"),
}
"""Keywords by the kind of values that they limit: whether a value is within, and the limit in words."""

_Schemas = Mapping[str, Schema]

Path = tuple[str | int, ...]
"""The keys and indices that lead to a value."""


@dataclass(frozen=True, slots=True)
class Problem:
    """
    Attributes:
        text: one sentence without its full stop.
        unknown: the last of ``path`` is a key that the schema has not.
    """

    path: Path
    text: str
    unknown: bool = False


class SchemaCheck:
    """Checks values of ``schema``.

    Args:
        components: the schemas that references name.
        whole: what errors call a value, such as the path of an API.
    """

    def __init__(self, schema: Schema, components: Mapping[str, Schema], whole: str = "the value") -> None:
        if "$ref" in schema:
            named = components[schema["$ref"].rpartition("/")[2]]
            schema = {**named, **{key: value for key, value in schema.items() if key != "$ref"}}

        def inner(one: Schema) -> SchemaCheck:
            return SchemaCheck(one, components, whole)

        self._values: Sequence[Any] | None = [schema["const"]] if "const" in schema else schema.get("enum")
        names: str | list[str] = schema.get("type", _kinds_of(self._values))
        self._schema = schema
        self._whole = whole
        self._names = [names] if isinstance(names, str) else names
        self._kinds = {kind for name in self._names for kind in _KINDS[name][0]}
        self._limits = [(_LIMITS[key], limit) for key, limit in schema.items() if key in _LIMITS]
        self._properties = {name: inner(one) for name, one in cast(_Schemas, schema.get("properties", {})).items()}
        self._refused = [name for name, one in self._properties.items() if REFUSED in one._schema]
        self._key = inner(schema["propertyNames"]) if "propertyNames" in schema else None
        others: Schema | bool = schema.get("additionalProperties", True)
        self._is_open = others is not False
        self._other = inner(others) if isinstance(others, Mapping) else None
        self._first = [inner(one) for one in schema.get("prefixItems", ())]
        self._items = inner(schema["items"]) if "items" in schema else None
        self._branches = [inner(one) for one in schema.get("anyOf", ())]
        self._tags = self._shared_constants()
        self._by_tag = self._tagged()
        self._is_plain = not schema.keys() - {"type", "description", EXPECTED}

    def problems(self, value: object) -> list[Problem]:
        """Return what does not fit, ``MOST_PROBLEMS`` at most."""
        found = list[Problem]()
        self._check(value, (), found)
        return found[:MOST_PROBLEMS]

    def with_whole_numbers(self, value: object) -> object:
        """``value`` with whole numbers for floats such as 8192.0, wherever the schema asks for whole numbers.

        Clients in languages without a type for them write them so. What the schema leaves free stays as it is.
        """
        kind = type(value)
        if kind is float:
            return self._as_whole(cast(float, value))
        if kind is dict:
            return self._whole_in_object(cast(dict[str, Any], value))
        if kind is list:
            return self._whole_in_list(cast(list[Any], value))
        return value

    def _as_whole(self, value: float) -> float:
        if not value.is_integer() or abs(value) >= _LARGEST_WHOLE:
            return value
        known = self._values is not None and any(type(one) is int and one == value for one in self._values)
        if known or (self._values is None and "integer" in self._names and "number" not in self._names):
            return int(value)
        return next((n for one in self._branches if type(n := one._as_whole(value)) is int), value)

    def _whole_in_object(self, value: dict[str, Any]) -> dict[str, Any]:
        whole = value
        if self._properties or self._other is not None:
            found = {name: self._properties.get(name, self._other) for name in value}
            whole = {name: one if (check := found[name]) is None else check.with_whole_numbers(one)
                    for name, one in value.items()}  # fmt: skip
        for branch in self._branches:
            if dict in branch._kinds:
                whole = branch._whole_in_object(whole)
        return whole

    def _whole_in_list(self, value: list[Any]) -> list[Any]:
        whole, rest = value, self._items
        if (rest is not None or self._first) and set(map(type, value)) != {int}:
            checks = [*self._first[: len(value)], *[rest] * (len(value) - len(self._first))]
            whole = [one if check is None else check.with_whole_numbers(one)
                    for check, one in zip(checks, value, strict=True)]  # fmt: skip
        for branch in self._branches:
            if list in branch._kinds:
                whole = branch._whole_in_list(whole)
        return whole

    def _check(self, value: object, path: Path, problems: list[Problem]) -> None:
        kind = type(value)
        if self._is_plain and kind in self._kinds:  # the most of a large body, and quick
            return
        if CHECKED_LATER in self._schema or len(problems) >= MOST_PROBLEMS:
            return
        if REFUSED in self._schema or not self._fits(value):
            problems.append(self._mismatch(value, path))
            return
        if self._branches:
            self._check_branches(value, path, problems)
        if kind is dict and (self._properties or not self._branches):
            self._check_object(cast(dict[str, Any], value), path, problems)
        elif kind is list and not self._branches:
            self._check_list(cast(list[Any], value), path, problems)

    def _fits(self, value: Any) -> bool:
        """Whether it does, but for what is in it."""
        if type(value) not in self._kinds or (self._values is not None and not _is_among(value, self._values)):
            return False
        if "not" in self._schema and _is_among(value, self._schema["not"]["enum"]):
            return False
        return not self._limits or all(
            within(value, limit) for (kind, within, _), limit in self._limits if type(value) in _KINDS[kind][0]
        )

    def _check_branches(self, value: Any, path: Path, problems: list[Problem]) -> None:
        by_branch = list[list[Problem]]()
        for branch in self._likely(value):
            by_branch.append([])
            branch._check(cast(object, value), path, by_branch[-1])
            if not by_branch[-1]:
                return
        if self._properties:
            problems.append(Problem(path, self._schema[ADVICE]))
        elif by_branch and isinstance(value, dict | list):
            problems += min(by_branch, key=len)
        elif isinstance(value, dict) and (odd := self._odd_tag(cast(dict[str, Any], value))):
            tag = {"enum": self._tags[odd]} | {key: words for key, words in self._schema.items() if key == ADVICE}
            SchemaCheck({"properties": {odd: tag}, "required": [odd]}, {})._check(cast(object, value), path, problems)
        else:
            problems.append(self._mismatch(value, path))

    def _check_object(self, value: dict[str, Any], path: Path, problems: list[Problem]) -> None:
        if not self._is_open and not value.keys() <= self._properties.keys():
            unknown = [name for name in value if name not in self._properties]
            problems += [self._unknown(name, path) for name in unknown[:MOST_PROBLEMS]]
        for name in self._schema.get("required", ()):
            if name not in value:
                expected = f": {self._properties[name]._expected()} expected" if name in self._properties else ""
                problems.append(Problem((*path, name), f"{_place((*path, name))} is missing{expected}"))
        for name, one in value.items():
            if self._key is not None and not self._key._fits(name):
                problems.append(self._key._mismatch(name, path, "a key of "))
            elif (check := self._properties.get(name, self._other)) is not None:
                check._check(one, (*path, name), problems)

    def _check_list(self, value: list[Any], path: Path, problems: list[Problem]) -> None:
        if self._items is not None and self._items._accepts_all_numbers(value):
            return
        for n, one in enumerate(value):
            if check := self._first[n] if n < len(self._first) else self._items:
                check._check(one, (*path, n), problems)
            if len(problems) >= MOST_PROBLEMS:
                break

    def _accepts_all_numbers(self, values: list[Any]) -> bool:
        """Whether these are whole numbers that fit, which there may be millions of; False is no answer."""
        if self._kinds != {int} or self._values is not None or not set(map(type, values)) <= {int}:
            return False
        return not values or all(
            within(n, limit) for (_, within, _), limit in self._limits for n in (min(values), max(values))
        )

    def _shared_constants(self) -> dict[str, list[Any]]:
        """Properties by which branches can be told apart, with the values that they have in any."""
        values = dict[str, list[Any]]()
        for branch in self._branches:
            for name, check in branch._properties.items():
                if check._values is not None:
                    values.setdefault(name, []).append([] if branch._refused else check._values)
        return {
            name: [one for each in found for one in each]
            for name, found in values.items()
            if any(each != found[0] for each in found)
        }

    def _tagged(self) -> "tuple[str, dict[str, list[SchemaCheck]]]":
        """A property that every branch of objects needs, and the branches by its value: the quick way to find them."""
        objects = [branch for branch in self._branches if dict in branch._kinds]
        for name in self._tags:
            tags = [branch._properties[name]._values or () for branch in objects if name in branch._properties]
            if len(tags) == len(objects) and all(name in branch._schema.get("required", ()) for branch in objects):
                words = {word for values in tags for word in values if isinstance(word, str)}
                return name, {
                    word: [branch for branch, values in zip(objects, tags, strict=True) if word in values]
                    for word in words
                }
        return "", {}

    def _likely(self, value: object) -> "list[SchemaCheck]":
        kind, (name, tagged) = type(value), self._by_tag
        if tagged and isinstance(value, dict):
            tag = cast(dict[str, Any], value).get(name)
            if isinstance(tag, str) and tag in tagged:
                return tagged[tag]
        same = [branch for branch in self._branches if kind in branch._kinds]
        return (
            same if len(same) == 1 else [branch for branch in same if branch._may_be(cast(object, value), self._tags)]
        )

    def _may_be(self, value: Any, tags: Mapping[str, Any]) -> bool:
        """Whether a value looks like one of these: by its type, by its ``tags``, or by its first entry."""
        if type(value) not in self._kinds:
            return False
        if type(value) is dict:
            return not any(self._lacks_tag(cast(dict[str, Any], value), name) for name in tags) and all(
                name in value for name in self._refused
            )
        if type(value) is list and value and self._items is not None:
            return self._items._may_be(cast(list[Any], value)[0], {})
        return not self._branches or bool(self._likely(cast(object, value)))

    def _lacks_tag(self, value: Mapping[str, Any], name: str) -> bool:
        check = self._properties.get(name)
        if check is None or check._values is None:
            return False
        return not _is_among(value[name], check._values) if name in value else name in self._schema.get("required", ())

    def _odd_tag(self, value: Mapping[str, Any]) -> str | None:
        """The first of the tags that no branch has as it is here."""
        return next((name for name, values in self._tags.items() if not _is_among(value.get(name), values)), None)

    def _unknown(self, name: str, path: Path) -> Problem:
        elsewhere: Mapping[str, str] = self._schema.get(ELSEWHERE, {})
        hint = f": {elsewhere[name]}" if name in elsewhere else did_you_mean(name, self._properties)
        whole = f"a key of {_place(path)}" if path else f"a parameter of {self._whole}"
        return Problem((*path, name), f"{name!r} is not {whole}{hint}", unknown=True)

    def _mismatch(self, value: Any, path: Path, what: str = "") -> Problem:
        shown, words = shortened(cast(object, value)), self._words()
        advice: str | None = self._schema.get(REFUSED) or self._schema.get(ADVICE)
        near = did_you_mean(value, words) if isinstance(value, str) and value not in words else ""
        most, count = self._schema.get("maxItems", inf), len(cast(list[Any], value)) if isinstance(value, list) else 0
        if advice is not None:
            said = f"{shown} is not supported{near}: {advice}"
        elif count > most:
            said = f"at most {most}, found {count}"
        else:
            said = f"{self._expected()} expected, found {shown}{near}"
        return Problem(path, f"{what}{_place(path) or self._whole}: {said}")

    def _words(self) -> list[str]:
        """The texts that a value may be, where these are few."""
        inner = [word for branch in self._branches for word in branch._words()]
        return [*inner, *(value for value in self._values or () if isinstance(value, str))]

    def _expected(self) -> str:
        """Describe in words what a value may be."""
        if EXPECTED in self._schema:
            return self._schema[EXPECTED]
        if self._values is not None:
            return _listed(self._values)
        if self._branches and not self._properties:
            tagged = [f"an object whose {name} is {_listed(values)}" for name, values in self._tags.items()][:1]
            others = [branch._expected() for branch in self._branches if not (tagged and branch._properties)]
            return " or ".join(dict.fromkeys(filter(None, [*others, *tagged])))
        return " or ".join(filter(None, map(self._in_words, self._names)))

    def _in_words(self, name: str) -> str:
        if name == "object" and 0 < len(self._properties) <= _MOST_NAMED:
            return f"an object of {', '.join(self._properties)}"
        kinds = _KINDS[name][0]
        limits = [
            words.format(limit) for (kind, _, words), limit in self._limits if words and kinds[0] in _KINDS[kind][0]
        ]
        return _KINDS[name][1] + (f" of {' and '.join(limits)}" if limits else "")


def _place(path: Path) -> str:
    """Such as ``input[0].content``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def _listed(values: Sequence[object]) -> str:
    return ", ".join(str(value or repr(value)) for value in values if value is not None)


def _kinds_of(values: Sequence[object] | None) -> list[str]:
    """The kinds of JSON that values are; all where these are not listed."""
    return [name for name, (kinds, _) in _KINDS.items() if values is None or any(type(one) in kinds for one in values)]


def _is_among(value: object, values: Sequence[object]) -> bool:
    """Whether one is the same in JSON, where true is not 1."""
    if type(value) is str:
        return value in values
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)
