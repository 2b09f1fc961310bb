"""Several answers to one prompt: each is what its own seed draws, from one computation of the prompt."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgegen.bundle.bundle import Bundle
from edgegen.constraint import Regex
from edgegen.engine.sequence import Sequence
from edgegen.generation.results import GenerationChunk
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.sampling import Candidates
from edgegen.sampling.sampler import Sampler
from tests.runtime.models import Gate, RandomGraphs, fake_llm, random_ids
from tests.waiting import until

PROMPT = random_ids(21)


@pytest.fixture
def graphs() -> RandomGraphs:
    return RandomGraphs(seed=3)


@pytest.fixture
def llm(graphs: RandomGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs)


def drawn(graphs: RandomGraphs, seed: int, number: int, count: int, eos: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The ``number``-th answer, token by token: its seed has the number above its 64 bits."""
    sampler = Sampler(seed=seed + (number << 64), do_sample=True)
    ids = list(PROMPT)
    while len(ids) < len(PROMPT) + count and (len(ids) == len(PROMPT) or ids[-1] not in eos):
        ids.append(sampler.sample(Candidates(graphs.logits(ids)), len(ids)))
    return tuple(ids[len(PROMPT) :])


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.sampled_from([0, 1, 2**64 - 1]) | st.integers(0, 2**64 - 1),
    count=st.integers(1, 7),
    new=st.integers(1, 12),
    eos=st.lists(st.integers(0, 255), max_size=60).map(tuple),
)
def test_each_answer_is_what_its_own_seed_draws_however_many_there_are(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, new: int, eos: tuple[int, ...]
) -> None:
    graphs = RandomGraphs(seed % 1000)
    llm = fake_llm(tmp_path_factory.mktemp("fake") / "fake", graphs)
    options: dict[str, Any] = {"max_new_tokens": new, "eos_token_id": eos, "seed": seed, "top_k": 0}
    result = llm.generate(PROMPT, num_return_sequences=count, **options)
    expected = [drawn(graphs, seed, number, new, eos) for number in range(count)]
    assert [choice.token_ids for choice in result.choices] == expected
    assert {choice.seed for choice in result.choices} == {seed}
    assert llm.generate(PROMPT, **options).token_ids == expected[0]


def test_the_prompt_is_computed_once_and_each_step_is_one_run(llm: LLM, graphs: RandomGraphs) -> None:
    llm.generate(PROMPT, num_return_sequences=5, max_new_tokens=4, seed=1)
    assert graphs.runs == [("prefill", 8), ("prefill", 8), ("prefill", 5), *[("decode", 1)] * 3]


def test_the_chunks_of_a_stream_say_which_answer_they_belong_to(llm: LLM) -> None:
    options: dict[str, Any] = {"num_return_sequences": 4, "seed": 2, "max_new_tokens": 30, "eos_token_id": [*range(20)]}
    whole = llm.generate(PROMPT, **options)
    with llm.stream(PROMPT, **options) as stream:
        chunks = list(stream)
    for found, other in zip(whole.choices, stream.result.choices, strict=True):
        assert other == replace(found, timings=other.timings, others=other.others)
    for index, choice in enumerate(whole.choices):
        own = [chunk for chunk in chunks if chunk.index == index]
        assert "".join(chunk.text for chunk in own) == choice.text
        assert tuple(token for chunk in own for token in chunk.token_ids) == choice.token_ids
        assert [chunk.finish_reason for chunk in own] == [None] * (len(own) - 1) + [choice.finish_reason]
    assert len({len(choice.token_ids) for choice in whole.choices}) > 1  # some ended early
    assert stream.text == whole.text


def test_each_answer_ends_at_its_own_stop_string(llm: LLM, graphs: RandomGraphs) -> None:
    letters = b"abcdef"
    options: dict[str, Any] = {
        "suppress_tokens": sorted({*range(260)} - {*letters}),
        "num_return_sequences": 6,
        "seed": 5,
        "max_new_tokens": 40,
    }
    free = llm.generate(PROMPT, **options)
    cut = llm.generate(PROMPT, stop_strings=["ab", "fed", "cc"], **options)
    for whole, part in zip(free.choices, cut.choices, strict=True):
        begins = {stop: whole.text.find(stop) for stop in ("ab", "fed", "cc") if stop in whole.text}
        if begins:
            ends = {stop: at + len(stop) for stop, at in begins.items()}
            first = min(ends, key=lambda stop: ends[stop])
            assert (part.text, part.matched) == (whole.text[: begins[first]], first)
            assert part.token_ids == whole.token_ids[: ends[first]]
        else:
            assert (part.text, part.finish_reason) == (whole.text, "length")
    assert len({choice.matched for choice in cut.choices}) > 1


def test_each_answer_keeps_to_the_grammar_by_itself(llm: LLM) -> None:
    result = llm.generate(PROMPT, num_return_sequences=6, seed=1, grammar=Regex("(yes|no|[0-9]{5})!!!"))
    texts = [choice.text for choice in result.choices]
    assert {choice.finish_reason for choice in result.choices} == {"stop"}
    assert all(text.endswith("!!!") for text in texts)
    assert len(set(texts)) > 2
    single = llm.generate(PROMPT, seed=1, grammar=Regex("(yes|no|[0-9]{5})!!!"))
    assert single.text == texts[0]


def test_a_processor_that_fails_in_one_answer_fails_the_request_and_nothing_else(
    llm: LLM, graphs: RandomGraphs
) -> None:
    third = drawn(graphs, 4, 2, 5)

    def fail(ids: Any, logits: Any) -> Any:
        if tuple(ids[len(PROMPT) :].tolist()) == third[:3]:
            raise RuntimeError("the caller's own")
        return logits

    options: dict[str, Any] = {"num_return_sequences": 4, "seed": 4, "max_new_tokens": 5, "top_k": 0}
    with pytest.raises(RuntimeError, match="the caller's own"):
        llm.generate(PROMPT, logits_processor=[fail], **options)
    failing, beside = llm.stream(PROMPT, logits_processor=[fail], **options), llm.stream(PROMPT, **options)
    got: list[GenerationChunk] = []
    with pytest.raises(RuntimeError, match="the caller's own"):
        got.extend(failing)
    assert [len(chunk.token_ids) for chunk in got if chunk.index == 2] == [1, 1, 1]
    with pytest.raises(RuntimeError, match="the caller's own"):
        _ = failing.result
    assert [choice.token_ids for choice in beside.wait().choices] == [drawn(graphs, 4, n, 5) for n in range(4)]


def test_cancelling_ends_all_of_them_with_what_they_have(llm: LLM, graphs: RandomGraphs) -> None:
    gate = Gate(graphs, 20)  # seven ids come long before
    with llm.stream(PROMPT, num_return_sequences=3, seed=4, max_new_tokens=50, top_k=0) as stream:
        got = [next(stream) for _ in range(7)]
    gate.opened.set()  # it may not have been reached
    assert [choice.finish_reason for choice in stream.result.choices] == ["cancelled"] * 3
    for number, choice in enumerate(stream.result.choices):
        seen = tuple(token for chunk in got if chunk.index == number for token in chunk.token_ids)
        assert choice.token_ids[: len(seen)] == seen
        assert drawn(graphs, 4, number, 50)[: len(choice.token_ids)] == choice.token_ids
    assert llm.generate(PROMPT, seed=4, max_new_tokens=5, top_k=0).token_ids == drawn(graphs, 4, 0, 5)


def sequences() -> int:
    """How many there are in this process."""
    gc.collect()
    return sum(type(one) is Sequence for one in gc.get_objects())  # isinstance would ask foreign objects questions


def test_a_finished_request_is_freed(llm: LLM) -> None:
    before = sequences()
    for _ in range(3):
        llm.generate(PROMPT, num_return_sequences=8, seed=4, max_new_tokens=5)
        llm.generate(PROMPT, num_beams=8, max_new_tokens=5)
    assert until(lambda: sequences() <= before)  # the engine's thread has a last step to do


@pytest.mark.parametrize("new", [1, 30])
def test_a_real_models_answers_are_those_of_its_seed(bundle: Bundle, new: int) -> None:
    """The int8 bundle's are so bit by bit, whatever runs beside; those of float32 are near enough here."""
    llm = LLM.load(bundle.path, options=EngineOptions(threads=1, prefill_chunk=16))
    options: dict[str, Any] = {"seed": 11, "temperature": 1.5, "max_new_tokens": new, "eos_token_id": ()}
    five = llm.generate(PROMPT, num_return_sequences=5, **options).choices
    two = llm.generate(PROMPT, num_return_sequences=2, **options).choices
    assert [one.token_ids for one in five[:2]] == [one.token_ids for one in two]
    assert five[0].token_ids == llm.generate(PROMPT, **options).token_ids
    assert len({one.token_ids for one in five}) > 1
