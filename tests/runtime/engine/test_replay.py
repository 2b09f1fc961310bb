"""Replay: the KV cache is recomputed in the chunks it was first computed in."""

from collections.abc import Sequence as Ids

import numpy as np

from edgegen.engine.replay import Replay
from edgegen.engine.sequence import Logits, Sequence, SequenceParams
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler

NOTHING = np.zeros(0, np.float32)


class Log:
    """A model that notes what it runs, with prompts in chunks of 4."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, ...]] = []

    def prefill(self, row: Sequence) -> Logits:
        stop = min(row.kv.cached + 4, row.params.prompt_length)
        self.runs.append(tuple(row.ids[row.kv.cached : stop]))
        row.kv.cached = stop
        return NOTHING

    def decode(self, rows: Ids[Sequence]) -> Logits:
        for row in rows:
            self.runs.append((row.ids[row.kv.cached],))
            row.kv.cached += 1
        return NOTHING

    def feed(self, row: Sequence, ids: Ids[int]) -> Logits:
        self.runs.append(tuple(ids))
        return NOTHING


def sequence(cached: int) -> Sequence:
    greedy = Sampler(seed=0, do_sample=False)
    row = Sequence(list(range(20)), SequenceParams(6, 20, LogitsPipeline(), greedy, lambda ids: None, use_cache=False))
    row.kv.cached = cached
    return row


def rebuilt(replay: Replay, row: Sequence) -> list[tuple[int, ...]]:
    log, cached = Log(), row.kv.cached
    replay.rebuild(row, log)
    assert row.kv.cached == cached
    return log.runs


def test_a_prompt_comes_in_chunks_and_an_answer_token_by_token() -> None:
    assert rebuilt(Replay(), sequence(8)) == [(0, 1, 2, 3), (4, 5), (6,), (7,)]


def test_a_proposal_runs_again_with_what_was_rejected_of_it() -> None:
    replay, row = Replay(), sequence(7)
    replay.note(row, (8, 99, 98), 2)
    row.kv.cached = 10
    assert rebuilt(replay, row)[2:] == [(6,), (7, 8, 99, 98), (9,)]


def test_a_fork_has_the_chunks_of_its_source_and_goes_its_own_way() -> None:
    replay, source, target = Replay(), sequence(6), sequence(6)
    replay.note(source, (7,), 2)
    replay.fork(source, target)
    source.kv.cached = target.kv.cached = 8
    replay.note(target, (9,), 2)
    source.kv.cached = target.kv.cached = 10
    assert rebuilt(replay, source)[2:] == [(6, 7), (8,), (9,)]
    assert rebuilt(replay, target)[2:] == [(6, 7), (8, 9)]


def test_what_has_ended_is_forgotten() -> None:
    replay, row = Replay(), sequence(6)
    replay.note(row, (7,), 2)
    replay.forget(row)
    row.kv.cached = 8
    assert rebuilt(replay, row)[2:] == [(6,), (7,)]
