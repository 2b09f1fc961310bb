"""The table of edge cases, each in its own words, each on a model that is as good as new after it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.errors import LogitsError
from edgegen.llm import LLM
from tests.runtime.generation.edge_cases import CASES, CONTEXT, DEFAULTS, LOGITS_CASES, PROMPT, EdgeCase
from tests.runtime.models import EOS, RandomGraphs, fake_llm


class WrongGraphs(RandomGraphs):
    """One logit after texts of ``length`` ids is ``value``."""

    value: float | None = None
    length = 0

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        logits = super().logits(ids)
        if self.value is not None and len(ids) == self.length:
            logits[3] = self.value
        return logits


@pytest.fixture(scope="module")
def graphs() -> WrongGraphs:
    return WrongGraphs(seed=1)


@pytest.fixture(scope="module")
def llm(graphs: WrongGraphs, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """One for all, which so shows what a case leaves behind."""
    return fake_llm(tmp_path_factory.mktemp("fake") / "fake", graphs, max_context=CONTEXT)


def generate(llm: LLM, prompt: Any, options: dict[str, Any]) -> Any:
    call: Any = llm.generate
    return call(prompt, **{**DEFAULTS, **options})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_edge_case(llm: LLM, graphs: WrongGraphs, case: EdgeCase) -> None:
    expected = generate(llm, PROMPT, {"seed": 7}).token_ids
    graphs.runs.clear()
    graphs.value, graphs.length = case.wrong, len(case.prompt or ()) + case.at
    try:
        check_error(llm, graphs, case) if case.error else check_answers(llm, case)
    finally:
        graphs.value = None
    assert generate(llm, PROMPT, {"seed": 7}).token_ids == expected


def check_error(llm: LLM, graphs: WrongGraphs, case: EdgeCase) -> None:
    with pytest.raises(case.kind) as caught:
        generate(llm, case.prompt, case.options)
    assert type(caught.value) is case.kind
    for words in case.error:
        assert words in str(caught.value)
    assert issubclass(case.kind, LogitsError) == bool(graphs.runs)


def check_answers(llm: LLM, case: EdgeCase) -> None:
    result = generate(llm, case.prompt, case.options)
    assert len(result.choices) == case.answers
    assert case.ids is None or result.token_ids == case.ids
    assert case.count is None or {len(choice.token_ids) for choice in result.choices} == {case.count}
    assert case.end is None or (result.finish_reason, result.stopped_by) == case.end
    if case.like is not None:
        alike = generate(llm, case.prompt, case.like).token_ids
        assert {choice.token_ids for choice in result.choices} == {alike}
    again = generate(llm, case.prompt, {**case.options, **({"seed": result.seed} if result.seed is not None else {})})
    assert [one.token_ids for one in again.choices] == [one.token_ids for one in result.choices]


def test_a_model_without_a_beginning_refuses_an_empty_prompt(tmp_path: Path) -> None:
    llm = fake_llm(tmp_path / "fake", RandomGraphs(), config={})
    with pytest.raises(ValueError, match="the prompt is empty"):
        llm.generate("")
    with pytest.raises(ValueError, match="the negative prompt is empty"):
        llm.generate("a", guidance_scale=2.0, negative_prompt="")
    assert fake_llm(tmp_path / "other", RandomGraphs()).encode("") == [EOS]


def test_a_list_of_no_prompts_has_no_answers(llm: LLM) -> None:
    """An empty list is one of texts; an empty prompt of ids is a tuple."""
    assert llm.generate([]) == []


def test_there_are_enough() -> None:
    """And every case says what comes of it."""
    assert len(CASES) >= 80
    assert len({case.name for case in CASES}) == len(CASES)
    assert len(LOGITS_CASES) >= 80
    for case in CASES:
        said = (case.error, case.like is not None, case.ids, case.count, case.end)
        assert any(said), case.name
