"""BeamGroup: beam search as a group of sequences, one for each beam."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ids
from itertools import zip_longest

import numpy as np

from edgegen.engine.beam_search import Beam, BeamSearch
from edgegen.engine.finish import OUT_OF_TIME, StopMatch
from edgegen.engine.sequence import Fork, Logits, Sequence, SequenceGroup, Update, ignore
from edgegen.errors import ConstraintError, EdgegenError, LogitsError
from edgegen.sampling import Candidates, LogitsContext, log_softmax


class BeamGroup(SequenceGroup):
    """A sequence for each beam. The answers are the best beams; they come all at once when the search is over."""

    def __init__(
        self, sequences: Ids[Sequence], search: BeamSearch, returned: int, emit: Callable[[Update], None] = ignore
    ) -> None:
        """``returned``: how many of the beams are answers."""
        super().__init__(sequences, emit)
        self.choices = tuple(Sequence(list(one.ids), one.params) for one in sequences[:returned])
        self._search = search
        self._by_beam = list(sequences)  # the sequence of each running beam
        self._prompt = tuple(sequences[0].ids)

    def advance(self, logits: Mapping[Sequence, Logits], fork: Fork) -> list[Update]:
        try:
            self._search.advance(np.stack(self._log_probs(logits)))
        except LogitsError as error:
            raise type(error)(f"at token {self._search.length + 1} of the answer, {error}") from None
        for choice in self.choices:
            choice.times.started = self.sequences[0].times.started
            choice.times.note_token()
        first = self.sequences[0]
        if self._search.done:
            return self._end(first.params.limit)
        if first.is_late:
            return self._end(OUT_OF_TIME)
        self._follow(fork)
        return []

    def expire(self) -> list[Update]:
        return self._end(OUT_OF_TIME) if self.sequences[0].is_late and not self.finished else []

    def _log_probs(self, logits: Mapping[Sequence, Logits]) -> list[Logits]:
        """Processed log-probabilities [vocab] of the next token of each beam; minus infinity where no token is allowed.

        Raises:
            LogitsError: a logit is NaN or plus infinity.
            LogitsError, ConstraintError: no beam has an allowed token, and none has ended before.
        """
        rows, dead_ends = list[Logits](), list[EdgegenError]()
        for sequence, beam in zip(self._by_beam, self._search.running, strict=True):
            nothing = np.full_like(logits[sequence], -np.inf)
            try:
                rows.append(_log_probs(sequence, logits[sequence]) if beam.is_there else nothing)
            except (LogitsError, ConstraintError) as error:
                Candidates(logits[sequence]).best()  # NaN is an error, not a dead end
                dead_ends.append(error)
                rows.append(nothing)
        alive = sum(beam.is_there for beam in self._search.running) - len(dead_ends)
        if not alive and not any(beam.ended for beam in self._search.finished):
            raise dead_ends[0]
        return rows

    def _follow(self, fork: Fork) -> None:
        """Give each running beam a sequence with its KV cache: its parent's, or a copy in a sequence that is free."""
        parents = [self._by_beam[beam.parent] for beam in self._search.running]
        free = [one for one in self.sequences if one not in parents]
        taken = set[Sequence]()
        for k, parent in enumerate(parents):
            sequence = parent
            if parent in taken:
                sequence = free.pop()
                fork(parent, sequence)
            taken.add(sequence)
            self._by_beam[k] = sequence
        for sequence, beam in zip(self._by_beam, self._search.running, strict=True):
            sequence.ids = [*self._prompt, *beam.ids]

    def _end(self, otherwise: StopMatch) -> list[Update]:
        """The answers; those that did not end by themselves were ended by ``otherwise``."""
        beams = self._search.best()
        updates = [self._answer(*pair, otherwise) for pair in zip_longest(self.choices, beams[: len(self.choices)])]
        for sequence in self.sequences:
            sequence.finish = sequence.finish or otherwise
        return updates

    def _answer(self, choice: Sequence, beam: Beam | None, otherwise: StopMatch) -> Update:
        """Fill ``choice`` from ``beam``; without one (the deadline had passed at once) it is empty."""
        if beam is None or choice.finish is not None:  # cancelled meanwhile
            choice.finish = choice.finish or otherwise
            return Update(choice, ())
        choice.ids += beam.ids
        choice.score = beam.score
        try:
            match = choice.params.watch(beam.ids)
        except Exception as error:
            choice.fail(error)
            match = None
        choice.finish = choice.finish or match or otherwise
        return Update(choice, beam.ids)


def _log_probs(sequence: Sequence, logits: Logits) -> Logits:
    """Processed log-probabilities [vocab]; minus infinity for tokens that a processor has removed."""
    context = LogitsContext(sequence.ids, sequence.params.prompt_length)
    candidates = sequence.params.pipeline(Candidates(log_softmax(logits)), context)
    candidates.best()
    if candidates.ids is None:
        return candidates.logits
    whole = np.full_like(logits, -np.inf)
    whole[candidates.ids] = candidates.logits
    return whole
