"""ConstraintCompiler: compiles a constraint to the automaton that enforces it, once per vocabulary."""

from collections import OrderedDict
from collections.abc import Collection
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from edgegen.constraint.constraint import Constraint
from edgegen.constraint.state import ConstraintState
from edgegen.constraint.vocabulary import ConstraintVocabulary
from edgegen.errors import ConstraintError
from edgegen.system import is_frozen
from edgegen.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_KEPT, _QUOTED = 64, 1000


class CompiledConstraint:
    """A constraint ready for a vocabulary; starts any number of sequences.

    Attributes:
        failed: whether it got too complex for llguidance in one of them; then it cannot start others.
    """

    def __init__(self, name: str, matcher: "LLMatcher", vocabulary_size: int) -> None:
        self.name = name
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

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int) -> None:
        """Costs nothing: the vocabulary is read when the first constraint needs it.

        Args:
            vocabulary_size: the model's, which may be larger than the tokenizer's.
        """
        self._source = (tokenizer, vocabulary_size)
        self._compiled: OrderedDict[Constraint, CompiledConstraint] = OrderedDict()
        self._lock = Lock()

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Compile a constraint for this vocabulary, or return it from the cache.

        Raises:
            ConstraintError: the constraint is broken or cannot be enforced, or this vocabulary's tokens do not
                spell bytes.
        """
        with self._lock:
            compiled = self._compiled.get(constraint)
            if compiled is None or compiled.failed:
                compiled = self._compile(constraint)
            self._compiled[constraint] = compiled
            self._compiled.move_to_end(constraint)
            if len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
            return compiled

    def _compile(self, constraint: Constraint) -> CompiledConstraint:
        try:
            from llguidance import LLMatcher
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
        matcher = LLMatcher(self._vocabulary, source, log_level=0)
        if matcher.is_error():
            raise ConstraintError(
                f"{constraint.name} cannot be used: {_cut(constraint.explain(matcher.get_error()).strip())}"
            )
        compiled = CompiledConstraint(constraint.name, matcher, self._source[1])
        compiled.start(()).mask()  # some grammars have no text, or get too complex at once
        return compiled

    @cached_property
    def _vocabulary(self) -> "LLTokenizer":
        return ConstraintVocabulary(*self._source).build()


def _cut(complaint: str) -> str:
    """What is long, without its middle: it may quote all of a constraint."""
    return complaint if len(complaint) <= 2 * _QUOTED else f"{complaint[:_QUOTED]} … {complaint[-_QUOTED:]}"
