"""Regular-expression engine of stop expressions, which reads text piece by piece.

Its interface is what this package exports: :class:`StopRegex` compiles a pattern, :class:`StopRegexMatcher` looks for
it in text that arrives, and :class:`Span` says where it was found. Patterns are read by ``re._parser``, a private
module of Python, so that they mean what they mean in ``re``; only :mod:`edgegen.stop_regex.parser` knows of it.
"""

from edgegen.stop_regex.matcher import Span, StopRegexMatcher
from edgegen.stop_regex.regex import StopRegex

__all__ = ["Span", "StopRegex", "StopRegexMatcher"]
