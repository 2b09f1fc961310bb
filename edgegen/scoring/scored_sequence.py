"""ScoredSequence: scores a given text by taking each next token from the text instead of sampling it.

It proposes the rest of the text, as speculative decoding does, so that one step runs many tokens and the engine needs
no code for scoring.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Ids
from dataclasses import dataclass

from edgegen.engine.chunked_prefill import chunk_end
from edgegen.engine.sequence import Fork, Logits, Record, Sequence, SequenceGroup, SequenceParams, Update
from edgegen.sampling import Candidates


@dataclass(slots=True, eq=False)
class ScoredSequence(Sequence):
    """
    Attributes:
        known: the ids after the prompt.
        scored_from: the place in the whole text from which on ids are recorded.
        is_greedy: whether each id so far was the likeliest, and of equals the lowest.
    """

    known: tuple[int, ...] = ()
    scored_from: int = 0
    is_greedy: bool = True

    @classmethod
    def of(cls, ids: Ids[int], prompt_length: int, scored_from: int, record: Record) -> "ScoredSequence":
        """Reads ``ids``: the first ``prompt_length`` as a prompt, those from ``scored_from`` on for ``record``."""
        params = SequenceParams(prompt_length, len(ids) - prompt_length, record=record)
        return cls(list(ids[:prompt_length]), params, known=tuple(ids[prompt_length:]), scored_from=scored_from)

    @property
    def place(self) -> str:
        return f"at token {len(self.ids) - self.scored_from + 1} of the scored text"

    def propose(self, most: int, *, alone: bool) -> tuple[int, ...]:
        """The rest of the text but for its last id, after which nothing is scored.

        It runs together with the id before it, in pieces of which none is a single token (``chunk_end``).
        """
        rest = self.known[len(self.ids) - self.params.prompt_length : -1]
        return rest[: chunk_end(0, 1 + len(rest), most) - 1]

    def choose(self, logits: Logits, unconditional: Logits | None = None) -> int:
        """The id that comes next in the text.

        Raises:
            LogitsError: the model's logits [vocab] for its place are not finite.
        """
        token_id = self.known[len(self.ids) - self.params.prompt_length]
        if len(self.ids) >= self.scored_from and self.params.record is not None:
            self.is_greedy &= Candidates(logits).best() == token_id
            self.params.record(logits, token_id)
        return token_id


class ScoredGroup(SequenceGroup):
    """Sequences with a shared prefix. One with a single id beyond it needs no slot: the prefix's logits serve it."""

    def __init__(self, choices: Ids[ScoredSequence]) -> None:
        rows = [one for one in choices if one.params.max_new_tokens > 1] or [*choices[:1]]
        for row in rows[1:]:
            row.prefill_source = rows[0]
        super().__init__(rows)
        self.choices = tuple(choices)
        self._rowless = [one for one in choices if one not in rows]

    def advance(self, logits: Mapping[Sequence, Logits], fork: Fork) -> list[Update]:
        """The first call is for the shared prefix."""
        rowless, self._rowless = self._rowless, []
        first = next(iter(logits.values()))
        return [*(one.extend(first) for one in rowless), *super().advance(logits, fork)]
