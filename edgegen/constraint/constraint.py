"""Constraint: the interface of every output constraint."""

from typing import Literal, Protocol, get_args

from edgegen.errors import ConstraintError, did_you_mean

Whitespace = Literal["compact", "flexible", "any"]
"""Space between the tokens of JSON.

``compact``: none. ``flexible``: what models write. Nothing, or one space after commas and colons, as Python's
``json.dumps`` has it, or line breaks with indentation; one break at most in one place, and nothing around the whole,
so that a model cannot go on with space forever. ``any``: all that JSON allows, around the whole too.
"""

_MOST_CHARACTERS = 1_000_000
"""Of a grammar, or of a JSON schema: compiling takes seconds for each million."""

FREE_LEVELS = 5
"""Objects and arrays in one another that four spaces may indent, where a schema does not say how many there are."""

COMMA, COLON = ", ?", ": ?"
"""Regular expressions of a comma and a colon, in ``flexible`` white space."""

SPACE: dict[Whitespace, str] = {"compact": "", "flexible": r"( |\n[ \t]{0,20})", "any": r"[ \t\n\r]+"}
"""Regular expression of the space that may stand in one place; empty where none may."""


def line_break(levels: int) -> str:
    """The regular expression of a line break in ``levels`` objects and arrays, each with four spaces or two tabs."""
    return rf"\n( {{0,{4 * levels}}}|\t{{0,{2 * levels}}})"


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
    """Check the name of a way of spacing JSON.

    Raises:
        ConstraintError: there is no such way of spacing.
    """
    known = get_args(Whitespace)
    if whitespace not in known:
        raise ConstraintError(
            f"whitespace is one of {', '.join(known)}, not {whitespace!r}{did_you_mean(whitespace, known)}"
        )


def check_size(name: str, text: str) -> None:
    """Limit the length of a schema or grammar in characters.

    Raises:
        ConstraintError: ``text``, which messages call ``name``, is longer than is allowed.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConstraintError(f"{name} has {len(text):,} characters, and {_MOST_CHARACTERS:,} are allowed")
