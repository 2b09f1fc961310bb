"""Work of a step: a chunk of a prompt, a proposal to verify, a decode of many sequences."""

from dataclasses import dataclass
from typing import NamedTuple

from edgegen.engine.sequence import Sequence, SequenceGroup


@dataclass(frozen=True, slots=True)
class MultiToken:
    """Several tokens of one sequence."""

    group: SequenceGroup
    sequence: Sequence

    @property
    def groups(self) -> tuple[SequenceGroup, ...]:
        return (self.group,)

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        return (self.sequence,)


@dataclass(frozen=True, slots=True)
class Prefill(MultiToken):
    """A chunk of a sequence's prompt."""


@dataclass(frozen=True, slots=True)
class Verify(MultiToken):
    """A sequence's last token and the proposal after it, to be accepted or rejected."""

    proposal: tuple[int, ...]


class Decode(NamedTuple):
    """One token of each sequence; ``groups`` are the requests they belong to.

    ``proposals``: of each sequence, to be verified in the same run; none at all as a rule.
    """

    groups: tuple[SequenceGroup, ...]
    sequences: tuple[Sequence, ...]
    proposals: tuple[tuple[int, ...], ...] = ()

    def of(self, group: SequenceGroup) -> "Decode":
        """Return the decode of one request alone."""
        places = [place for place, one in enumerate(self.sequences) if one in group]
        proposals = tuple(self.proposals[place] for place in places) if self.proposals else ()
        return Decode((group,), tuple(self.sequences[place] for place in places), proposals)


Work = Prefill | Verify | Decode


class Failure(NamedTuple):
    """A request that ends because a proposer raised ``error``."""

    group: SequenceGroup
    error: BaseException


class Step(NamedTuple):
    """Work to run next: one token of many sequences, then several tokens of one.

    ``is_awaited``: whether sequences past their prompts wait for the end of a chunk of another's.
    """

    decode: Decode | None = None
    multi_token: Prefill | Verify | None = None
    failure: Failure | None = None
    is_awaited: bool = False

    @property
    def works(self) -> list[Work | Failure]:
        return [work for work in (self.decode, self.multi_token, self.failure) if work is not None]
