"""Whatever run of the model fails, and wherever, a hybrid's answers (int8 KV cache) are those of the request alone."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ids
from functools import cache
from itertools import count
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import Phase
from edgegen.engine.beam_group import BeamGroup
from edgegen.engine.beam_search import BeamSearch
from edgegen.engine.engine import Engine
from edgegen.engine.finish import CANCELLED
from edgegen.engine.sequence import Sequence, SequenceGroup
from edgegen.graph.kernel_operators import SummingOrder
from edgegen.graph.pending_tokens import pending_input
from edgegen.model.in_place_runner import InPlaceRunner, Logits, OnHidden
from edgegen.model.kv_cache import KVCache
from edgegen.model.loading import open_graphs
from edgegen.model.ort_session import Binding, Buffer, GraphPair
from edgegen.options.engine import EngineOptions
from tests.families.harness import tokens
from tests.families.hybrids import CASE, OF_EACH_KIND, BundleOf
from tests.runtime.engine.test_windowed_engine import Proposals, sequence

pytestmark = [
    pytest.mark.release,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning"),
]

How = Literal["refused", "amid", "ended", "counted", "cancelled"]
"""Where a run fails: before anything is written; with states half written; after its end, before and after the cache
counts its tokens. Or its request is cancelled, which ends the run if it serves no other."""

HOWS: tuple[How, ...] = ("refused", "amid", "ended", "counted", "cancelled")
CHUNK, NEW = 8, 6


class InterruptionError(Exception):
    pass


class Interrupts:
    """One run is interrupted, the ``left``-th from now on."""

    def __init__(self) -> None:
        self.left = 0
        self.how: How = "refused"
        self.cancel: Callable[[], None] = lambda: None

    def next_run(self) -> bool:
        """Whether the run that begins is the one."""
        self.left -= 1
        return self.left == 0


class InterruptedBinding(Binding):
    """Runs another one, unless it is interrupted."""

    def __init__(self, inner: Binding, interrupts: Interrupts, states: frozenset[str]) -> None:
        self._inner, self._interrupts, self._names = inner, interrupts, states
        self._states: dict[str, NDArray[Any]] = {}

    def takes(self, name: str) -> bool:
        return self._inner.takes(name)

    def input(self, name: str, buffer: Buffer) -> None:
        if name in self._names:
            self._states[name] = buffer.array
        self._inner.input(name, buffer)

    def output(self, name: str, buffer: Buffer) -> None:
        self._inner.output(name, buffer)

    def run(self) -> None:
        how = self._interrupts.how if self._interrupts.next_run() else None
        if how == "refused":
            raise InterruptionError
        if how == "cancelled":
            self._interrupts.cancel()
        self._inner.run()
        if how == "amid":
            for array in self._states.values():
                array[...] = np.nan
        if how in ("amid", "ended"):
            raise InterruptionError


class InterruptedGraphs:
    def __init__(self, inner: GraphPair, interrupts: Interrupts, states: frozenset[str]) -> None:
        self._inner, self._interrupts, self._states = inner, interrupts, states
        self.switch = inner.switch
        self.order: SummingOrder = inner.order
        self.attends_batches = inner.attends_batches
        self.pending = inner.pending

    def binding(self, phase: Phase) -> Binding:
        return InterruptedBinding(self._inner.binding(phase), self._interrupts, self._states)


class InterruptedRunner(InPlaceRunner):
    """Of a bundle with an int8 KV cache."""

    def __init__(self, bundle: Bundle) -> None:
        self.interrupts = Interrupts()
        variant, model = bundle.variant_with("int8"), bundle.manifest.model
        states = frozenset(name for state in variant.kv.fixed for name in (state.past, pending_input(state.past)))
        graphs = open_graphs(bundle, variant, EngineOptions(kv="int8", threads=1))
        wrapped = InterruptedGraphs(graphs, self.interrupts, states)
        super().__init__(wrapped, variant, model.vocab_size, model.max_context)

    def prefill(
        self,
        cache: KVCache,
        slot: int,
        ids: Ids[int],
        on_hidden: OnHidden | None = None,
        previous: NDArray[np.float32] | None = None,
    ) -> Logits:
        logits = super().prefill(cache, slot, ids, on_hidden, previous)
        self._end_if_counted()
        return logits

    def append(self, cache: KVCache, slot: int, ids: Ids[int]) -> None:
        super().append(cache, slot, ids)
        self._end_if_counted()

    def decode(
        self, cache: KVCache, ids: NDArray[np.int64], first_slot: int = 0, on_hidden: OnHidden | None = None
    ) -> Logits:
        logits = super().decode(cache, ids, first_slot, on_hidden)
        self._end_if_counted()
        return logits

    def _end_if_counted(self) -> None:
        if self.interrupts.left == 0 and self.interrupts.how == "counted":
            self.interrupts.left = -1
            raise InterruptionError


class Model:
    """A runner, and what it answers."""

    def __init__(self, bundle: Bundle) -> None:
        self.runner = InterruptedRunner(bundle)
        self.answer = cache(self._answer)

    def engine(self, **options: Any) -> Engine:
        return Engine(self.runner, CHUNK, max_batch_size=4, **options)

    def _answer(self, prompt: tuple[int, ...], new: int) -> list[int]:
        """Greedy, alone, in one piece."""
        self.runner.interrupts.left = 0
        row = sequence([*prompt], new)
        run(Engine(self.runner, 128), SequenceGroup([row]))
        return row.generated


def run(engine: Engine, *groups: SequenceGroup) -> None:
    for group in groups:
        engine.add(group)
    for _ in range(1000):
        if engine.idle:
            break
        engine.step()
    assert all(group.finished for group in groups)


@pytest.fixture(scope="module", params=OF_EACH_KIND)
def model(request: pytest.FixtureRequest, hybrid: BundleOf) -> Model:
    return Model(hybrid(request.param))


TEXT = tokens(CASE, 40, seed=1)


def together(model: Model) -> list[SequenceGroup]:
    """Three requests, two of which share a prefix."""
    prompts = (TEXT[:21], tokens(CASE, 9, seed=2), [*TEXT[:17], *tokens(CASE, 13, seed=3)])
    return [SequenceGroup([sequence(prompt, NEW)]) for prompt in prompts]


def forks(model: Model) -> list[SequenceGroup]:
    """Three answers to one prompt, of different lengths."""
    first = sequence(TEXT[:20], NEW)
    return [SequenceGroup([first, *(sequence(TEXT[:20], new, source=first) for new in (3, NEW))])]


def speculation(model: Model) -> list[SequenceGroup]:
    """Proposals, of which some are right."""
    prompt, right = TEXT[:12], [*TEXT[:12], *model.answer(tuple(TEXT[:12]), 12)]

    def next_id(ids: list[int]) -> int:
        return right[len(ids)] if len(ids) < len(right) else 0

    return [SequenceGroup([sequence(prompt, 12, Proposals(next_id, 4, 2))])]


def beams(model: Model) -> list[SequenceGroup]:
    first = sequence(TEXT[:15], NEW)
    rows = [first, *(sequence(TEXT[:15], NEW, source=first) for _ in range(2))]
    return [BeamGroup(rows, BeamSearch(3, NEW, lambda ids: False), 1)]


def alone(model: Model) -> list[SequenceGroup]:
    return [SequenceGroup([sequence(TEXT[:30], NEW)])]


def interrupted(model: Model, make: Callable[[Model], list[SequenceGroup]], how: How) -> Iterator[list[SequenceGroup]]:
    """The requests, once for each of their runs, which is interrupted; what they leave is gone on with."""
    interrupts = model.runner.interrupts
    for at in count(1):
        groups, engine = make(model), model.engine()
        interrupts.left, interrupts.how = at, how
        interrupts.cancel = lambda engine=engine, group=groups[0]: engine.cancel(group)
        run(engine, *groups)
        if interrupts.left > 0:  # there are fewer
            assert at > 5
            return
        interrupts.left = 0
        yield groups
        rows = [row for group in groups for row in group.sequences]
        later = [sequence([*row.ids, 5, 6], 3) for row in rows]
        run(engine, *(SequenceGroup([row]) for row in later))
        for row in later:
            assert row.error is None
            assert row.generated == model.answer(tuple(row.ids[: row.params.prompt_length]), 3), (how, at)


def check(model: Model, row: Sequence) -> None:
    prompt = tuple(row.ids[: row.params.prompt_length])
    assert row.generated == model.answer(prompt, row.params.max_new_tokens)[: len(row.generated)]
    assert row.error is not None or row.finish == CANCELLED or len(row.generated) == row.params.max_new_tokens


@pytest.mark.parametrize("make", [alone, together, forks, speculation], ids=lambda make: make.__name__)
@pytest.mark.parametrize("how", HOWS)
def test_any_run_may_be_interrupted(model: Model, make: Callable[[Model], list[SequenceGroup]], how: How) -> None:
    ends = 0
    for groups in interrupted(model, make, how):
        ended = [group for group in groups if any(row.finish == CANCELLED for row in group)]
        assert len(ended) <= 1
        ends += len(ended)
        for group in groups:
            for row in group:
                check(model, row)
    assert ends > 1


@pytest.mark.parametrize("how", HOWS)
def test_any_run_of_beams_may_be_interrupted(model: Model, how: How) -> None:
    for (group,) in interrupted(model, beams, how):
        assert any(row.error is not None or row.finish == CANCELLED for row in group)
    (whole,) = beams(model)
    model.runner.interrupts.left = 0
    run(Engine(model.runner, CHUNK), whole)
    (again,) = beams(model)
    run(model.engine(), again)
    assert again.choices[0].generated == whole.choices[0].generated
