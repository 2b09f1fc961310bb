"""Turns: which prompt or proposal has the step's run of several tokens. Clients take turns.

- The best priority goes first. Prompts and proposals take turns, and so do the proposals of different clients.
- Of a client's prompts, the first is finished before the second starts. Of different clients' the one with the fewest
  chunks left goes first, among equals the client that has waited longest, who also has every fourth turn: a short
  prompt does not wait for a long one, and a long one is read on however many short ones come.
- A prompt that begins like another client's, which is being read, waits for that: what both have is computed once.
"""

from edgegen.engine.sequence import Client, Sequence, SequenceGroup
from edgegen.engine.work import Prefill, Verify

_AGEING = 4
"""One of every ``_AGEING`` turns of prompts is for the client that has waited longest."""

_WORTH_WAITING = 32
"""Tokens that another prompt has and is yet to compute, so that a prompt with the same tokens waits for it."""


class Turns:
    """Chooses among the prompts and proposals of each step, and remembers whose turn it was."""

    def __init__(self, prefill_chunk: int, *, shares_prefixes: bool) -> None:
        """``prefill_chunk``: tokens of a chunk; ``shares_prefixes``: whether a prompt reuses what others computed."""
        self._prefill_chunk = prefill_chunk
        self._shares_prefixes = shares_prefixes
        self._turn = 0
        self._prompts = 0  # turns of prompts
        self._was_prompt = False  # the last turn
        # What a prompt waits for, and how many ids both have.
        self._leaders: dict[Sequence, tuple[Prefill, int]] = {}

    def join(self, group: SequenceGroup, running: list[SequenceGroup]) -> None:
        """``group`` begins to run beside those that are ``running``."""
        others = [one for one in running if one.client is not group.client]
        if len(others) == len(running):
            group.client.last_prompt = self._turn
        if not self._shares_prefixes:
            return
        prompts = [Prefill(one, sequence) for one in others for sequence in one.prompts]
        for sequence in group.prompts:
            gains = [
                (shared - one.sequence.kv.cached, shared, one)
                for one in prompts
                if (shared := _shared(sequence, one.sequence))
            ]
            gain, shared, leader = max(gains, key=lambda found: found[0], default=(0, 0, None))
            if leader is not None and gain >= _WORTH_WAITING:
                self._leaders[sequence] = leader, shared

    def next(self, prompts: list[Prefill], verifies: list[Verify]) -> Prefill | Verify | None:
        """The work of this turn; ``prompts`` are in order of admission."""
        self._leaders = {one: found for one, found in self._leaders.items() if _waits(one, *found)}
        works = (*prompts, *verifies)
        if not works:
            return None
        best = min(work.group.priority for work in works)
        prompts = [prompt for prompt in prompts if prompt.group.priority == best]
        verifies = [verify for verify in verifies if verify.group.priority == best]
        self._turn += 1
        if verifies and (self._was_prompt or not prompts):
            chosen = min(verifies, key=lambda one: (one.group.client.last_proposal, one.sequence.last_served))
            chosen.group.client.last_proposal = chosen.sequence.last_served = self._turn
        else:
            chosen = self._prompt(prompts)
        self._was_prompt = isinstance(chosen, Prefill)
        return chosen

    def _prompt(self, prompts: list[Prefill]) -> Prefill:
        firsts = dict[Client, Prefill]()
        for prompt in prompts:
            firsts.setdefault(prompt.group.client, prompt)
        self._prompts += 1
        ages = self._prompts % _AGEING == 0

        def rank(prompt: Prefill) -> tuple[int, int]:
            chunks = -(-prompt.sequence.prompt_left // self._prefill_chunk)
            return 0 if ages else chunks, prompt.group.client.last_prompt

        chosen = min(firsts.values(), key=rank)
        read = chosen
        while leader := self._leaders.get(read.sequence):
            read = leader[0]
        for prompt in (chosen, read):
            prompt.group.client.last_prompt = self._turn
        return read


def _waits(sequence: Sequence, leader: Prefill, shared: int) -> bool:
    """Whether ``sequence`` has not begun, and ``leader`` goes on to compute what both have."""
    is_new = sequence.kv.slot < 0 and sequence.finish is None
    return is_new and leader.sequence.finish is None and leader.sequence.kv.cached < shared


def _shared(sequence: Sequence, other: Sequence) -> int:
    """How many ids ``sequence`` can reuse of the prompt of ``other``."""
    params = sequence.params
    if params.prefix is not None or params.on_hidden is not None:
        return 0
    length, most = 0, min(params.prompt_length, other.params.prompt_length)
    step = most  # long prompts are compared by halves: a list is compared faster than its items are
    while step:
        while length + step <= most and sequence.ids[length : length + step] == other.ids[length : length + step]:
            length += step
        step //= 2
    return length
