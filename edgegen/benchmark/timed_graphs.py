"""TimedGraphs: a pair of graphs that says how long it ran, so that what a step costs besides is known exactly."""

from collections.abc import Callable

from edgegen.bundle.manifest import Phase
from edgegen.graph.kernel_operators import SummingOrder
from edgegen.model.ort_session import Binding, Buffer, GraphPair

Clock = Callable[[], float]
"""Seconds, from any start."""


class TimedGraphs:
    """Does what ``graphs`` does; ``seconds`` is how long its runs have taken so far."""

    def __init__(self, graphs: GraphPair, clock: Clock) -> None:
        self.seconds = 0.0
        self.clock = clock
        self.switch, self.attends_batches, self.pending = graphs.switch, graphs.attends_batches, graphs.pending
        self._graphs = graphs

    @property
    def order(self) -> SummingOrder:
        return self._graphs.order

    def binding(self, phase: Phase) -> Binding:
        return _TimedBinding(self._graphs.binding(phase), self)


class _TimedBinding(Binding):
    def __init__(self, binding: Binding, graphs: TimedGraphs) -> None:
        # All that a binding holds is held by the one that this one times.
        self._binding = binding
        self._graphs = graphs

    def takes(self, name: str) -> bool:
        return self._binding.takes(name)

    def input(self, name: str, buffer: Buffer) -> None:
        self._binding.input(name, buffer)

    def output(self, name: str, buffer: Buffer) -> None:
        self._binding.output(name, buffer)

    def run(self) -> None:
        begin = self._graphs.clock()
        self._binding.run()
        self._graphs.seconds += self._graphs.clock() - begin
