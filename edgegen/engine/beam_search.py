"""BeamSearch: beam search over token ids and scores, with the same results as transformers.

The algorithm of transformers (``GenerationMixin._beam_search``, 4.57), decision by decision: at every step
the best continuations of all beams are taken; those that end compete, with the length penalty, for a place among the
finished; the best ``num_beams`` of the rest continue. Where fewer can continue (a mask or a grammar leaves few tokens),
transformers continues with beams that have ended, and here there are fewer.

The idea: Lowerre, "The Harpy Speech Recognition System", 1976; the length penalty: Wu et al. 2016 (arXiv:1609.08144).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgegen.options.generation import EarlyStopping

_NEVER = float("-inf")
"""The score of a beam that is not there."""

Stops = Callable[[Sequence[int]], bool]
"""Whether an answer of these ids ends here by itself."""


@dataclass(frozen=True, slots=True)
class Beam:
    """One continuation of the prompt.

    Attributes:
        ids: generated so far.
        score: the sum of their log-probabilities, of an ended one divided by its length to the power of the penalty;
            minus infinity holds the place of a beam that is not there.
        parent: which beam of the step before it continues.
        ended: whether the beam is finished.
    """

    ids: tuple[int, ...]
    score: float
    parent: int = 0
    ended: bool = False

    @property
    def is_there(self) -> bool:
        return self.score > _NEVER


class BeamSearch:
    """The beams of one prompt.

    Attributes:
        running: the beams that continue, best first; ``parent`` says whose KV cache each needs.
        finished: the best that have ended, best first; free places have ``ended`` False.
        done: no running beam can still be among the best.
        length: how many ids the running beams have.
    """

    def __init__(
        self,
        num_beams: int,
        max_new_tokens: int,
        stops: Stops,
        *,
        length_penalty: float = 1.0,
        early_stopping: EarlyStopping = False,
        num_eos: int = 1,
    ) -> None:
        """``num_eos``: how many ids end an answer; as many more continuations of each beam are considered."""
        self._num_beams, self._max_new_tokens, self._stops = num_beams, max_new_tokens, stops
        self._length_penalty, self._early_stopping = length_penalty, early_stopping
        self._keep = max(2, 1 + num_eos) * num_beams
        # Only the first counts at the start: the others have the same prompt.
        self.running = [Beam((), 0.0 if k == 0 else _NEVER) for k in range(num_beams)]
        self.finished = [Beam((), _NEVER) for _ in range(num_beams)]
        self.done = False
        self.length = 0
        self._may_improve = True

    def advance(self, log_probs: NDArray[np.float32]) -> None:
        """One step: log-probabilities float32 [num_beams, vocab] of the next token of each running beam.

        Those of a beam that is not there, and of a token that is not allowed, are minus infinity.
        """
        scores = np.array([beam.score for beam in self.running], np.float32)
        with np.errstate(over="ignore"):  # two that are nearly the lowest float
            candidates = self._best(log_probs + scores[:, None])
        length = self.length = self.length + 1
        ends = [not beam.is_there or length >= self._max_new_tokens or self._stops(beam.ids) for beam in candidates]
        self._finish(candidates, ends)
        left = [_NEVER if end else beam.score for beam, end in zip(candidates, ends, strict=True)]
        order = sorted(range(len(candidates)), key=lambda k: -left[k])[: self._num_beams]
        self.running = [replace(candidates[k], score=left[k]) for k in order]
        self._may_improve = self._may_improve and self._can_improve()
        full = self._early_stopping is True and all(beam.ended for beam in self.finished)
        self.done = not self._may_improve or full or all(ends)

    def best(self) -> list[Beam]:
        """The finished beams, best first; before the search is done, running beams count as if they ended here."""
        ended = [beam for beam in self.finished if beam.ended]
        if self.done:
            return ended
        alive = [self._end(beam) for beam in self.running if beam.is_there]
        return sorted([*ended, *alive], key=lambda beam: -beam.score)

    def _end(self, beam: Beam) -> Beam:
        score = beam.score / max(1, self.length) ** self._length_penalty
        return Beam(beam.ids, score, beam.parent, ended=True)

    def _best(self, scores: NDArray[np.float32]) -> list[Beam]:
        """The best continuations of all beams, best first; of equals the earlier beam's, then the lower id's."""
        vocabulary = scores.shape[1]
        flat = scores.ravel()
        keep = min(self._keep, flat.size)
        least = np.partition(flat, flat.size - keep)[flat.size - keep]
        above = np.flatnonzero(flat > least)
        best = np.concatenate([above, np.flatnonzero(flat == least)[: keep - above.size]])
        best = best[np.lexsort((best, -flat[best]))]
        places = [divmod(int(k), vocabulary) for k in best]
        return [
            Beam((*self.running[parent].ids, token), float(scores[parent, token]), parent) for parent, token in places
        ]

    def _finish(self, candidates: list[Beam], ends: list[bool]) -> None:
        """Let the candidates that ended, and are among the best ``num_beams``, compete for a place."""
        if (self._early_stopping is True and all(beam.ended for beam in self.finished)) or not self._may_improve:
            return
        best = zip(candidates[: self._num_beams], ends, strict=False)
        new = [self._end(beam) for beam, end in best if end and beam.is_there]
        merged = [*self.finished, *new]
        self.finished = sorted(merged, key=lambda beam: -beam.score)[: self._num_beams]

    def _can_improve(self) -> bool:
        """Whether the best running beam may, by the rule of ``early_stopping``, beat the worst finished one."""
        longest = self._early_stopping == "never" and self._length_penalty > 0
        best_possible = (
            self.running[0].score / (self._max_new_tokens if longest else self.length) ** self._length_penalty
        )
        if not all(beam.ended for beam in self.finished):
            return True
        return best_possible > min(beam.score for beam in self.finished)
