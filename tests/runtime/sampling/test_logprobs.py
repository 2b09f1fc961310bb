"""Log-probabilities: the model's own, whatever was done to its logits; in the order of likelihood, ties by id."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.llm import LLM
from edgegen.sampling.logprobs import LogprobRecorder
from tests.runtime.models import END, EOS, THE, FakeGraphs, RandomGraphs, after_prompt, fake_llm, random_ids

PROMPT = random_ids(21)
INF, NAN = float("inf"), float("nan")


@pytest.fixture
def graphs() -> RandomGraphs:
    return RandomGraphs(seed=3)


@pytest.fixture
def llm(graphs: RandomGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs)


def expected(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    return wide - np.log(np.exp(wide).sum())


def recorded(logits: list[float], token_id: int, top: int) -> Any:
    recorder = LogprobRecorder(lambda token_id: (str(token_id), None), top)
    recorder.record(np.array(logits, np.float32), token_id)
    (entry,) = recorder.take()
    assert recorder.take() == ()
    return entry


@given(
    logits=st.lists(st.sampled_from([-INF, -3.0, -1.0, 0.0, 0.0, 0.5, 0.5, 2.0]), min_size=1, max_size=30),
    token=st.integers(0, 1000),
    top=st.integers(0, 40),
)
def test_alternatives_are_the_likeliest_the_lower_id_first(logits: list[float], token: int, top: int) -> None:
    logits[0] = max(logits[0], 0.0)  # one at least is possible
    token %= len(logits)
    entry = recorded(logits, token, top)
    order = sorted(range(len(logits)), key=lambda token_id: (-logits[token_id], token_id))[:top]
    assert [one.token_id for one in entry.top_logprobs] == order
    assert [one.is_best for one in entry.top_logprobs] == [logits[one] == max(logits) for one in order]
    assert (entry.token_id, entry.token, entry.is_best) == (token, str(token), logits[token] == max(logits))
    values = expected(np.array(logits, np.float32))
    assert entry.logprob == pytest.approx(values[token], rel=1e-5, abs=1e-6)
    assert [one.logprob for one in entry.top_logprobs] == pytest.approx(list(values[order]), rel=1e-5, abs=1e-6)
    assert not any(one.top_logprobs for one in entry.top_logprobs)


@pytest.mark.parametrize("wrong", [INF, NAN])
def test_of_what_is_no_number_there_are_none(wrong: float) -> None:
    """As ``remove_invalid_values`` lets happen."""
    entry = recorded([0.0, wrong, 1.0], 2, 2)
    assert np.isnan(entry.logprob)
    assert (entry.is_best, entry.top_logprobs) == (False, ())


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"seed": 2, "temperature": 2.0},
        {"seed": 2, "top_k": 2, "logit_bias": {70: 50.0}},
        {"do_sample": False, "suppress_tokens": [*range(200)], "repetition_penalty": 3.0},
        {"seed": 2, "num_return_sequences": 3, "stop_strings": ["a", "b", "c"], "eos_token_id": [*range(30)]},
    ],
    ids=str,
)
def test_each_token_has_that_of_the_model_in_its_place(llm: LLM, graphs: RandomGraphs, options: dict[str, Any]) -> None:
    result = llm.generate(PROMPT, max_new_tokens=15, top_logprobs=3, **options)
    for choice in result.choices:
        assert [entry.token_id for entry in choice.logprobs] == list(choice.token_ids)
        for at, entry in enumerate(choice.logprobs):
            values = expected(graphs.logits([*PROMPT, *choice.token_ids[:at]]))
            assert entry.logprob == pytest.approx(values[entry.token_id], rel=1e-4)
            assert [one.token_id for one in entry.top_logprobs] == np.argsort(-values)[:3].tolist()


def test_each_chunk_has_those_of_its_ids(llm: LLM) -> None:
    options: dict[str, Any] = {"seed": 2, "num_return_sequences": 3, "max_new_tokens": 9, "logprobs": True}
    with llm.stream(PROMPT, **options) as stream:
        chunks = list(stream)
    assert all([entry.token_id for entry in chunk.logprobs] == list(chunk.token_ids) for chunk in chunks)
    for index, choice in enumerate(stream.result.choices):
        assert choice.logprobs == tuple(entry for chunk in chunks if chunk.index == index for entry in chunk.logprobs)
        assert not any(entry.top_logprobs for entry in choice.logprobs)


def test_logprobs_are_kept_only_if_asked_for(llm: LLM) -> None:
    assert llm.generate(PROMPT, max_new_tokens=3).logprobs == ()
    assert len(llm.generate(PROMPT, max_new_tokens=3, top_logprobs=1).logprobs) == 3
    assert len(llm.generate(PROMPT, max_new_tokens=3, top_logprobs=1, logprobs=True).logprobs) == 3


def test_tokens_are_spelled_by_themselves_special_ones_too(tmp_path: Path) -> None:
    llm = fake_llm(tmp_path / "fake", FakeGraphs(after_prompt(65, THE, END, 0xE2, EOS)))
    entries = llm.generate([1], logprobs=True, eos_token_id=EOS).logprobs
    assert [entry.token for entry in entries] == ["A", " the", "END", "\ufffd", "<|endoftext|>"]
    without = fake_llm(tmp_path / "ids only", FakeGraphs(after_prompt(65)), tokenizer=False)
    assert [entry.token for entry in without.generate([1], logprobs=True, max_new_tokens=2).logprobs] == ["", ""]


def test_the_chain_rule_holds_beside_a_beams_score(llm: LLM, graphs: RandomGraphs) -> None:
    """An answer's log-probabilities add up to the score of the beam that is the same text."""
    beams = llm.generate(PROMPT, num_beams=1, max_new_tokens=6, logprobs=True)
    total = sum(entry.logprob for entry in beams.logprobs)
    found = llm.generate(PROMPT, num_beams=64, num_return_sequences=64, max_new_tokens=6, length_penalty=0.0)
    same = [choice for choice in found.choices if choice.token_ids == beams.token_ids]
    assert [choice.score for choice in same] == pytest.approx([total], rel=1e-4)
