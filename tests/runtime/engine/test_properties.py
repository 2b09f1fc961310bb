"""Properties of any text, any cut into tokens and any options: streamed is whole, and a seed is an answer."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgegen.generation.results import GenerationResult
from edgegen.llm import LLM
from tests.runtime.models import (
    D_AND_HALF_A_CHARACTER,
    END,
    EOS,
    THE,
    FakeGraphs,
    RandomGraphs,
    after_prompt,
    fake_llm,
    random_ids,
)

pytestmark = pytest.mark.slow

PIECES = {END: b"END", THE: b" the", D_AND_HALF_A_CHARACTER: "D–".encode()[:2]}
PROMPT = random_ids(21)


@st.composite
def texts_in_tokens(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A text, and one of the ways to write it in tokens; special ones, which do not show, may stand anywhere."""
    words = ["END", " the", "D–", "D", "é", "👩\u200d👧", "stop", "\n", " ", "–", "\ufffd", "a\u0301"]
    text = "".join(draw(st.lists(st.sampled_from(words) | st.characters(exclude_categories=["Cs"]), max_size=12)))
    data, ids = text.encode(), list[int]()
    while data:
        possible = [token for token, piece in PIECES.items() if data.startswith(piece)]
        token = draw(st.sampled_from([data[0], *possible]))
        ids.append(token)
        data = data[len(PIECES.get(token, b"?")) :]
    for _ in range(draw(st.integers(0, 2))):
        ids.insert(draw(st.integers(0, len(ids))), EOS)
    return text, ids


def streamed(llm: LLM, prompt: list[int], **options: Any) -> tuple[list[str], list[tuple[int, ...]], GenerationResult]:
    """Text and ids of each answer, put together from the chunks, and the result."""
    with llm.stream(prompt, **options) as stream:
        chunks = list(stream)
    numbers = range(len(stream.result.choices))
    own = [[chunk for chunk in chunks if chunk.index == number] for number in numbers]
    ids = [tuple(token for chunk in some for token in chunk.token_ids) for some in own]
    return ["".join(chunk.text for chunk in some) for some in own], ids, stream.result


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=texts_in_tokens(), stops=st.lists(st.sampled_from(["stop", "D–", "\u200d", "the", "NDE"]), max_size=2))
def test_what_is_streamed_is_the_text_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, written: tuple[str, list[int]], stops: list[str]
) -> None:
    text, ids = written
    if not ids:
        return
    llm = fake_llm(tmp_path_factory.mktemp("fake") / "fake", FakeGraphs(after_prompt(*ids)))
    options: dict[str, Any] = {"max_new_tokens": len(ids), "eos_token_id": (), "stop_strings": stops}
    with llm.stream([1], **options) as stream:
        chunks = list(stream)
    found = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
    pieces = [chunk.text for chunk in chunks]
    assert "".join(pieces) == stream.result.text == llm.generate([1], **options).text
    assert stream.result.text == (text if found is None else text[:found])
    assert sum(piece.count("\ufffd") for piece in pieces) <= text.count("\ufffd")
    shown = ""
    for piece in pieces:
        shown += piece
        assert text.startswith(shown)
        assert not any(stop in shown for stop in stops)


@st.composite
def sampling(draw: st.DrawFn) -> dict[str, Any]:
    """Options that draw, in any combination that does not contradict itself."""
    return draw(
        st.fixed_dictionaries(
            {"seed": st.integers(0, 2**64 - 1)},
            optional={
                "temperature": st.sampled_from([0.3, 1.0, 2.0]),
                "top_k": st.sampled_from([0, 1, 20, 1000]),
                "top_p": st.sampled_from([0.5, 0.99]),
                "min_p": st.sampled_from([0.01, 0.3]),
                "typical_p": st.sampled_from([0.5, 0.9]),
                "repetition_penalty": st.sampled_from([0.8, 1.3]),
                "frequency_penalty": st.sampled_from([-0.5, 1.5]),
                "dry_multiplier": st.sampled_from([0.8]),
                "no_repeat_ngram_size": st.sampled_from([1, 3]),
                "xtc_probability": st.sampled_from([0.5]),
                "guidance_scale": st.sampled_from([1.5]),
                "logprobs": st.just(True),
                "eos_token_id": st.just([*range(0, 256, 11)]),
                "stop_strings": st.just(["a", "é", "EN"]),
                "min_new_tokens": st.sampled_from([5]),
            },
        )
    )


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=sampling(), model=st.integers(0, 99), count=st.integers(1, 4), new=st.integers(1, 12))
def test_a_seed_is_an_answer_streamed_or_not_alone_or_with_others(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any], model: int, count: int, new: int
) -> None:
    graphs = RandomGraphs(model)
    llm = fake_llm(tmp_path_factory.mktemp("fake") / "fake", graphs)
    options = {**options, "max_new_tokens": new}
    whole = llm.generate(PROMPT, num_return_sequences=count, **options)
    expected = [(choice.text, choice.token_ids, choice.finish_reason, choice.matched) for choice in whole.choices]

    def told(result: GenerationResult) -> list[Any]:
        return [(choice.text, choice.token_ids, choice.finish_reason, choice.matched) for choice in result.choices]

    texts, ids, result = streamed(llm, PROMPT, num_return_sequences=count, **options)
    assert told(result) == expected
    assert (texts, ids) == ([one[0] for one in expected], [one[1] for one in expected])
    assert told(llm.generate(PROMPT, **options)) == expected[:1]
    together = llm.stream(PROMPT, num_return_sequences=count + 1, **options), llm.stream(PROMPT, **options)
    assert told(together[0].wait())[:count] == expected
    assert told(together[1].wait()) == expected[:1]
    assert all(np.isfinite([entry.logprob for entry in choice.logprobs]).all() for choice in whole.choices)


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    model=st.integers(0, 99),
    beams=st.integers(2, 5),
    new=st.integers(1, 10),
    penalties=st.fixed_dictionaries(
        {},
        optional={
            "repetition_penalty": st.just(1.5),
            "frequency_penalty": st.just(1.0),
            "dry_multiplier": st.just(0.8),
            "no_repeat_ngram_size": st.sampled_from([1, 2]),
            "sequence_bias": st.just([[[5, 6], 3.0]]),
            "stop_strings": st.just(["a", "é", "EN"]),
        },
    ),
)
def test_beams_are_the_same_streamed_or_not(
    tmp_path_factory: pytest.TempPathFactory, model: int, beams: int, new: int, penalties: dict[str, Any]
) -> None:
    llm = fake_llm(tmp_path_factory.mktemp("fake") / "fake", RandomGraphs(model))
    options: dict[str, Any] = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": new, **penalties}
    whole = llm.generate(PROMPT, **options)
    texts, ids, result = streamed(llm, PROMPT, **options)
    expected = [(choice.text, choice.token_ids, choice.score) for choice in whole.choices]
    assert [(choice.text, choice.token_ids, choice.score) for choice in result.choices] == expected
    assert (texts, ids) == ([one[0] for one in expected], [one[1] for one in expected])
