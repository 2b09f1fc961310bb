"""Levels of a JSON schema: how deep llguidance's calls may nest while it compiles it, references followed.

Its stack overflows from some 1,100 nested arrays on, also where they lie in definitions that refer to one another; that
would end the process.
"""

import math
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast
from urllib.parse import unquote

from edgegen.errors import ConstraintError

MOST_LEVELS = 500
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_OBJECT = ("properties", "patternProperties", "additionalProperties")
_ARRAY = ("items", "prefixItems", "additionalItems")
_NAMES = ("$id", "$anchor", "$dynamicAnchor")


def check_levels(schema: object) -> int:
    """The levels of a parsed schema.

    Raises:
        ConstraintError: more than are allowed.
    """
    if (levels := schema_levels(schema)) > MOST_LEVELS:
        raise ConstraintError(
            f"the JSON schema is too deep: its parts, and the definitions that refer to one another, make {levels:,} "
            f"levels, and {MOST_LEVELS} are allowed: nest less, and have less definitions that go on in others"
        )
    return levels


def schema_levels(schema: object) -> int:
    """The most objects and lists that lie in one another, a definition in what refers to it.

    Each definition is compiled once. Where references run in circles, all that is referred to may lie in one another;
    where they are told by names (``$anchor``, ``$id``), each may lead to a whole schema.
    """
    edges, inside = dict[int, list[int]](), dict[int, list[int]]()
    targets, references, by_name = {id(schema)}, 0, False
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if id(node) in edges:
            continue
        children, referred = [*_containers(node)], [*_referred(node, schema)]
        references += len(referred)
        by_name |= None in referred or (node is not schema and _has_name(node))
        followed = [target for target in referred if target is not None]
        targets.update(map(id, followed))
        inside[id(node)] = [*map(id, children)]
        edges[id(node)] = [*map(id, children), *map(id, followed)]
        waiting += [*children, *followed]
    alone = _longest(inside)
    if by_name:
        return (1 + references) * alone[id(schema)]
    try:
        return _longest(edges)[id(schema)]
    except CycleError:
        return sum(alone[target] for target in targets)


def value_levels(schema: object, free: int, most: int) -> int:
    """The most objects and arrays that lie in one another in what a schema describes, up to ``most``.

    What it leaves free counts ``free``; where references lead back to themselves, there are ``most``.
    """
    return _ValueLevels(schema, free).of_value(schema, most)


class _ValueLevels:
    """Levels are infinite where a schema does not say them."""

    def __init__(self, root: object, free: int) -> None:
        self._root, self._free = root, free
        self._known = dict[tuple[int, int], float]()

    def of_value(self, schema: object, most: int) -> int:
        levels = self._of(schema, most) if most else 0
        return min(most, self._free if math.isinf(levels) else int(levels))

    def _of(self, schema: object, most: int) -> float:
        if not isinstance(schema, dict):
            return 0 if schema is False else math.inf
        known, key = self._known, (id(cast(object, schema)), most)
        if key not in known:
            known[key] = most
            known[key] = self._of_keywords(cast(dict[str, Any], schema), most)
        return known[key]

    def _of_keywords(self, schema: dict[str, Any], most: int) -> float:
        """The least of what keywords say, all of which hold."""
        kinds: Any = schema.get("type")
        kinds = cast(Any, kinds) if isinstance(kinds, str | list) else ("object", "array")
        of_objects = self._object(schema, most) if "object" in kinds else 0
        of_arrays = self._array(schema, most) if "array" in kinds else 0
        bounds = [max(of_objects, of_arrays)]
        bounds += [self._of(part, most) for part in _listed(schema, "allOf")]
        for keyword in ("anyOf", "oneOf"):
            bounds += [max(self._of(branch, most) for branch in found)] if (found := _listed(schema, keyword)) else []
        references = [reference for reference in map(schema.get, _REFERENCES) if isinstance(reference, str)]
        bounds += [self._of(target_of(self._root, reference), most) for reference in references]
        values = [[schema["const"]]] if "const" in schema else []
        values += [found] if (found := _listed(schema, "enum")) else []
        return min(bounds + [max(map(_levels_of_value, each)) for each in values])

    def _object(self, schema: dict[str, Any], most: int) -> float:
        if schema.keys().isdisjoint(_OBJECT):
            return math.inf
        inside: list[object] = [schema.get("additionalProperties", True)]
        for keyword in ("properties", "patternProperties"):
            inside += cast(dict[str, Any], named).values() if isinstance(named := schema.get(keyword), dict) else ()
        return 1 + max(self.of_value(value, most - 1) for value in inside)

    def _array(self, schema: dict[str, Any], most: int) -> float:
        if schema.keys().isdisjoint(_ARRAY):
            return math.inf
        items: Any = schema.get("items", True)
        first = [*_listed(schema, "prefixItems"), *_listed(schema, "items")]
        rest: object = schema.get("additionalItems", True) if isinstance(items, list) else items
        return 1 + max(self.of_value(value, most - 1) for value in [*first, rest])


def _levels_of_value(value: object) -> int:
    if not isinstance(value, dict | list):
        return 0
    inside = cast(dict[str, object], value).values() if isinstance(value, dict) else cast(list[object], value)
    return 1 + max(map(_levels_of_value, inside), default=0)


def _listed(schema: dict[str, Any], keyword: str) -> list[object]:
    value: object = schema.get(keyword)
    return cast(list[object], value) if isinstance(value, list) else []


def _longest(edges: dict[int, list[int]]) -> dict[int, int]:
    """By node, how many there are on the longest way from it.

    Raises:
        CycleError: a way comes back.
    """
    longest = dict[int, int]()
    for node in TopologicalSorter(edges).static_order():  # those that it leads to first
        longest[node] = 1 + max((longest[other] for other in edges[node]), default=0)
    return longest


def _containers(node: object) -> Iterator[object]:
    inner = cast(dict[str, object], node).values() if isinstance(node, dict) else cast(list[object], node)
    if isinstance(node, dict | list):
        yield from (value for value in inner if isinstance(value, dict | list))


def _has_name(node: object) -> bool:
    return isinstance(node, dict) and any(isinstance(cast(dict[str, object], node).get(key), str) for key in _NAMES)


def _referred(node: object, root: object) -> Iterator[object]:
    """Yield the targets of an object's references; None for one that is named otherwise than by a path."""
    if isinstance(node, dict):
        for reference in map(cast(dict[str, object], node).get, _REFERENCES):
            if isinstance(reference, str):
                target = target_of(root, reference)
                yield target if isinstance(target, dict | list) else None


def target_of(root: object, reference: str) -> object:
    """Return the target of a reference by a path (``#/…``); None where nothing is there, or it is no path."""
    path = unquote(reference)
    if path == "#":
        return root
    if not path.startswith("#/"):
        return None
    node = root
    for name in path[2:].split("/"):
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = cast(dict[str, object], node).get(name)
        elif isinstance(node, list) and name.isdecimal() and int(name[:9]) < len(cast(list[object], node)):
            node = cast(list[object], node)[int(name[:9])]
        else:
            return None
    return node
