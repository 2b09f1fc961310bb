"""Closes the objects of a JSON schema: they get no properties but those that it lists.

What a closed schema accepts, the schema accepts: closing adds conditions and never removes one. Keywords that describe
one object together (``allOf``, ``anyOf``, ``oneOf``, ``$ref`` and what stands beside them) are closed together, around
the names that all of them list; a definition that is used alone and in ``allOf`` is written twice.
"""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from edgegen.constraint.constraint import check_size
from edgegen.constraint.schema_levels import target_of

_EITHER = ("anyOf", "oneOf")
_TOGETHER = ("allOf", *_EITHER)
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_KEPT = (
    *("const", "enum", "default", "examples"),
    *("not", "if", "then", "else", "contains", "dependentSchemas", "dependencies"),
)
"""Keywords whose values stay as they are: data, and conditions that must not become stricter."""
_SAYS_MORE = (
    *("additionalProperties", "unevaluatedProperties", "const", "enum"),
    *("not", "if", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"),
)
"""Keywords beside which an object stays as the schema has it."""
_DEFINITIONS = ("$defs", "definitions")
_NAMES = ("$id", "$anchor", "$dynamicAnchor")
_REFERENCE_ALONE = re.compile(r"draft-0[3-7]\b")
"""Drafts in which nothing counts that stands beside ``$ref``."""

Schema = dict[str, Any]


def closed(schema: Schema) -> Schema:
    """A copy of ``schema`` whose objects have only the properties that it lists.

    An object is closed where the schema lists names in ``properties`` or ``patternProperties``; names that only
    ``required`` has are listed too. It stays open beside ``additionalProperties`` or ``unevaluatedProperties``, where
    ``minProperties`` asks for more names than are listed, and where references lead by ``$anchor`` or ``$id`` into an
    object that other keywords describe too.
    """
    try:
        return _Closer(schema).closed()
    except _ByNameError:
        return schema


class _ByNameError(Exception):
    """The target of a reference is named otherwise than by a path, beside other keywords."""


@dataclass(frozen=True)
class _Said:
    """Properties of one object, as keywords have them.

    Attributes:
        names: those of ``properties``, in order.
        required: those of ``required``.
        lists: whether ``properties`` or ``patternProperties`` is there.
        open: whether it is to stay as it is.
    """

    names: dict[str, None] = field(default_factory=dict[str, None])
    required: dict[str, None] = field(default_factory=dict[str, None])
    patterns: dict[str, None] = field(default_factory=dict[str, None])
    lists: bool = False
    open: bool = False
    least: float = 0

    def __add__(self, other: "_Said") -> "_Said":
        return _Said(
            self.names | other.names,
            self.required | other.required,
            self.patterns | other.patterns,
            self.lists or other.lists,
            self.open or other.open,
            max(self.least, other.least),
        )

    @property
    def all_names(self) -> dict[str, None]:
        """In the order in which an object has them: those that only ``required`` has come last."""
        return self.names | self.required

    @property
    def can_close(self) -> bool:
        return self.lists and not self.open and (bool(self.patterns) or self.least <= len(self.all_names))

    def lists_beyond(self, other: "_Said") -> bool:
        """Whether some name is not among the other's."""
        return not (self.all_names.keys() <= other.all_names.keys() and self.patterns.keys() <= other.patterns.keys())


_NOTHING = _Said()


class _Closer:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._tree = copy.deepcopy(schema)
        self._open = dict[str, Schema]()
        self._open_names = dict[str, str]()
        self._said_of = dict[str, _Said]()
        self._copied = ""
        self._reference_alone = bool(_REFERENCE_ALONE.search(str(schema.get("$schema"))))
        self._by_name = any(isinstance(part.get("$id"), str) for part in _parts(schema) if part is not schema)

    def closed(self) -> Schema:
        self._value(self._tree)
        if self._open:
            definitions: Any = self._tree.get("$defs", {})
            self._tree["$defs"] = {**definitions, **self._open} if isinstance(definitions, dict) else self._open
        return self._tree

    def _value(self, node: object) -> None:
        """Close what ``node`` describes, all that it holds included."""
        if isinstance(node, dict):
            self._close(cast(Schema, node), _NOTHING)
            self._inside(cast(Schema, node))

    def _inside(self, node: Schema) -> None:
        """Close the values inside of what ``node`` describes."""
        for keyword, value in list(node.items()):
            if keyword in _TOGETHER and isinstance(value, list):
                for child in _schemas_in(cast(list[object], value)):
                    self._inside(child)
            elif keyword in _MAPS and isinstance(value, dict):
                for inner in cast(Schema, value).values():
                    self._value(inner)
            elif keyword not in _KEPT:
                for inner in cast(list[object], value) if isinstance(value, list) else [value]:
                    self._value(inner)

    def _close(self, node: Schema, outside: _Said) -> None:
        """Close the object that ``node`` describes together with what ``outside`` says of it."""
        own, together = self._own(node), self._children(node, "allOf")
        lists = [children for keyword in _EITHER if (children := self._children(node, keyword))]
        says_nothing = own == outside == _NOTHING
        if says_nothing and len(together) + len(lists) + ("$ref" in node) == 1:
            for child in [*together, *(branch for branches in lists for branch in branches)]:
                self._close(child, _NOTHING)
            return
        fixed = self._fixed(node) + outside
        said = [[self._said(branch) for branch in branches] for branches in lists]
        apart = any(one.open or one.lists_beyond(fixed) for branches in said for one in branches)
        names = [sum((_listed(one) for one in branches), _NOTHING) for branches in said]
        self._open_reference(node)
        for child in together:
            self._stay_open(child)
        if apart and not fixed.open:
            for n, branches in enumerate(lists):
                others = sum((one for m, one in enumerate(names) if m != n), _NOTHING)
                for branch in branches:
                    self._close(branch, fixed + others)
            return
        for branch in (branch for branches in lists for branch in branches):
            self._stay_open(branch)
        self._seal(node, fixed)

    def _seal(self, node: Schema, summary: _Said) -> None:
        """Allow the names that are listed, and no other."""
        kinds: Any = node.get("type", "object")
        if (
            not summary.can_close
            or not all(isinstance(node.get(keyword, {}), dict) for keyword in _MAPS)
            or not isinstance(node.get("allOf", []), list)
            or "object" not in (kinds if isinstance(kinds, list) else [kinds])
        ):
            return
        names, patterns = dict.fromkeys(summary.all_names, True), dict.fromkeys(summary.patterns, True)
        seal: Schema = {"properties": names, "patternProperties": patterns, "additionalProperties": False}
        if not patterns:
            del seal["patternProperties"]
        if "$ref" in node and self._reference_alone:
            kept = {key: node[key] for key in ("$schema", "$id", *_DEFINITIONS) if key in node}
            reference = {"$ref": node["$ref"]}
            node.clear()
            node.update(kept, allOf=[reference, seal])
        elif "$ref" in node or not node.keys().isdisjoint(_TOGETHER):
            node["allOf"] = [*node.get("allOf", []), seal]
        else:
            for keyword, listed in seal.items():
                given: Any = node.get(keyword, {})
                # What is given comes first and counts, for objects are written in the schema's order.
                node[keyword] = listed if keyword == "additionalProperties" else {**given, **listed, **given}

    def _stay_open(self, node: Schema) -> None:
        """Let references lead to definitions that are not closed; something else closes this object."""
        self._open_reference(node)
        for keyword in _TOGETHER:
            for child in self._children(node, keyword):
                self._stay_open(child)

    def _open_reference(self, node: Schema) -> None:
        reference: Any = node.get("$ref")
        if not isinstance(reference, str) or not self._referred(reference).lists:
            return
        if reference not in self._open_names:
            target = cast(Schema, self._target(reference))
            named = (*_DEFINITIONS, "$schema", *_NAMES)
            opened = copy.deepcopy({key: value for key, value in target.items() if key not in named})
            self._copied += json.dumps(opened)
            check_size("the JSON schema, with definitions written twice,", self._copied)
            if any(isinstance(part.get(name), str) for part in _parts(opened) for name in _NAMES):
                raise _ByNameError
            self._open_names[reference] = name = self._free_name()
            self._open[name] = opened
            self._stay_open(opened)
            self._inside(opened)
        node["$ref"] = f"#/$defs/{self._open_names[reference]}"

    def _free_name(self) -> str:
        taken: Any = self._schema.get("$defs", {})
        n = len(self._open)
        while f"open-{n}" in taken or f"open-{n}" in self._open:
            n += 1
        return f"open-{n}"

    def _own(self, node: Schema) -> _Said:
        """Return what ``node`` itself states, without its parts."""
        if "$ref" in node and self._reference_alone:
            return _NOTHING
        properties, patterns, required = (node.get(key) for key in ("properties", "patternProperties", "required"))
        least: Any = node.get("minProperties", 0)
        return _Said(
            dict.fromkeys(cast(Schema, properties)) if isinstance(properties, dict) else {},
            dict.fromkeys(_texts(required)),
            dict.fromkeys(cast(Schema, patterns)) if isinstance(patterns, dict) else {},
            isinstance(properties, dict) or isinstance(patterns, dict),
            not node.keys().isdisjoint(_SAYS_MORE),
            least if isinstance(least, int | float) else 0,
        )

    def _fixed(self, node: Schema) -> _Said:
        """Return what holds whichever branches are chosen; names in the order of the keywords."""
        summary = _NOTHING
        for keyword in node:
            if keyword == "properties":
                summary += self._own(node)
            elif keyword == "allOf":
                summary = sum((self._said(child) for child in self._children(node, keyword)), summary)
            elif keyword == "$ref":
                summary += self._referred(str(node["$ref"]))
        return summary + self._own(node)

    def _said(self, node: Schema) -> _Said:
        """Return what ``node`` states, with the names of all branches."""
        branches = [self._said(branch) for keyword in _EITHER for branch in self._children(node, keyword)]
        return sum(map(_listed, branches), self._fixed(node))

    def _referred(self, reference: str) -> _Said:
        if reference not in self._said_of:
            self._said_of[reference] = _NOTHING  # where references run in a circle
            target = self._target(reference)
            self._said_of[reference] = self._said(cast(Schema, target)) if isinstance(target, dict) else _NOTHING
        return self._said_of[reference]

    def _target(self, reference: str) -> object:
        """The part of the schema that a ``$ref`` points to by a path.

        Raises:
            _ByNameError: it is told otherwise than by a path.
        """
        if self._by_name or (target := target_of(self._schema, reference)) is None:
            raise _ByNameError
        return target

    def _children(self, node: Schema, keyword: str) -> list[Schema]:
        value = node.get(keyword)
        if not isinstance(value, list) or ("$ref" in node and self._reference_alone):
            return []
        return _schemas_in(cast(list[object], value))


def _listed(said: _Said) -> _Said:
    """Of a branch, what may stand beside other branches too."""
    return _Said(said.names | said.required, {}, said.patterns, said.lists, said.open)


def _schemas_in(values: list[object]) -> list[Schema]:
    return [cast(Schema, value) for value in values if isinstance(value, dict)]


def _texts(value: object) -> list[str]:
    return [text for text in cast(list[object], value) if isinstance(text, str)] if isinstance(value, list) else []


def _parts(node: object) -> Iterator[Schema]:
    """Every object in it."""
    if isinstance(node, dict):
        yield cast(Schema, node)
        for value in cast(Schema, node).values():
            yield from _parts(value)
    elif isinstance(node, list):
        for value in cast(list[object], node):
            yield from _parts(value)
