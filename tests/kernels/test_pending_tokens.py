"""Pending tokens: what is rejected never was in a state, which has the bits of a run without proposals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.graph.kernel_operators import with_kernels
from edgegen.graph.pending_tokens import MOST_PENDING, SPANS, pending_input, pending_output
from tests.kernels import test_causal_conv, test_gated_delta_rule, test_selective_scan
from tests.kernels.material import Array, instruction_sets, same_bits, session_of
from tests.kernels.stock import needs_kernels

pytestmark = needs_kernels


@dataclass(frozen=True)
class Mixer:
    """An operator's graph, and what is fed to it: ``tokens`` of two sequences, and a state."""

    graph: bytes
    feeds: dict[str, Array]

    @property
    def tokens(self) -> int:
        return next(array.shape[1] for name, array in self.feeds.items() if name != "past")


def delta_net(tokens: int, rng: np.random.Generator) -> Mixer:
    net = test_gated_delta_rule.Net(keys=20, values=70)
    return Mixer(net.exported(), net.feeds(rng, 2, tokens))


def kimi_delta(tokens: int, rng: np.random.Generator) -> Mixer:
    net = test_gated_delta_rule.Net(q_heads=3, heads=3, by_key=True, gate="sigmoid")
    return Mixer(net.exported(), net.feeds(rng, 2, tokens))


def convolution(tokens: int, rng: np.random.Generator) -> Mixer:
    kernel, bias = test_causal_conv.weights(rng, 70, 4, bias=True)
    graph = test_causal_conv.exported(kernel, bias, activated=True)
    x, past = (rng.normal(size=(2, count, 70)).astype(np.float32) for count in (tokens, 3))
    return Mixer(graph, {"x": x, "past": past})


def scan(tokens: int, rng: np.random.Generator) -> Mixer:
    rate, feeds = test_selective_scan.material((2, tokens, 5, 40), int(rng.integers(1 << 30)))
    return Mixer(test_selective_scan.scanned(rate).serialized(), feeds)


MIXERS: tuple[Callable[[int, np.random.Generator], Mixer], ...] = (delta_net, kimi_delta, convolution, scan)


class Speculating:
    """A state with pending tokens, both kept in one place."""

    def __init__(self, mixer: Mixer, isa: str | None = None) -> None:
        graph = with_kernels(mixer.graph, {"past"})
        self._mixer, self._session = mixer, session_of(graph, isa=isa, threads=2)
        shape = next(one.shape for one in self._session.get_inputs() if one.name == pending_input("past"))
        assert shape[1] == MOST_PENDING
        self.state = mixer.feeds["past"].copy()
        self._pending = np.full((2, *shape[1:]), np.nan, np.float32)
        self._known = {one.name for one in self._session.get_inputs()}

    def run(self, starts: list[int], tokens: int, spans: list[tuple[int, int]]) -> Array:
        """``tokens`` of each sequence from its start; what they give."""
        io, feeds = self._session.io_binding(), {SPANS: np.array(spans, np.int32)}
        for name in self._known & self._mixer.feeds.keys() - {"past"}:
            parts = [self._mixer.feeds[name][row, start : start + tokens] for row, start in enumerate(starts)]
            feeds[name] = np.stack(parts)
        memory: list[Any] = [ort.OrtValue.ortvalue_from_numpy(array) for array in feeds.values()]
        for name, value in zip(feeds, memory, strict=True):
            io.bind_ortvalue_input(name, value)
        for taken, made, array in (
            ("past", "present", self.state),
            (pending_input("past"), pending_output("past"), self._pending),
        ):
            memory.append(ort.OrtValue.ortvalue_from_numpy(array))
            io.bind_ortvalue_input(taken, memory[-1])
            io.bind_ortvalue_output(made, memory[-1])
        io.bind_output("y")
        self._session.run_with_iobinding(io)
        return io.copy_outputs_to_cpu()[-1]  # in the order in which they were bound


def plain(mixer: Mixer, isa: str | None = None) -> tuple[list[Array], Array]:
    """Return the output of each token, and the state after the last: a run without proposals, token by token."""
    session, state, given = session_of(with_kernels(mixer.graph), isa=isa), mixer.feeds["past"], list[Array]()
    known, names = {one.name for one in session.get_inputs()}, [one.name for one in session.get_outputs()]
    for at in range(mixer.tokens):
        feeds = {name: np.ascontiguousarray(array[:, at : at + 1]) for name, array in mixer.feeds.items()}
        found = session.run(None, {name: feeds[name] for name in known - {"past"}} | {"past": state})
        by_name = dict(zip(names, found, strict=True))
        given.append(by_name["y"])
        state = by_name["present"]
    return given, state


@pytest.mark.parametrize("make", MIXERS)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), isa=st.sampled_from([None, *instruction_sets()]))
def test_a_state_is_that_of_a_run_without_proposals(
    make: Callable[[int, np.random.Generator], Mixer], data: st.DataObject, seed: int, isa: str | None
) -> None:
    """Two sequences, of which each accepts as many tokens as it does."""
    mixer = make(24, np.random.default_rng(seed))
    given, state = plain(mixer, isa)
    own, starts, pending = Speculating(mixer, isa), [0, 0], [0, 0]
    end = mixer.tokens - 1
    while max(starts) < end:
        tokens = data.draw(st.integers(1, min(MOST_PENDING + 1, end + 1 - max(starts))))
        whole = data.draw(st.integers(max(0, tokens - MOST_PENDING), tokens))
        y = own.run(starts, tokens, [(count, whole) for count in pending])
        for row, start in enumerate(starts):
            for at in range(tokens):
                assert same_bits(y[row, at], given[start + at][row, 0])
            taken = data.draw(st.integers(max(1, whole), tokens))
            starts[row], pending[row] = start + taken, taken - whole
    rest = [end + 1 - start for start in starts]
    for _ in range(max(1, *rest)):  # one by one; who has no more runs the last in vain
        spans = [(count, int(start <= end)) for count, start in zip(pending, starts, strict=True)]
        own.run([min(start, end) for start in starts], 1, spans)
        starts, pending = [start + 1 for start in starts], [0, 0]
    assert same_bits(own.state, state)


@pytest.mark.parametrize("make", MIXERS)
@pytest.mark.parametrize("spans", [(-1, 5), (MOST_PENDING + 1, 5), (0, -1), (0, 6), (0, 0)])
def test_spans_that_do_not_fit_are_refused(
    make: Callable[[int, np.random.Generator], Mixer], spans: tuple[int, int]
) -> None:
    own = Speculating(make(5, np.random.default_rng(0)))
    with pytest.raises(Exception, match="not so many pending tokens"):
        own.run([0, 0], 5, [(0, 5), spans])


@pytest.mark.parametrize("make", MIXERS)
def test_shapes_that_do_not_fit_are_refused(make: Callable[[int, np.random.Generator], Mixer]) -> None:
    mixer = make(5, np.random.default_rng(0))
    model = onnx.load_from_string(with_kernels(mixer.graph, {"past"}))
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    width = next(one.type.tensor_type.shape.dim[2].dim_value for one in model.graph.output if one.name == "past.left")
    session = session_of(model.SerializeToString())
    known = {one.name for one in session.get_inputs()}
    feeds = {name: array for name, array in mixer.feeds.items() if name in known}
    feeds |= {SPANS: np.array([(0, 5)] * 2, np.int32), pending_input("past"): np.zeros((2, 4, width), np.float32)}
    session.run(None, feeds)
    for shape in ((1, 4, width), (2, 4, width // 4), (2, 4 * width)):
        with pytest.raises(Exception, match="pending tokens do not have shapes that fit"):
            session.run(None, feeds | {pending_input("past"): np.zeros(shape, np.float32)})
    for shape in ((1, 2), (2, 1), (4,)):
        with pytest.raises(Exception, match="pending tokens do not have shapes that fit"):
            session.run(None, feeds | {SPANS: np.zeros(shape, np.int32)})


@pytest.mark.parametrize("make", MIXERS)
def test_a_graph_with_a_state_that_is_none_of_ours_stays(make: Callable[[int, np.random.Generator], Mixer]) -> None:
    graph = make(5, np.random.default_rng(0)).graph
    assert with_kernels(graph, {"past", "another"}) == with_kernels(graph)
    assert with_kernels(graph, {"past"}) != with_kernels(graph)
