"""Constraint: the interface of every output constraint."""

from typing import Literal, Protocol, get_args

from edgegen.errors import ConstraintError, did_you_mean

Whitespace = Literal["compact", "flexible", "any"]
"""Space between the tokens of JSON.

``compact``: none. ``flexible``: one space, or a line break and at most 20 spaces or tabs of indentation, and
nothing around the whole, so that a model cannot go on with space forever. ``any``: all that JSON allows,
around the whole too.
"""

_MOST_CHARACTERS = 1_000_000
"""Of a grammar, or of a JSON schema: compiling takes seconds for each million."""

SPACE: dict[Whitespace, str] = {"compact": "", "flexible": r"( |\n[ \t]{0,20})", "any": r"[ \t\n\r]+"}
"""Regular expression of the space that may stand in one place; empty where none may."""


class Constraint(Protocol):
    """What a text must be; compared and hashed by what it says."""

    @property
    def name(self) -> str:
        """What messages call it, with an article."""
        ...

    def source(self) -> str:
        """The grammar as llguidance reads it.

        Raises:
            ConstraintError: it is broken, or cannot be enforced.
        """
        ...

    def explain(self, complaint: str) -> str:
        """What llguidance complained of, in words of this constraint."""
        ...


def check_whitespace(whitespace: Whitespace) -> None:
    """
    Raises:
        ConstraintError: there is no such way of spacing.
    """
    known = get_args(Whitespace)
    if whitespace not in known:
        raise ConstraintError(
            f"whitespace is one of {', '.join(known)}, not {whitespace!r}{did_you_mean(whitespace, known)}"
        )


def check_size(name: str, text: str) -> None:
    """
    Raises:
        ConstraintError: ``text``, which messages call ``name``, is longer than is allowed.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConstraintError(f"{name} has {len(text):,} characters, and {_MOST_CHARACTERS:,} are allowed")
