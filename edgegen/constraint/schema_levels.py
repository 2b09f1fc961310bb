"""Levels of a JSON schema: how deep llguidance's calls may nest while it compiles it, references followed.

Its stack overflows from some 1,100 nested arrays on, also where they lie in definitions that refer to one another; that
would end the process.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import cast
from urllib.parse import unquote

from edgegen.errors import ConstraintError

MOST_LEVELS = 500
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
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
    """What the references of an object lead to; None where that is told otherwise than by a path."""
    if isinstance(node, dict):
        for reference in map(cast(dict[str, object], node).get, _REFERENCES):
            if isinstance(reference, str):
                target = _at(root, reference)
                yield target if isinstance(target, dict | list) else None


def _at(root: object, reference: str) -> object:
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
