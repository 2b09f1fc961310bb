"""The public names, with the signatures of what they offer, against the list in public_names.txt.

To change the list: ``python -m tests.runtime.test_public_names > tests/runtime/public_names.txt``.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edgegen

LIST = Path(__file__).with_name("public_names.txt")
ALL: list[str] = vars(edgegen)["__all__"]


def public_names() -> Iterator[str]:
    """A line for each name of ``dir(edgegen)``, and one for each public member of a class."""
    for name in dir(edgegen):
        thing: Any = getattr(edgegen, name)
        if not isinstance(thing, type):
            yield f"{name}: {type(thing).__name__}"
        elif issubclass(thing, BaseException):
            yield f"{name}({', '.join(base.__name__ for base in thing.__bases__)})"
        else:
            yield f"{name}{_signature(thing)}"
            yield from (f"  {line}" for line in sorted(_members(thing)))


def _members(kind: Any) -> Iterator[str]:
    members = dict[str, Any]()
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("edgegen"):
            members |= {**base.__dict__}
    for name, member in members.items():
        if name.startswith("_") or type(member).__name__ == "member_descriptor":  # a slot: in the signature
            continue
        function: Any = getattr(member, "__func__", member)  # of a class method
        yield f"{name}{_signature(function)}" if callable(function) else name


def _signature(function: Any) -> str:
    """Names, kinds and defaults of parameters: annotations are pyright's business."""
    shown = inspect.signature(function)
    bare = [one.replace(annotation=one.empty) for one in shown.parameters.values()]
    return str(shown.replace(parameters=bare, return_annotation=shown.empty))


def test_names_and_signatures_are_those_of_the_list() -> None:
    assert [*public_names()] == LIST.read_text("utf-8").splitlines(), (
        "if the change is meant: python -m tests.runtime.test_public_names > tests/runtime/public_names.txt"
    )


def test_dir_shows_public_names_only() -> None:
    assert dir(edgegen) == sorted({*ALL, "__version__"})


@pytest.mark.parametrize("name", ALL)
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(edgegen, name))


if __name__ == "__main__":
    print(*public_names(), sep="\n")
