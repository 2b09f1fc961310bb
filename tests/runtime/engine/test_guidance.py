"""Guidance through the engine: two rows for each answer, over a fake model whose logits tell what the cache holds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.constraint import Choice
from edgegen.engine.finish import OUT_OF_TIME
from edgegen.errors import LogitsError, OptionError, PromptTooLongError, UsageError
from edgegen.llm import LLM
from edgegen.sampling import Candidates
from edgegen.sampling.sampler import Sampler
from tests.runtime.models import EOS, RandomGraphs, fake_llm, random_ids

PROMPT, NEGATIVE = random_ids(21), random_ids(13, seed=9)


@pytest.fixture
def graphs() -> RandomGraphs:
    return RandomGraphs(seed=3)


@pytest.fixture
def llm(graphs: RandomGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    return wide - np.log(np.exp(wide).sum())


def guided(
    graphs: RandomGraphs, prompt: list[int], negative: list[int], scale: float, count: int, seed: int | None = None
) -> tuple[int, ...]:
    """By the paper's formula, token by token."""
    sampler = Sampler(seed=seed or 0, do_sample=seed is not None)
    answer: list[int] = []
    for at in range(count):
        with_it = log_softmax(graphs.logits([*prompt, *answer]))
        without = log_softmax(graphs.logits([*negative, *answer]))
        logits = (without + scale * (with_it - without)).astype(np.float32)
        answer.append(sampler.sample(Candidates(logits), len(prompt) + at))
    return tuple(answer)


def test_a_deadline_ends_both_sequences(llm: LLM) -> None:
    late = llm.generate(PROMPT, guidance_scale=2.0, max_time=1e-9)
    assert (late.token_ids, late.finish_reason) == ((), OUT_OF_TIME.reason)
    assert len(llm.generate(PROMPT, guidance_scale=2.0, max_new_tokens=3).token_ids) == 3


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1000),
    prompt=st.lists(st.integers(0, 255), min_size=1, max_size=25),
    negative=st.none() | st.lists(st.integers(0, 255), min_size=1, max_size=25),
    scale=st.sampled_from([0.0, 0.5, 1.5, 3.0]),
    new=st.integers(1, 10),
)
def test_both_prompts_go_on_with_the_same_answer(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    prompt: list[int],
    negative: list[int] | None,
    scale: float,
    new: int,
) -> None:
    graphs = RandomGraphs(seed)
    llm = fake_llm(tmp_path_factory.mktemp("fake") / "fake", graphs)
    options: dict[str, Any] = {"max_new_tokens": new, "guidance_scale": scale, "negative_prompt": negative}
    expected = guided(graphs, prompt, negative or prompt[-1:], scale, new)
    assert llm.generate(prompt, **options).token_ids == expected


def test_several_answers_are_guided_each_by_itself_and_each_prompt_is_computed_once(
    llm: LLM, graphs: RandomGraphs
) -> None:
    options: dict[str, Any] = {"guidance_scale": 1.5, "negative_prompt": NEGATIVE, "max_new_tokens": 6}
    result = llm.generate(PROMPT, num_return_sequences=3, seed=8, top_k=0, **options)
    expected = [guided(graphs, PROMPT, NEGATIVE, 1.5, 6, 8 + (n << 64)) for n in range(3)]
    assert [choice.token_ids for choice in result.choices] == expected
    chunks = [("prefill", 8), ("prefill", 8), ("prefill", 5), ("prefill", 8), ("prefill", 5)]
    assert graphs.runs == [*chunks, *[("decode", 1)] * 5]


def test_answers_that_end_early_leave_the_others_alone(llm: LLM, graphs: RandomGraphs) -> None:
    ends = list(range(0, 256, 9))
    result = llm.generate(
        PROMPT, num_return_sequences=4, seed=8, top_k=0, guidance_scale=1.5, max_new_tokens=30, eos_token_id=ends
    )
    assert len({len(choice.token_ids) for choice in result.choices}) > 1
    for n, choice in enumerate(result.choices):
        count = len(choice.token_ids)
        assert choice.token_ids == guided(graphs, PROMPT, PROMPT[-1:], 1.5, count, 8 + (n << 64))
        assert not {*choice.token_ids[:-1]} & {*ends}
        assert (choice.token_ids[-1] in ends) == (choice.finish_reason == "stop")


def test_a_negative_prompt_may_be_text_or_ids_and_an_empty_one_is_the_models_own_beginning(
    llm: LLM, graphs: RandomGraphs
) -> None:
    options: dict[str, Any] = {"guidance_scale": 1.5, "max_new_tokens": 6}
    assert llm.generate("ab", negative_prompt="cd", **options).token_ids == guided(graphs, [97, 98], [99, 100], 1.5, 6)
    assert llm.generate("ab", negative_prompt="", **options).token_ids == guided(graphs, [97, 98], [EOS], 1.5, 6)
    assert llm.generate("ab", **options).token_ids == guided(graphs, [97, 98], [98], 1.5, 6)


def test_guidance_goes_with_a_grammar_a_stream_and_logprobs(llm: LLM, graphs: RandomGraphs) -> None:
    options: dict[str, Any] = {"guidance_scale": 1.5, "negative_prompt": NEGATIVE, "top_logprobs": 2}
    answer = llm.generate(PROMPT, grammar=Choice.of(["yes!", "no!!"]), **options)
    assert answer.text in ("yes!", "no!!")
    with llm.stream(PROMPT, max_new_tokens=5, **options) as stream:
        chunks = list(stream)
    assert tuple(token for chunk in chunks for token in chunk.token_ids) == guided(graphs, PROMPT, NEGATIVE, 1.5, 5)
    first = chunks[0].logprobs[0]
    assert first.logprob == pytest.approx(log_softmax(graphs.logits(PROMPT))[first.token_id], rel=1e-5)


def test_the_longer_prompt_leaves_the_room(graphs: RandomGraphs, tmp_path: Path) -> None:
    llm = fake_llm(tmp_path / "short", graphs, max_context=32)
    result = llm.generate([1], guidance_scale=1.5, negative_prompt=random_ids(30), max_new_tokens=99)
    assert (len(result.token_ids), result.stopped_by) == (3, "context")
    assert result.token_ids == guided(graphs, [1], random_ids(30), 1.5, 3)
    runs = len(graphs.runs)
    with pytest.raises(PromptTooLongError, match="the negative prompt has 33 tokens, but this model's context is 32"):
        llm.generate([1], guidance_scale=1.5, negative_prompt=random_ids(33))
    with pytest.raises(PromptTooLongError, match="the prompt has 33 tokens"):
        llm.generate(random_ids(33), guidance_scale=1.5, negative_prompt=[1])
    assert len(graphs.runs) == runs


@pytest.mark.parametrize("negative", ["no", [1], "", []])
def test_a_negative_prompt_without_guidance_is_refused(llm: LLM, graphs: RandomGraphs, negative: Any) -> None:
    with pytest.raises(OptionError, match="negative_prompt is for guidance: give a guidance_scale above 1"):
        llm.generate(PROMPT, negative_prompt=negative)
    assert graphs.runs == []


@pytest.mark.parametrize("negative", [5, 1.5, [1.5], [None], [999], {"a": 1}])
def test_what_is_no_prompt_is_no_negative_prompt(llm: LLM, graphs: RandomGraphs, negative: Any) -> None:
    with pytest.raises(UsageError, match=r"negative prompt"):
        llm.generate(PROMPT, guidance_scale=1.5, negative_prompt=negative)
    assert graphs.runs == []


def test_no_number_in_the_negative_row_is_an_error_that_names_the_step(tmp_path: Path) -> None:
    class Broken(RandomGraphs):
        def logits(self, ids: list[int]) -> NDArray[np.float32]:
            logits = super().logits(ids)
            if ids[: len(NEGATIVE)] == NEGATIVE and len(ids) == len(NEGATIVE) + 2:
                logits[5] = np.nan
            return logits

    llm = fake_llm(tmp_path / "broken", Broken())
    with pytest.raises(LogitsError, match="at token 3 of the answer, the model's logits are NaN or infinite"):
        llm.generate(PROMPT, guidance_scale=1.5, negative_prompt=NEGATIVE)
    assert llm.generate(PROMPT, max_new_tokens=4).token_ids == guided(RandomGraphs(), PROMPT, PROMPT, 0.0, 4)


def test_closing_amid_the_prompts_leaves_the_model_as_good_as_new(llm: LLM, graphs: RandomGraphs) -> None:
    for steps in range(4):
        stream = llm.stream(PROMPT, guidance_scale=1.5, negative_prompt=NEGATIVE, num_return_sequences=2, seed=1)
        for _ in range(steps):
            next(stream)
        stream.close()
        answer = llm.generate(PROMPT, guidance_scale=1.5, negative_prompt=NEGATIVE, max_new_tokens=4)
        assert answer.token_ids == guided(graphs, PROMPT, NEGATIVE, 1.5, 4)
