"""Sequence and SequenceGroup: the token ids of one request, with its parameters, KV cache state and timings."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgegen.engine.chunked_prefill import PrefillPace
from edgegen.engine.finish import CANCELLED, LIMIT, OUT_OF_TIME, StopMatch
from edgegen.errors import EdgegenError, LogitsError
from edgegen.model.in_place_runner import OnHidden
from edgegen.model.kv_snapshot import KVPrefix, KVSnapshot
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.proposer import BatchProposer, OnHiddenAt, Proposer
from edgegen.speculation.stats import NOTHING_PROPOSED, Speculation
from edgegen.system import Deadline

Logits = NDArray[np.float32]

Watch = Callable[[Ids[int]], StopMatch | None]
"""Sees each new token id of a sequence, and says when it has ended."""

Record = Callable[[Logits, int], None]
"""Sees each new token id of a sequence with the model's logits [vocab] for it."""


@dataclass(frozen=True, slots=True, eq=False)
class SequenceParams:
    """How to compute, sample and end a sequence: unless told, greedily, up to its limit. Fixed when it is added.

    Attributes:
        prompt_length: how many ids the prompt has.
        answer_start: where the answer starts, if it is before the end of the prompt: an answer that is continued.
        prefix: KV cache of the first ids, saved by an earlier request.
        keep: whether the KV cache is saved when the sequence ends, as ``KVState.kept``.
        record: receives each token with its logits, for log-probabilities.
        on_hidden: receives the hidden states [tokens, size] of each chunk of the prompt; none is taken from the cache.
        deadline: when the sequence ends.
        limit: the finish when ``max_new_tokens`` are reached.
    """

    prompt_length: int
    max_new_tokens: int
    pipeline: LogitsPipeline = field(default_factory=LogitsPipeline)
    sampler: Sampler = field(default_factory=Sampler)
    watch: Watch = lambda ids: None
    answer_start: int | None = None
    prefix: KVPrefix | None = None
    keep: bool = False
    record: Record | None = None
    on_hidden: OnHidden | None = None
    deadline: Deadline | None = None
    limit: StopMatch = LIMIT


@dataclass(slots=True, eq=False)
class KVState:
    """State of the KV cache for one sequence.

    Attributes:
        cached: how many of the sequence's ids are in the KV cache.
        slot: the slot of the cache while the sequence runs, else negative.
        reused: how many ids of the prompt were taken from a cached prefix.
        diverges_at: how many ids the prompt shares with a cached text, which may be more than it could reuse: a
            checkpoint is made there, for the next prompt.
        pace: of the chunks of the prompt, once the first has run.
        kept: the KV cache saved at the end, if ``SequenceParams.keep``.
    """

    cached: int = 0
    slot: int = -1
    reused: int = 0
    diverges_at: int = 0
    pace: PrefillPace | None = None
    kept: KVSnapshot | None = None


@dataclass(slots=True, eq=False)
class Times:
    """When (by ``perf_counter``) a sequence started, and when its first and last tokens came; 0 for not yet."""

    started: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0

    def note_token(self) -> None:
        """A token came now."""
        self.last_token = perf_counter()
        self.first_token = self.first_token or self.last_token


@dataclass(slots=True, eq=False)
class Sequence:
    """One running sequence: its token ids, how to choose the next ones, and how far it is.

    Attributes:
        ids: the ids of the prompt and, after them, the generated ones.
        prefill_source: a sequence of the same group with the same prompt, whose prefill this one shares.
        proposers: sources of proposals for speculative decoding; the first that has any is used.
        on_hidden: hears the model's hidden states [tokens, size] of the positions from the first argument on, of every
            run of the sequence; those of proposals that are rejected come again.
        asked: the proposer of the last proposal.
        speculation: how many proposals were accepted so far.
        last_served: the last turn that verified a proposal of this sequence.
        finish: why it ended; None while it runs.
        score: the rank of an answer of a beam search.
        error: what made it fail; only its own request hears of it.
    """

    ids: list[int]
    params: SequenceParams
    prefill_source: "Sequence | None" = None
    proposers: tuple[Proposer, ...] = ()
    on_hidden: OnHiddenAt | None = None
    kv: KVState = field(default_factory=KVState)
    times: Times = field(default_factory=Times)
    asked: Proposer | None = None
    speculation: Speculation = NOTHING_PROPOSED
    last_served: int = -1
    finish: StopMatch | None = None
    score: float | None = None
    error: BaseException | None = None

    @property
    def generated(self) -> list[int]:
        return self.ids[self.params.prompt_length :]

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt is in the KV cache: what follows is decoding."""
        return self.kv.cached >= self.params.prompt_length

    @property
    def prompt_left(self) -> int:
        """How many ids of the prompt are yet to run."""
        return self.params.prompt_length - self.kv.cached

    @property
    def waits_for_prefill(self) -> bool:
        """Whether another sequence is prefilling the prompt of this one."""
        source = self.prefill_source
        return source is not None and source.finish is None and not source.prefilled

    @property
    def answer_start(self) -> int:
        """Where the answer starts in ``ids``."""
        start = self.params.answer_start
        return self.params.prompt_length if start is None else start

    @property
    def room(self) -> int:
        """How many ids may still be generated."""
        params = self.params
        return params.prompt_length + params.max_new_tokens - len(self.ids)

    @property
    def longest(self) -> int:
        """The most positions it may have in the KV cache: the last token is never fed back."""
        return self.params.prompt_length + self.params.max_new_tokens - 1

    @property
    def place(self) -> str:
        """Where the next id stands, for errors."""
        return f"at token {len(self.ids) - self.params.prompt_length + 1} of the answer"

    def propose(self, most: int, *, alone: bool) -> tuple[int, ...]:
        """At most ``most`` proposed ids. Proposals that may be rejected are made only for a sequence ``alone``."""
        return self._first_of([one for one in self.proposers if alone or one.always_accepted], most)

    def propose_in_batch(self, most: int, sequences: int) -> tuple[int, ...]:
        """At most ``most`` ids that may be rejected, where a step runs ``sequences`` sequences."""
        return self._first_of([one for one in self.proposers if isinstance(one, BatchProposer)], most, sequences)

    def _first_of(self, proposers: Ids[Proposer], most: int, sequences: int = 1) -> tuple[int, ...]:
        """The first proposal that any of ``proposers`` makes."""
        most = min(most, self.room - 1)
        if self.params.pipeline.stateful or most < 1:
            return ()
        for proposer in proposers:
            if proposal := self._ask(proposer, sequences):
                self.asked = proposer
                return proposal[:most]
        return ()

    def verified(self, proposal: Ids[int], new_ids: Ids[int]) -> None:
        """``proposal`` was verified, and ``new_ids`` were sampled."""
        pairs = zip(proposal, new_ids, strict=False)
        accepted = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(proposal), len(new_ids)))
        self.speculation = self.speculation.plus(len(proposal), accepted)
        if self.asked is not None:
            self.asked.verified(len(proposal), accepted)

    def _ask(self, proposer: Proposer, sequences: int = 1) -> tuple[int, ...]:
        try:
            if sequences > 1 and isinstance(proposer, BatchProposer):
                return tuple(proposer.propose_in_batch(self.ids, sequences))
            return tuple(proposer.propose(self.ids))
        except EdgegenError:  # ``extend`` raises the same, with the token it belongs to
            return ()

    def choose(self, logits: Logits, unconditional: Logits | None = None) -> int:
        """Process and sample: the next id from its logits [vocab].

        Raises:
            LogitsError: no token can be chosen.
        """
        params = self.params
        context = LogitsContext(self.ids, self.answer_start, unconditional)
        token_id = params.sampler.sample(params.pipeline(Candidates(logits), context), len(self.ids))
        if params.record is not None:
            params.record(logits, token_id)
        return token_id

    def extend(self, logits: Logits, unconditional: Logits | None = None) -> "Update":
        """Process, sample, watch: one more id. An error fails this sequence only."""
        try:
            token_id = self.choose(logits, unconditional)
            self.append(token_id)
        except Exception as error:
            self.fail(type(error)(f"{self.place}, {error}") if isinstance(error, LogitsError) else error)
            return Update(self, ())
        return Update(self, (token_id,))

    def append(self, token_id: int) -> None:
        """Add the next id, have it watched, and note whether the sequence ends."""
        self.ids.append(token_id)
        self.times.note_token()
        match = self.params.watch((token_id,))
        if match is None and self.room <= 0:
            match = self.params.limit
        if match is None and self.is_late:
            match = OUT_OF_TIME
        self.finish = self.finish or match  # another thread may have cancelled meanwhile

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self.params.deadline is not None and self.params.deadline.passed

    def cancel(self) -> None:
        """End here; the scheduler drops it in its next step."""
        self.finish = self.finish or CANCELLED

    def fail(self, error: BaseException) -> None:
        """End with an error, unless it has ended already: then no caller reads the error."""
        if self.finish is None:
            self.error = error
            self.cancel()


class Update(NamedTuple):
    """Result of a step for one sequence: the ids it appended, perhaps its end."""

    sequence: Sequence
    new_ids: tuple[int, ...]


Fork = Callable[[Sequence, Sequence], None]
"""``fork(source, target)``: copy the KV cache of ``source`` to ``target``."""


def ignore(update: Update) -> None:
    """An ``emit`` for updates that no caller reads."""


class Client:
    """Sender of requests: clients take turns, and all requests of one client share its turns.

    Attributes:
        last_prompt: the last turn that read one of its prompts, or in which it began to wait for one.
        last_proposal: the last turn that verified one of its proposals.
        last_begun: when the last of its requests began, by the count of :class:`~edgegen.engine.admission.Admission`.
    """

    def __init__(self) -> None:
        self.last_prompt = self.last_proposal = self.last_begun = -1


class SequenceGroup:
    """The sequences of one request, admitted together: one answer, or several independent ones to the same prompt.

    Attributes:
        sequences: the sequences that run.
        choices: the sequences that are the answers.
        emit: called with every update of the choices, in the engine's thread.
        priority: the request with the lowest goes first.
        client: who sent it, with no other request unless one is set.
        overtaken: how many requests have begun before this one because it did not fit in memory.
    """

    def __init__(self, sequences: Ids[Sequence], emit: Callable[[Update], None] = ignore) -> None:
        self.sequences = tuple(sequences)
        self.choices = self.sequences
        self.emit = emit
        self.priority = 0
        self.client = Client()
        self.overtaken = 0

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.sequences)

    @property
    def active(self) -> list[Sequence]:
        """The sequences that have not ended."""
        return [sequence for sequence in self.sequences if sequence.finish is None]

    @property
    def finished(self) -> bool:
        """Whether every sequence has ended."""
        return all(sequence.finish is not None for sequence in self.sequences)

    @property
    def prompts(self) -> list[Sequence]:
        """The sequences whose prompts are yet to run, but for those that wait for the prompt of another."""
        return [one for one in self.active if not one.prefilled and not one.waits_for_prefill]

    @property
    def longest(self) -> int:
        """The most positions that one of the sequences may have in the KV cache."""
        return max(sequence.longest for sequence in self.sequences)

    def advance(self, logits: Mapping[Sequence, Logits], fork: Fork) -> list[Update]:
        """Extend the sequences that ran by their logits [vocab], which are valid until this returns."""
        return [sequence.extend(row) for sequence, row in logits.items()]

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed, which is one for all answers."""
        return self.sequences[0].is_late

    def expire(self) -> list[Update]:
        """End the sequences whose deadline has passed; their updates."""
        late = [sequence for sequence in self.active if sequence.is_late]
        for sequence in late:
            sequence.finish = OUT_OF_TIME
        return [Update(sequence, ()) for sequence in late]

    def fail(self, error: BaseException) -> list[Update]:
        """End with ``error`` every sequence that has not ended."""
        active = [sequence for sequence in self.choices if sequence.finish is None]
        for sequence in {*active, *self.sequences}:
            sequence.fail(error)
        return [Update(sequence, ()) for sequence in active]

    def cancel(self) -> None:
        for sequence in (*self.sequences, *self.choices):
            sequence.cancel()
