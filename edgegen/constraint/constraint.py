"""Constraint: the interface of every output constraint."""

import re
from reprlib import repr as shortened
from typing import Protocol, get_args

from edgegen.errors import ConstraintError, did_you_mean
from edgegen.options.option import JsonWhitespace

Whitespace = JsonWhitespace
"""Space between the tokens of JSON.

``compact``: none, which is the default everywhere. ``flexible``: what models write by themselves. Nothing, or one space
after commas and colons, as Python's ``json.dumps`` has it, or line breaks with indentation; one break at most in one
place, and nothing around the whole, so that a model cannot go on with space forever. ``any``: all that JSON allows,
around the whole too.
"""

_MOST_CHARACTERS = 1_000_000
"""Of a grammar, or of a JSON schema: compiling takes seconds for each million."""

FREE_LEVELS = 5
"""Objects and arrays in one another that four spaces may indent, where a schema does not say how many there are."""

COMMA, COLON = ", ?", ": ?"
"""Regular expressions of a comma and a colon, in ``flexible`` white space."""

SPACE: dict[Whitespace, str] = {"compact": "", "flexible": r"( |\n[ \t]{0,20})", "any": r"[ \t\n\r]+"}
"""Regular expression of the space that may stand in one place; empty where none may."""


_LONGEST_PATTERN = 100
_OF_SPACE = re.compile(
    r"(?:(?:[ \n\t\r]|\\[nrts]|\[(?:[ \n\t\r]|\\[nrts])+\])(?:[?*+]|\{[0-9]{0,3},?[0-9]{0,3}\})?|[(|]|\)[?*+]?)*"
)
"""A regular expression of nothing but white space; what is repeated a number of times is no group."""
_SPELLED = {"\\s": r"[ \t\n\r]", "\n": r"\n", "\t": r"\t", "\r": r"\r"}
"""Space as it stands in grammars: of JSON's, and no Unicode's, and without line breaks."""


def line_break(levels: int) -> str:
    """The regular expression of a line break in ``levels`` objects and arrays, each with four spaces or two tabs."""
    return rf"\n( {{0,{4 * levels}}}|\t{{0,{2 * levels}}})"


class Constraint(Protocol):
    """Rule that a text must follow; compared and hashed by its content."""

    @property
    def name(self) -> str:
        """Name in messages, with an article."""
        ...

    def source(self) -> str:
        """The grammar as llguidance reads it.

        Raises:
            ConstraintError: it is broken, or cannot be enforced.
        """
        ...

    def explain(self, complaint: str) -> str:
        """Restate a complaint of llguidance in words of this constraint."""
        ...


def check_whitespace(whitespace: Whitespace, pattern: str | None) -> None:
    """Check the name of a way of spacing JSON, and the pattern that may take its place.

    Raises:
        ConstraintError: there is no such way of spacing, or the pattern may match what is no space.
    """
    known = get_args(Whitespace)
    if whitespace not in known:
        raise ConstraintError(
            f"whitespace is one of {', '.join(known)}, not {whitespace!r}{did_you_mean(whitespace, known)}"
        )
    if pattern is not None:
        read_whitespace_pattern(pattern)


def read_whitespace_pattern(pattern: str) -> str:
    """A regular expression of the space that may stand in one place of JSON, as it stands in grammars.

    Raises:
        ConstraintError: it is too long, or may match what is no space.
    """
    if len(pattern) > _LONGEST_PATTERN or not _OF_SPACE.fullmatch(pattern):
        raise ConstraintError(
            f"a whitespace pattern is a regular expression of at most {_LONGEST_PATTERN} characters, for spaces, tabs "
            f"and line breaks alone, such as [ \\n]?, not {shortened(pattern)}"
        )
    return re.sub(r"\\s|[\n\t\r]", lambda found: _SPELLED[found[0]], pattern)


def check_size(name: str, text: str) -> None:
    """Limit the length of a schema or grammar in characters.

    Raises:
        ConstraintError: ``text``, which messages call ``name``, is longer than is allowed.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConstraintError(f"{name} has {len(text):,} characters, and {_MOST_CHARACTERS:,} are allowed")
