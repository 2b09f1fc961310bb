"""Sequence and SequenceGroup: what the engine works on. Token ids only; text lives above."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from edgegen.engine.finish import StopMatch
from edgegen.errors import EdgegenError, LogitsError
from edgegen.model.kv_snapshot import Beginning, KVSnapshot
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.proposer import Proposer
from edgegen.speculation.stats import NOTHING_PROPOSED, Speculation

Logits = NDArray[np.float32]

Watch = Callable[[Ids[int]], StopMatch | None]
"""Sees each new token id of a sequence, and says when it has ended."""

Record = Callable[[Logits, int], None]
"""Sees each new token id of a sequence with the model's logits [vocab] for its place."""

LIMIT = StopMatch("length", None, "max_new_tokens")
CANCELLED = StopMatch("cancelled", None)
OUT_OF_TIME = StopMatch("time", None, "max_time")


@dataclass(slots=True, eq=False)
class Sequence:
    """One row in the making: a prompt, the ids generated so far, and how to choose and judge the next.

    Attributes:
        ids: the prompt's ids and, after them, the generated ones.
        shares: a sequence of the same group with the same prompt, whose keys and values it takes over.
        answer_start: where the answer begins, of which what stands before the prompt's end was given; None is there.
        beginning: keys and values of the first ids, from elsewhere.
        keep: whether its keys and values are wanted when it ends; ``kept`` has them then.
        proposers: who may know what comes next; the first that does is heard.
        asked: whose proposal was the last.
        speculation: what became of the proposals so far.
        record: who keeps the log-probabilities of what was chosen.
        deadline: the time (of ``perf_counter``) at which it ends; there when it is added, or never.
        limit: what is said of it when ``max_new_tokens`` are reached.
        cached: how many of ``ids`` have their keys and values in the cache.
        proposed: what was proposed behind the first so many ids, by their number, and how many of it went into the
            cache.
        slot: the row of the cache, while running.
        reused: how many ids of the prompt had their keys and values in the cache before.
        last_served: the number of the step in which it was the one that ran several tokens.
        finish: why it ended; None while it goes on.
        score: of an answer of a beam search, by which it is ranked.
        error: what made it fail, if something did; only this request is to hear of it.
    """

    ids: list[int]
    prompt_length: int
    max_new_tokens: int
    pipeline: LogitsPipeline
    sampler: Sampler
    watch: Watch
    use_cache: bool = True
    shares: "Sequence | None" = None
    proposers: tuple[Proposer, ...] = ()
    asked: Proposer | None = None
    speculation: Speculation = NOTHING_PROPOSED
    record: Record | None = None
    deadline: float | None = None
    limit: StopMatch = LIMIT
    answer_start: int | None = None
    beginning: Beginning | None = None
    keep: bool = False
    kept: KVSnapshot | None = None
    cached: int = 0
    proposed: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict[int, tuple[tuple[int, ...], int]])
    slot: int = -1
    reused: int = 0
    last_served: int = -1
    finish: StopMatch | None = None
    score: float | None = None
    error: BaseException | None = None
    started: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0

    @property
    def generated(self) -> list[int]:
        return self.ids[self.prompt_length :]

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt is in the cache: what follows is decoding."""
        return self.cached >= self.prompt_length

    @property
    def waits(self) -> bool:
        """Whether another sequence is at work on the prompt of this one."""
        other = self.shares
        return other is not None and other.finish is None and not other.prefilled

    @property
    def answer_begin(self) -> int:
        """Where the answer begins in ``ids``."""
        return self.prompt_length if self.answer_start is None else self.answer_start

    @property
    def room(self) -> int:
        """How many ids may still be generated."""
        return self.prompt_length + self.max_new_tokens - len(self.ids)

    @property
    def place(self) -> str:
        """Where the next id stands, for errors."""
        return f"at token {len(self.ids) - self.prompt_length + 1} of the answer"

    def propose(self, most: int, *, alone: bool) -> tuple[int, ...]:
        """At most so many ids that may come next: certain ones, and only where the row is ``alone`` guesses, too."""
        most = min(most, self.room - 1)
        if self.pipeline.stateful or most < 1:
            return ()
        for proposer in self.proposers:
            if (alone or proposer.certain) and (proposal := self._ask(proposer)):
                self.asked = proposer
                return proposal[:most]
        return ()

    def verified(self, proposal: Ids[int], new_ids: Ids[int]) -> None:
        """``proposal`` was run, and ``new_ids`` came of it."""
        pairs = zip(proposal, new_ids, strict=False)
        accepted = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(proposal), len(new_ids)))
        self.speculation = self.speculation.plus(len(proposal), accepted)
        if self.asked is not None:
            self.asked.verified(len(proposal), accepted)

    def _ask(self, proposer: Proposer) -> tuple[int, ...]:
        try:
            return tuple(proposer.propose(self.ids))
        except EdgegenError:  # the same will be said where it belongs to a token, in ``extend``
            return ()

    def choose(self, logits: Logits, unconditional: Logits | None = None) -> int:
        """Process and sample: the next id from the logits [vocab] for its place.

        Raises:
            LogitsError: no token can be chosen.
        """
        context = LogitsContext(self.ids, self.answer_begin, unconditional)
        token_id = self.sampler.sample(self.pipeline(Candidates(logits), context), len(self.ids))
        if self.record is not None:
            self.record(logits, token_id)
        return token_id

    def extend(self, logits: Logits, unconditional: Logits | None = None) -> "Update":
        """Process, sample, watch: one more id. What fails, fails this sequence and nobody else."""
        try:
            token_id = self.choose(logits, unconditional)
            self.append(token_id)
        except Exception as error:
            self.fail(LogitsError(f"{self.place}, {error}") if isinstance(error, LogitsError) else error)
            return Update(self, ())
        return Update(self, (token_id,))

    def append(self, token_id: int) -> None:
        """Take the next id, have it watched, and note the end if it came."""
        self.ids.append(token_id)
        self.note_time()
        match = self.watch((token_id,))
        if match is None and self.room <= 0:
            match = self.limit
        if match is None and self.deadline is not None and self.last_token >= self.deadline:
            match = OUT_OF_TIME
        self.finish = self.finish or match  # another thread may have cancelled meanwhile

    def note_time(self) -> None:
        """A token has come."""
        self.last_token = perf_counter()
        self.first_token = self.first_token or self.last_token

    def cancel(self) -> None:
        """End here; the scheduler drops it at its next turn."""
        self.finish = self.finish or CANCELLED

    def fail(self, error: BaseException) -> None:
        """End with an error, unless it has ended already: then nobody asks any more."""
        if self.finish is None:
            self.error = error
            self.cancel()


@dataclass(frozen=True, slots=True)
class Update:
    """What a step did to one sequence: the ids it appended, perhaps its end."""

    sequence: Sequence
    new_ids: tuple[int, ...]


Fork = Callable[[Sequence, Sequence], None]
"""``fork(source, target)``: give ``target`` the keys and values of ``source``."""


def ignore(update: Update) -> None:
    """For whom nobody listens to."""


class SequenceGroup:
    """The sequences of one request; they are admitted together and leave together.

    These are independent of each other: one answer, or several to the same prompt.

    Attributes:
        sequences: the rows at work.
        choices: the sequences that are the answers.
        emit: told of every update of the choices, by whoever drives the engine.
        priority: which request goes first; lower ones do.
    """

    def __init__(self, sequences: Ids[Sequence], emit: Callable[[Update], None] = ignore) -> None:
        self.sequences = tuple(sequences)
        self.choices = self.sequences
        self.emit = emit
        self.priority = 0

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.sequences)

    @property
    def going(self) -> list[Sequence]:
        """The rows that have not ended."""
        return [sequence for sequence in self.sequences if sequence.finish is None]

    @property
    def finished(self) -> bool:
        """Whether every sequence has ended."""
        return not self.going

    @property
    def longest(self) -> int:
        """The most positions that a row may come to have in the cache: the last token is never fed back."""
        return max(sequence.prompt_length + sequence.max_new_tokens - 1 for sequence in self.sequences)

    def advance(self, logits: Mapping[Sequence, Logits], fork: Fork) -> list[Update]:
        """Make use of a step: the rows that ran, with their logits [vocab], which are valid until this returns."""
        return [sequence.extend(row) for sequence, row in logits.items()]

    def expire(self, now: float) -> list[Update]:
        """End the sequences whose time is up; their updates."""
        late = [row for row in self if row.finish is None and row.deadline is not None and now >= row.deadline]
        for sequence in late:
            sequence.finish = OUT_OF_TIME
        return [Update(sequence, ()) for sequence in late]

    def fail(self, error: BaseException) -> list[Update]:
        """End what has not ended with ``error``."""
        going = [sequence for sequence in self.choices if sequence.finish is None]
        for sequence in {*going, *self.sequences}:
            sequence.fail(error)
        return [Update(sequence, ()) for sequence in going]

    def cancel(self) -> None:
        for sequence in (*self.sequences, *self.choices):
            sequence.cancel()
