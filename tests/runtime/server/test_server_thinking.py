"""Thinking over the wire: effort, switches under the names that clients have for them, template variables, limits."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.runtime.saying import ASKED, TEMPLATE, THINKING, Saying, saying
from tests.runtime.server.material import CHAT, client_of, error_of

SWITCHED = TEMPLATE + "{{ '<think>\\n' if enable_thinking else '' }}"
LEVELS = "({{ reasoning_effort | default('medium') }})" + TEMPLATE
ALIKE = ("thinking_budget", "thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


def chatting(folder: Path, template: str, answer: str = "Yes.") -> tuple[TestClient, Saying]:
    llm, graphs = saying(folder, answer, template)
    return client_of(llm), graphs


def prompt_of(folder: Path, template: str, **asked: Any) -> str:
    """Return the prompt that the model reads of a chat."""
    client, graphs = chatting(folder, template)
    response = client.post(CHAT, json={"messages": ASKED, **asked})
    assert response.status_code == 200, response.text
    return graphs.prompt


@pytest.mark.parametrize(
    ("asked", "thinks"),
    [
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "xhigh"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": None}, False),
        ({"thinking": True}, True),
        ({"thinking": {"type": "enabled"}}, True),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "adaptive"}}, False),
        ({"enable_thinking": True}, True),
        ({"reasoning": {"effort": "high"}}, True),
        ({"reasoning": {"enabled": True, "exclude": False, "max_tokens": None}}, True),
        ({"reasoning": {"effort": None}}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"thinking": True}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"enable_thinking": None}}, False),
        ({"chat_template_kwargs": {}}, False),
    ],
)
def test_thinking_is_switched_by_every_name_that_clients_have(
    folder: Path, asked: dict[str, Any], thinks: bool
) -> None:
    assert prompt_of(folder, SWITCHED, **asked).endswith("<assistant><think>\n" if thinks else "<assistant>")


@pytest.mark.parametrize(
    ("effort", "level"), [("minimal", "low"), ("low", "low"), ("medium", "medium"), ("xhigh", "high"), (None, "medium")]
)
def test_an_effort_is_the_nearest_level_of_the_template(folder: Path, effort: str | None, level: str) -> None:
    assert prompt_of(folder, LEVELS, reasoning_effort=effort).startswith(f"({level})<user>")


def test_the_shared_case_of_reasoning_effort(folder: Path) -> None:
    body = {
        "model": "fake",
        "max_tokens": 1,
        "reasoning_effort": "low",
        "messages": [{"role": "user", "content": "hi"}],
    }
    client, graphs = chatting(folder, SWITCHED)
    assert client.post(CHAT, json=body).status_code == 200
    assert graphs.prompt == "<user>hi<assistant><think>\n"


@pytest.mark.parametrize("asked", [{"reasoning_effort": "none"}, {"thinking": False}, {"enable_thinking": False}])
def test_a_model_that_does_not_think_may_be_asked_not_to(folder: Path, asked: dict[str, Any]) -> None:
    assert prompt_of(folder, TEMPLATE, **asked).endswith("<assistant>")


@pytest.mark.parametrize(
    ("template", "asked", "param", "said"),
    [
        (
            THINKING,
            {"reasoning_effort": "none"},
            "reasoning_effort",
            "this model always thinks aloud: leave it out, or",
        ),
        (TEMPLATE, {"thinking": True}, "thinking", "thinking: True cannot be had, as this model does not think aloud"),
        (LEVELS, {"reasoning_effort": "none"}, "reasoning_effort", "'low' is the least effort it can be asked for"),
        (TEMPLATE, {"reasoning_effort": "lo"}, "reasoning_effort", "'xhigh' or 'max' expected, found 'lo'"),
        (TEMPLATE, {"reasoning_effort": 3}, "reasoning_effort", "expected, found 3"),
        (
            SWITCHED,
            {"thinking": {"type": "on"}},
            "thinking",
            "thinking.type: enabled, disabled, auto, adaptive expected",
        ),
        (
            SWITCHED,
            {"thinking": {"budget": 3}},
            "thinking",
            "'budget' is not a key of thinking (did you mean 'budget_tok",
        ),
        (
            SWITCHED,
            {"thinking": "on"},
            "thinking",
            "thinking: true or false or an object of type, budget_tokens",
        ),
        (SWITCHED, {"reasoning": "low"}, "reasoning", "reasoning: an object of effort, max_tokens, enabled, exclude"),
        (SWITCHED, {"reasoning": {"efort": "low"}}, "reasoning", "'efort' is not a key of reasoning (did"),
        (SWITCHED, {"reasoning": {"exclude": True}}, "reasoning", "reasoning.exclude: True is not supported"),
        (SWITCHED, {"max_thinking_tokens": -1}, "max_thinking_tokens", "must be at least 0, found -1"),
        (SWITCHED, {"thinking_budget": -1}, "thinking_budget", "thinking_budget: must be at least 0, found -1"),
        (SWITCHED, {"enable_thinking": True, "thinking": True}, "enable_thinking", "would say the same: keep one"),
        (SWITCHED, {"thinking": False, "reasoning_effort": "low"}, "thinking", "contradicts reasoning_effort 'low'"),
        (SWITCHED, {"chat_template_kwargs": 3}, "chat_template_kwargs", "an object of template variables expected"),
        (
            SWITCHED,
            {"chat_template_kwargs": {"messages": []}},
            "chat_template_kwargs",
            "'messages' is not supported: it is not a variable of its own",
        ),
        (
            SWITCHED,
            {"chat_template_kwargs": {"enable_thinkin": True}},
            "chat_template_kwargs",
            "'enable_thinkin' is not read by this model's chat template (did you mean 'enable_thinking'?)",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(
    folder: Path, template: str, asked: dict[str, Any], param: str, said: str
) -> None:
    client, graphs = chatting(folder, template)
    response = client.post(CHAT, json={"messages": ASKED, **asked})
    assert response.status_code == 400, response.text
    assert said in error_of(response)["message"]
    assert error_of(response)["param"] == param
    assert graphs.runs == []


def limits() -> list[dict[str, Any]]:
    return [
        *({name: 3} for name in (*ALIKE, "max_thinking_tokens")),
        {"reasoning": {"max_tokens": 3}},
        {"thinking": {"type": "auto", "budget_tokens": 3}},
    ]


@pytest.mark.parametrize("limit", limits(), ids=json.dumps)
def test_thoughts_end_at_their_limit(folder: Path, limit: dict[str, Any]) -> None:
    client, _ = chatting(folder, THINKING, "Let me see.\n</think>\n\nYes.")
    message = client.post(CHAT, json={"messages": ASKED, **limit}).json()["choices"][0]["message"]
    assert message["reasoning_content"] == "Let"


def test_completions_have_no_thoughts(folder: Path) -> None:
    client, _ = chatting(folder, SWITCHED)
    for name in ("thinking", "reasoning_effort", "max_thinking_tokens", "reasoning", "chat_template_kwargs"):
        response = client.post("/v1/completions", json={"prompt": "Once", name: None})
        assert error_of(response)["code"] == "unknown_parameter"


def test_messages_and_responses_end_thoughts_at_their_limit(folder: Path) -> None:
    client, _ = chatting(folder, THINKING, "a" * 1200 + "\n</think>\n\nYes.")
    asked = {"messages": ASKED, "max_tokens": 1500, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    thought, *_ = client.post("/v1/messages", json=asked).json()["content"]
    assert thought["thinking"] == "a" * 1024
    response = client.post("/v1/responses", json={"input": "Hello", "max_thinking_tokens": 8}).json()
    assert response["output"][0]["content"][0]["text"] == "a" * 8


def test_a_message_to_a_model_that_does_not_think_needs_no_budget(folder: Path) -> None:
    client, _ = chatting(folder, TEMPLATE)
    asked = {
        "messages": ASKED,
        "max_tokens": 1500,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "high"},
    }
    assert client.post("/v1/messages", json=asked).json()["content"][0]["text"] == "Yes."


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (TEMPLATE, {"switch": False, "efforts": [], "thinks": False}),
        (THINKING, {"switch": False, "efforts": [], "thinks": True}),
        (SWITCHED, {"switch": True, "efforts": [], "thinks": True}),
        (LEVELS, {"switch": False, "efforts": ["low", "medium", "high"], "thinks": True}),
    ],
)
def test_props_tell_what_a_chat_may_ask_for(folder: Path, template: str, told: dict[str, Any]) -> None:
    client, _ = chatting(folder, template)
    assert client.get("/props").json()["thinking"] == told
