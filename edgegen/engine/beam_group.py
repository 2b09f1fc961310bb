"""BeamGroup: the rows of a beam search."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from dataclasses import replace
from itertools import zip_longest
from time import perf_counter

import numpy as np

from edgegen.engine.beam_search import Beam, BeamSearch
from edgegen.engine.finish import StopMatch
from edgegen.engine.sequence import OUT_OF_TIME, Fork, Logits, Sequence, SequenceGroup, Update, ignore
from edgegen.errors import ConstraintError, EdgegenError, LogitsError
from edgegen.sampling import Candidates, LogitsContext, log_softmax


class BeamGroup(SequenceGroup):
    """A row for each beam; the answers, which are the best beams, come all at once when the search is over."""

    def __init__(
        self, rows: Ids[Sequence], search: BeamSearch, returned: int, emit: Callable[[Update], None] = ignore
    ) -> None:
        """``returned``: how many of the beams are answers."""
        super().__init__(rows, emit)
        self.choices = tuple(replace(row, ids=list(row.ids), shares=None) for row in rows[:returned])
        self._search = search
        self._by_beam = list(rows)  # the row of each running beam
        self._prompt = tuple(rows[0].ids)

    def advance(self, logits: Mapping[Sequence, Logits], fork: Fork) -> list[Update]:
        try:
            self._search.advance(np.stack(self._log_probs(logits)))
        except LogitsError as error:
            raise LogitsError(f"at token {self._search.length + 1} of the answer, {error}") from None
        for choice in self.choices:
            choice.started = self.sequences[0].started
            choice.note_time()
        deadline = self.sequences[0].deadline
        if self._search.done:
            return self._end(self.sequences[0].limit)
        if deadline is not None and perf_counter() >= deadline:
            return self._end(OUT_OF_TIME)
        self._follow(fork)
        return []

    def expire(self, now: float) -> list[Update]:
        deadline = self.sequences[0].deadline
        if self.finished or deadline is None or now < deadline:
            return []
        return self._end(OUT_OF_TIME)

    def _log_probs(self, logits: Mapping[Sequence, Logits]) -> list[Logits]:
        """Processed log-probabilities [vocab] behind each beam; where nothing may follow, minus infinity.

        Raises:
            LogitsError: a logit is NaN or plus infinity.
            LogitsError, ConstraintError: nothing may follow any beam, and none has ended before.
        """
        found, dead_ends = list[Logits](), list[EdgegenError]()
        for row, beam in zip(self._by_beam, self._search.running, strict=True):
            try:
                found.append(_log_probs(row, logits[row]) if beam.is_there else np.full_like(logits[row], -np.inf))
            except (LogitsError, ConstraintError) as error:
                Candidates(logits[row]).best()  # what is no number is no dead end
                dead_ends.append(error)
                found.append(np.full_like(logits[row], -np.inf))
        alive = sum(beam.is_there for beam in self._search.running) - len(dead_ends)
        if not alive and not any(beam.ended for beam in self._search.finished):
            raise dead_ends[0]
        return found

    def _follow(self, fork: Fork) -> None:
        """Give each running beam a row with its keys and values: its parent's, or a copy in a row of no beam."""
        parents = [self._by_beam[beam.parent] for beam in self._search.running]
        free = [row for row in self.sequences if row not in parents]
        taken = set[Sequence]()
        for k, parent in enumerate(parents):
            row = parent
            if parent in taken:
                row = free.pop()
                fork(parent, row)
            taken.add(row)
            self._by_beam[k] = row
        for row, beam in zip(self._by_beam, self._search.running, strict=True):
            row.ids = [*self._prompt, *beam.ids]

    def _end(self, otherwise: StopMatch) -> list[Update]:
        """The answers; what does not end by itself was ended by ``otherwise``."""
        beams = self._search.best()
        updates = [self._answer(*pair, otherwise) for pair in zip_longest(self.choices, beams[: len(self.choices)])]
        for row in self.sequences:
            row.finish = row.finish or otherwise
        return updates

    def _answer(self, choice: Sequence, beam: Beam | None, otherwise: StopMatch) -> Update:
        """Make ``choice`` what ``beam`` is; without one (the time was up at once) it is empty."""
        if beam is None or choice.finish is not None:  # cancelled meanwhile
            choice.finish = choice.finish or otherwise
            return Update(choice, ())
        choice.ids += beam.ids
        choice.score = beam.score
        try:
            match = choice.watch(beam.ids)
        except Exception as error:
            choice.fail(error)
            match = None
        choice.finish = choice.finish or match or otherwise
        return Update(choice, beam.ids)


def _log_probs(row: Sequence, logits: Logits) -> Logits:
    """Processed log-probabilities [vocab]; of what a processor has removed, minus infinity."""
    candidates = row.pipeline(Candidates(log_softmax(logits)), LogitsContext(row.ids, row.prompt_length))
    candidates.best()
    if candidates.ids is None:
        return candidates.logits
    whole = np.full_like(logits, -np.inf)
    whole[candidates.ids] = candidates.logits
    return whole
