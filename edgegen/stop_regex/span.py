"""Span: where in a sequence's text a stop was found."""

from typing import NamedTuple


class Span(NamedTuple):
    """Characters ``begin`` to ``end`` of the text, counted from where the answer begins."""

    begin: int
    end: int
