"""Workbench: an engine that decodes random token ids greedily without end, so that its steps can be timed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgegen.benchmark.timed_graphs import TimedGraphs
from edgegen.engine.engine import Engine
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams
from edgegen.model.interfaces import Runner


@dataclass(frozen=True, slots=True)
class Steps:
    """Seconds of some decode steps, and of each what was spent inside ONNX Runtime."""

    whole: tuple[float, ...]
    graph: tuple[float, ...]


class Workbench:
    """Measures through the engine, whose steps are those of every request: schedule, run, process, sample, watch, emit.

    ``runner`` runs ``graphs``. No prompt comes twice.
    """

    def __init__(self, runner: Runner[Any], graphs: TimedGraphs, prefill_chunk: int) -> None:
        self._engine = Engine(runner, prefill_chunk)
        self._graphs = graphs
        self._clock = graphs.clock
        self._vocab_size = runner.vocab_size
        self._random = np.random.default_rng(0)

    def begin(self, tokens: int, on_first_token: Callable[[], object]) -> None:
        """Run a prompt of ``tokens`` tokens, and one decode step."""
        group = self._group(1, tokens, 2)
        self._prefill(group)
        on_first_token()
        self._step(group)

    def prefill(self, tokens: int) -> float:
        """Seconds from a new prompt to its first token."""
        group = self._group(1, tokens, 1)
        begin = self._clock()
        self._prefill(group)
        return self._clock() - begin

    def decode(self, rows: int, context: int, steps: int) -> Steps:
        """Single steps of ``rows`` rows, begun with ``context`` tokens each."""
        group = self._group(rows, context, steps + 1)
        self._prefill(group)
        whole, graph = list[float](), list[float]()
        for _ in range(steps):
            ran, begin = self._graphs.seconds, self._clock()
            self._step(group)
            whole.append(self._clock() - begin)
            graph.append(self._graphs.seconds - ran)
        return Steps(tuple(whole), tuple(graph))

    def _group(self, rows: int, tokens: int, new_tokens: int) -> SequenceGroup:
        group = SequenceGroup([self._sequence(tokens, new_tokens) for _ in range(rows)])
        self._engine.add(group)
        return group

    def _sequence(self, tokens: int, new_tokens: int) -> Sequence:
        ids: list[int] = self._random.integers(0, self._vocab_size, tokens).tolist()
        return Sequence(ids, SequenceParams(tokens, new_tokens))

    def _prefill(self, group: SequenceGroup) -> None:
        """Step until every row has its first token."""
        while not all(row.generated for row in group):
            self._step(group)

    def _step(self, group: SequenceGroup) -> None:
        self._engine.step()
        for row in group:
            if row.error is not None:
                raise row.error
