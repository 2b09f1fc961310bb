"""RowConstraint: a sequence's constraint as the engine's logits processor, proposer and watch."""

from collections.abc import Sequence
from typing import Protocol

from edgegen.constraint.state import ConstraintState
from edgegen.engine.finish import StopMatch
from edgegen.sampling import Candidates, LogitsContext


class _Watcher(Protocol):
    """Part of ``TextWatcher`` that is used here."""

    def watch(self, new_ids: Sequence[int]) -> StopMatch | None: ...
    def finish(self) -> StopMatch | None: ...


class RowConstraint:
    """The constraint of one sequence: a logits processor and a proposer of forced tokens.

    It brings its state to the tokens that it is shown, forwards or back. So it needs no notice when tokens are
    sampled or rejected, and sequences that share one stay right.
    """

    always_accepted = True

    def __init__(self, state: ConstraintState, prompt_length: int) -> None:
        self.state = state
        self._prompt_length = prompt_length

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        """Only what the grammar allows after ``context.token_ids``.

        Raises:
            ConstraintError: nothing is left, or the grammar got too complex.
        """
        self._follow(context.token_ids[self._prompt_length :])
        return self.state.apply(candidates)

    def propose(self, token_ids: Sequence[int]) -> list[int]:
        """The forced tokens after ``token_ids`` (prompt and answer)."""
        self._follow(token_ids[self._prompt_length :])
        return self.state.forced()

    def verified(self, proposed: int, accepted: int) -> None:
        """Nothing to learn: what is forced comes true."""

    def is_complete(self, answer: Sequence[int]) -> bool:
        """Whether the generated tokens are whole: their sequence may end without an end-of-sequence token."""
        self._follow(answer)
        return self.state.is_complete

    def fork(self) -> "RowConstraint":
        """For another sequence with the same tokens so far."""
        return RowConstraint(self.state.fork(), self._prompt_length)

    def _follow(self, answer: Sequence[int]) -> None:
        wanted = list(answer)
        known = self.state.ids
        common = len(known)
        if wanted[:common] != known:
            pairs = zip(wanted, known, strict=False)
            common = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(wanted), len(known)))
            self.state.rollback(len(known) - common)
        if len(missing := wanted[common:]) == 1:
            self.state.accept(missing[0])
        else:
            self.state.follow(missing)


class ConstraintWatch:
    """Ends a sequence whose text is complete, one model step before an end-of-sequence token could."""

    def __init__(self, watcher: _Watcher, row: RowConstraint) -> None:
        self._watcher = watcher
        self._row = row
        self._answer: list[int] = []

    def watch(self, new_ids: Sequence[int]) -> StopMatch | None:
        """As ``TextWatcher.watch``; a stop at the end of a complete text comes first."""
        if match := self._watcher.watch(new_ids):
            return match
        self._answer += new_ids
        if not self._row.is_complete(self._answer):
            return None
        return self._watcher.finish() or StopMatch("stop", None, "grammar")
