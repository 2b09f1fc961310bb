"""Thinking in chats: switched, asked for by effort, and ended at the most tokens it may have."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgegen.errors import ConversationError, OptionError, UsageError
from edgegen.llm import LLM
from edgegen.options.generation import GenerationOptions
from tests.runtime.models import EOS, FakeGraphs, fake_llm
from tests.runtime.saying import ASKED, CALL, TEMPLATE, THINKING, get_weather

SWITCHED = TEMPLATE + "{{ '<think>\\n' if enable_thinking else '<think>\\n\\n</think>\\n\\n' }}"
CLOSED = "\n</think>\n\n"
ENDLESS = "0123456789" * 20


class Thinking(FakeGraphs):
    """Thinks ``thought`` until it is ended, by itself or not, and then says ``answer``."""

    def __init__(self, thought: str, answer: str, opening: str = "") -> None:
        super().__init__(self._next)
        self._thought, self._answer = (opening + thought + CLOSED).encode(), answer.encode()

    def _next(self, ids: list[int]) -> int:
        text = bytes(token if token < 256 else 0 for token in ids)
        said = text.rpartition(b"<assistant>")[2]
        begun = said.removeprefix(b"<think>\n") if b"<think>" not in self._thought else said
        thought, closed, answer = begun.partition(b"</think>\n\n")
        left = self._answer[len(answer) :] if closed else self._thought[len(thought) :]
        return left[0] if left else EOS


def thinking(folder: Path, thought: str, answer: str = "Hello!", template: str = THINKING, opening: str = "") -> LLM:
    return fake_llm(folder, Thinking(thought, answer, opening), config={"eos_token_id": EOS}, template=template)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


@pytest.mark.parametrize("most", [0, 1, 4, 9])
def test_thoughts_are_ended_at_their_most_tokens_and_the_answer_goes_on(folder: Path, most: int) -> None:
    with thinking(folder, ENDLESS) as llm:
        result = llm.chat(ASKED, max_thinking_tokens=most)
    assert result.text == ENDLESS[:most] + CLOSED + "Hello!"
    assert (result.reasoning_content, result.content) == (ENDLESS[:most], "Hello!")
    assert result.finish_reason == "stop"


def test_thoughts_that_end_by_themselves_are_left_alone(folder: Path) -> None:
    with thinking(folder, "Hm.") as llm:
        assert llm.chat(ASKED, max_thinking_tokens=20).text == llm.chat(ASKED).text == "Hm." + CLOSED + "Hello!"


@pytest.mark.parametrize("most", [0, 3])
def test_thoughts_that_the_answer_begins_are_counted_from_their_marker(folder: Path, most: int) -> None:
    template = TEMPLATE + "{# </think> #}"
    with thinking(folder, ENDLESS, template=template, opening="<think>") as llm:
        result = llm.chat(ASKED, max_thinking_tokens=most)
    assert result.text == "<think>" + ENDLESS[:most] + CLOSED + "Hello!"


def test_an_answer_without_thoughts_has_no_limit(folder: Path) -> None:
    with thinking(folder, "", "12345678", template=SWITCHED) as llm:
        assert llm.chat(ASKED, thinking=False, max_thinking_tokens=3).content == "12345678"


def test_a_character_is_not_cut(folder: Path) -> None:
    with thinking(folder, "äöü€" * 20) as llm:
        assert llm.chat(ASKED, max_thinking_tokens=3).reasoning_content == "äö"
        assert llm.chat(ASKED, max_thinking_tokens=7).reasoning_content == "äöü€"


def test_ended_thoughts_are_the_same_in_a_batch_and_by_proposals(folder: Path) -> None:
    asked: dict[str, Any] = {"max_thinking_tokens": 12, "max_new_tokens": 60}
    with thinking(folder, ENDLESS) as llm:
        alone = llm.chat(ASKED, **asked)
        streams = [llm.stream_chat(ASKED, **asked) for _ in range(4)]
        assert [stream.wait().token_ids for stream in streams] == [alone.token_ids] * 4
        proposed = llm.chat(ASKED, **asked, prompt_lookup_num_tokens=8)
        assert proposed.speculation.accepted > 0
        assert proposed.token_ids == alone.token_ids


def test_each_of_several_answers_has_the_limit(folder: Path) -> None:
    with thinking(folder, ENDLESS) as llm:
        sampled = llm.chat(ASKED, max_thinking_tokens=5, num_return_sequences=3, temperature=0.5, seed=1)
        beams = llm.chat(ASKED, max_thinking_tokens=5, num_beams=2)
    assert [choice.reasoning_content for choice in sampled.choices] == [ENDLESS[:5]] * 3
    assert beams.text == ENDLESS[:5] + CLOSED + "Hello!"


def test_log_probabilities_of_forced_tokens_are_the_model_s(folder: Path) -> None:
    with thinking(folder, ENDLESS) as llm:
        result = llm.chat(ASKED, max_thinking_tokens=4, logprobs=True)
    model_s_own, forced = result.logprobs[3].logprob, result.logprobs[4].logprob
    assert model_s_own > -0.01
    assert forced < -10


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_tool_is_called_after_thoughts_that_were_ended(folder: Path, choice: str) -> None:
    tools: Sequence[Any] = [get_weather]
    with thinking(folder, ENDLESS, CALL) as llm:
        result = llm.chat(ASKED, tools=tools, tool_choice=choice, max_thinking_tokens=6, max_new_tokens=200,
                          json_whitespace="flexible")  # fmt: skip
    assert result.reasoning_content == ENDLESS[:6]
    assert [call.arguments for call in result.tool_calls] == [{"city": "Oslo"}]


def test_a_session_goes_on_after_thoughts_that_were_ended(folder: Path) -> None:
    from edgegen.generation.session import Session

    session = Session()
    with thinking(folder, ENDLESS) as llm:
        first = llm.chat(ASKED, session=session, max_thinking_tokens=6)
        again = [*session.messages, {"role": "user", "content": "And then?"}]
        second = llm.chat(again, session=session, max_thinking_tokens=2)
    assert (first.reasoning_content, second.reasoning_content) == (ENDLESS[:6], ENDLESS[:2])


@pytest.mark.parametrize(
    ("asked", "thinks"),
    [({"thinking": True}, True), ({"thinking": False}, False), ({"reasoning_effort": "none"}, False),
     ({"reasoning_effort": "low"}, True)],
)  # fmt: skip
def test_thinking_is_switched(folder: Path, asked: dict[str, Any], thinks: bool) -> None:
    with thinking(folder, "Hm.", template=SWITCHED) as llm:
        result = llm.chat(ASKED, **asked)
        shown = llm.decode(llm.encode_chat(ASKED, **asked), skip_special_tokens=False)
    assert shown.endswith("<think>\n" if thinks else "</think>\n\n")
    assert result.reasoning_content == ("Hm." if thinks else "")


def test_what_cannot_be_asked_is_refused(folder: Path) -> None:
    with thinking(folder, "Hm.") as llm:
        with pytest.raises(ConversationError, match="thinking: False cannot be had, as this model always thinks aloud"):
            llm.chat(ASKED, thinking=False)
        for call in (llm.generate, llm.stream):
            with pytest.raises(UsageError, match="thinking, max_thinking_tokens are for chats"):
                call("Hello", thinking=True, max_thinking_tokens=3)
    with pytest.raises(OptionError, match="thinking: True contradicts reasoning_effort 'none'"):
        GenerationOptions(thinking=True, reasoning_effort="none")


def test_a_model_s_files_do_not_decide_on_thinking() -> None:
    assert GenerationOptions.from_config({"thinking": True, "max_thinking_tokens": 3}).thinking is None
