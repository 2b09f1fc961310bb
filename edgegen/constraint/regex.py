"""Regex: constrains the output to a regular expression."""

from dataclasses import dataclass

from edgegen.constraint.constraint import check_size


@dataclass(frozen=True)
class Regex:
    """The whole text matches ``pattern``, in the syntax of Rust's ``regex``: no look-around, no back-references.

    Nothing may stand before or after the match; a ``^`` in front and a ``$`` at the end change nothing.
    """

    name = "the regular expression"

    pattern: str

    def __post_init__(self) -> None:
        check_size(self.name, self.pattern)

    def source(self) -> str:
        from llguidance import LLMatcher

        return LLMatcher.grammar_from_regex(self.pattern)

    def explain(self, complaint: str) -> str:
        # The complaint shows the expression and points into it, then shows the grammar that was made of it.
        return complaint.partition("(in regex): ")[2].partition("\n   1 | ")[0].rstrip() or complaint
