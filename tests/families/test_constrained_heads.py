"""Sequences under constraints speculate in a batch by a multi-token prediction head, and each answers as alone."""

import pytest

from bench.studies.mtp import opened
from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.model.loading import open_runner
from edgegen.speculation.sources import Speculate
from tests.decoded_shapes import decoded_shapes
from tests.export.bundles import export_to
from tests.families.mtp_heads import HEADS, write_with_head
from tests.runtime.models import VOCAB_SIZE, byte_tokenizer
from tests.runtime.speculation.constrained_requests import BATCHES, REQUESTS, alone, together


@pytest.fixture(scope="module", params=[HEADS[0], HEADS[3]], ids=str)
def with_head(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Of a hybrid and of a model whose layers all have attention."""
    folder = tmp_path_factory.mktemp("constrained")
    write_with_head(request.param, folder / "checkpoint", vocab_size=VOCAB_SIZE)
    byte_tokenizer(folder / "checkpoint" / "tokenizer.json")
    return export_to(folder / "checkpoint", folder / "bundle")


def options(speculate: Speculate) -> EngineOptions:
    return EngineOptions(threads=1, kv="int8", speculate=speculate, prefix_cache=0)


@pytest.mark.parametrize("sampled", [False, True])
def test_sequences_with_and_without_constraints_are_as_alone(
    with_head: Bundle, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's choice is dictated, and right eight times in ten: a random one is never right."""
    with LLM.load(with_head.path, options=options("off")) as llm:
        tokenizer = llm.tokenizer
        assert tokenizer
        expected = alone(llm, sampled=sampled)
    prompts = [tokenizer.encode(prompt) for prompt, _ in REQUESTS]
    answers = [[*prompt, *one.token_ids] for prompt, one in zip(prompts, expected, strict=True)]
    shapes, verified, runner = decoded_shapes(monkeypatch), list[bool](), open_runner(with_head, options("off"))
    with opened(with_head, options("mtp"), answers, 0.8, cost=0.05) as llm:
        found = alone(llm, sampled=sampled)
        assert [one.token_ids for one in found] == [one.token_ids for one in expected]
        of_head, forced = (sum(one.speculation.accepted for one in results) for results in (found, expected))
        assert of_head > forced + 10
        for batch in BATCHES * (20 if runner.verifies_batches else 1):  # threads decide which sequences run together
            shapes.clear()
            found = together(llm, batch, sampled=sampled)
            assert [one.token_ids for one in found] == [expected[place].token_ids for place in batch], batch
            verified.append(any(min(shape) > 1 for shape in shapes))
            if len(verified) >= len(BATCHES) and sum(verified) > 1:
                break
    assert (sum(verified) > 1) == runner.verifies_batches
    runner.close()
