"""Sequences under constraints speculate in a batch by prompt lookup, and each answers as it does alone."""

import pytest

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.speculation.sources import Speculate
from tests.decoded_shapes import decoded_shapes
from tests.kernels.stock import needs_kernels
from tests.runtime.speculation.constrained_requests import BATCHES, REQUESTS, alone, together


def options(speculate: Speculate) -> EngineOptions:
    return EngineOptions(threads=1, kv="int8", speculate=speculate, prefix_cache=0)


@needs_kernels
@pytest.mark.parametrize("sampled", [False, True])
def test_sequences_with_and_without_constraints_are_as_alone(
    int8_bundle: Bundle, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LLM.load(int8_bundle.path, options=options("off")) as llm:
        expected = alone(llm, sampled=sampled)
    shapes, verified = decoded_shapes(monkeypatch), list[bool]()
    with LLM.load(int8_bundle.path, options=options("lookup")) as llm:
        assert [one.token_ids for one in alone(llm, sampled=sampled)] == [one.token_ids for one in expected]
        for batch in BATCHES * 20:  # threads decide which sequences run together
            shapes.clear()
            found = together(llm, batch, sampled=sampled)
            assert [one.token_ids for one in found] == [expected[place].token_ids for place in batch], batch
            assert [one.finish_reason for one in found] == [expected[place].finish_reason for place in batch]
            verified.append(any(min(shape) > 1 for shape in shapes))
            if len(verified) >= len(BATCHES) and sum(verified) > 1:
                break
    assert sum(verified) > 1, "no batches ran several tokens of several sequences"
    assert all(one.text for one in expected[1 : len(REQUESTS)])
