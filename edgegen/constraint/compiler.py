"""ConstraintCompiler: compiles a constraint to the automaton that enforces it, once per vocabulary."""

from collections import OrderedDict
from collections.abc import Collection
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from edgegen.constraint.constraint import Constraint
from edgegen.constraint.cost import check_cost
from edgegen.constraint.state import ConstraintState
from edgegen.constraint.vocabulary import ConstraintVocabulary
from edgegen.errors import ConstraintError
from edgegen.system import is_frozen
from edgegen.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_QUOTED = 1000
_MOST_STATES = 50_000
"""States of a grammar's lexer, of up to 2 kB each, which come about while it is followed."""
MOST_COMPILED_BYTES = 256 << 20
"""Of the compiled grammars that are kept for a vocabulary, as far as can be estimated."""
_BYTES_OF_ONE, _BYTES_OF_CHARACTER = 1 << 20, 500
"""Bytes of one constraint, and of each character of its source: 190 for schemas, 450 for many short alternatives."""


class CompiledConstraint:
    """A constraint ready for a vocabulary; starts any number of sequences.

    Attributes:
        failed: whether it got too complex for llguidance in one of them; then it cannot start others.
        size: bytes that it takes, estimated.
    """

    def __init__(self, name: str, matcher: "LLMatcher", vocabulary_size: int, size: int) -> None:
        self.name = name
        self.size = size
        self.vocabulary_size = vocabulary_size
        self.failed = False
        self._matcher = matcher

    def start(self, eos_token_ids: Collection[int]) -> ConstraintState:
        """The state of a sequence that has no tokens yet."""
        return ConstraintState(
            self.name, self._matcher, self.vocabulary_size, eos_token_ids, on_failure=self._note_failure
        )

    def _note_failure(self) -> None:
        self.failed = True


class ConstraintCompiler:
    """Compiles constraints for one vocabulary and keeps the last ones; may be shared between threads."""

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int, *, most_bytes: int = MOST_COMPILED_BYTES) -> None:
        """Costs nothing: the vocabulary is read when the first constraint needs it.

        Args:
            vocabulary_size: the model's, which may be larger than the tokenizer's.
            most_bytes: of the compiled constraints that are kept; the last one is kept whatever it takes.
        """
        self._most_bytes = most_bytes
        self._source = (tokenizer, vocabulary_size)
        self._compiled: OrderedDict[Constraint, CompiledConstraint] = OrderedDict()
        self._lock, self._compiling = Lock(), Lock()

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Compile a constraint for this vocabulary, or return it from the cache.

        Raises:
            ConstraintError: the constraint is broken or cannot be enforced, or this vocabulary's tokens do not
                spell bytes.
        """
        if (kept := self._kept(constraint)) is not None:
            return kept
        with self._compiling:  # one at a time; what is compiled already waits for none
            if (kept := self._kept(constraint)) is not None:
                return kept
            compiled = self._compile(constraint)
            with self._lock:
                self._compiled[constraint] = compiled
                self._compiled.move_to_end(constraint)
                while len(self._compiled) > 1 and self.kept_bytes > self._most_bytes:
                    self._compiled.popitem(last=False)
            return compiled

    def _kept(self, constraint: Constraint) -> CompiledConstraint | None:
        """The one that is there, from now on the last that is let go; None where it has to be compiled."""
        with self._lock:
            compiled = self._compiled.get(constraint)
            if compiled is None or compiled.failed:
                return None
            self._compiled.move_to_end(constraint)
            return compiled

    @property
    def kept_bytes(self) -> int:
        """Bytes of the compiled constraints that are kept, estimated."""
        return sum(one.size for one in self._compiled.values())

    def _compile(self, constraint: Constraint) -> CompiledConstraint:
        try:
            from llguidance import LLMatcher, LLParserLimits
        except ModuleNotFoundError as error:
            lacks = "which is not installed: run `pip install llguidance` (on Linux its wheels need glibc 2.31)"
            if is_frozen():
                lacks = "which this app was frozen without: add `--copy-metadata llguidance` to PyInstaller's command"
            raise ConstraintError(f"constrained output needs llguidance, {lacks}") from error
        try:
            source = constraint.source()
        except RecursionError:
            raise ConstraintError(f"{constraint.name} is nested too deeply") from None
        except UnicodeEncodeError:
            raise ConstraintError(f"{constraint.name} holds half of a character, which is no text") from None
        check_cost(source, constraint.name)
        limits = LLParserLimits(max_lexer_states=_MOST_STATES)
        matcher = LLMatcher(self._vocabulary, source, log_level=0, limits=limits)
        if matcher.is_error():
            raise ConstraintError(
                f"{constraint.name} cannot be used: {_cut(constraint.explain(matcher.get_error()).strip())}"
            )
        size = _BYTES_OF_ONE + _BYTES_OF_CHARACTER * len(source)
        compiled = CompiledConstraint(constraint.name, matcher, self._source[1], size)
        compiled.start(()).mask()  # some grammars have no text, or get too complex at once
        return compiled

    @cached_property
    def _vocabulary(self) -> "LLTokenizer":
        return ConstraintVocabulary(*self._source).build()


def _cut(complaint: str) -> str:
    """Shorten a long complaint by its middle: it may quote all of a constraint."""
    return complaint if len(complaint) <= 2 * _QUOTED else f"{complaint[:_QUOTED]} … {complaint[-_QUOTED:]}"
