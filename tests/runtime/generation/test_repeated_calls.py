"""``tool_choice: required``: a model that repeats its call has called once, whole and streamed."""

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.saying import ASKED, get_weather, saying
from tests.runtime.server.material import CHAT, client_of, events

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
            "required": ["city"],
        },
    },
}


def call(city: str, unit: str = "") -> str:
    more = f',"unit":"{unit}"' if unit else ""
    return f'<tool_call>\n{{"name":"get_weather","arguments":{{"city":"{city}"{more}}}}}\n</tool_call>'


OSLO, ROME, WARMER = call("Oslo"), call("Rome"), call("Oslo", "F")
CASES: dict[str, tuple[list[str], list[str], bool]] = {
    "repeated": ([OSLO] * 5, [OSLO], True),
    "two, and one again": ([OSLO, ROME, OSLO, ROME], [OSLO, ROME], True),
    "the same beginning": ([OSLO, WARMER, ROME], [OSLO, WARMER, ROME], False),
    "once": ([OSLO], [OSLO], False),
}


def cities(calls: list[Any]) -> list[str]:
    return [call(one["city"], one.get("unit", "")) for one in calls]


@pytest.mark.parametrize("name", CASES)
def test_the_same_call_is_made_once(tmp_path: Path, name: str) -> None:
    said, expected, ends = CASES[name]
    llm, _ = saying(tmp_path / "model", "\n".join(said))
    result = llm.chat(ASKED, tools=[get_weather], tool_choice="required", max_new_tokens=600)
    assert cities([one.arguments for one in result.tool_calls]) == expected
    assert (result.finish_reason, result.content) == ("tool_calls", "")
    assert (len(result.token_ids) < len("\n".join(said))) == ends  # the answer ends with the repetition
    stream = llm.stream_chat(ASKED, tools=[get_weather], tool_choice="required", max_new_tokens=600)
    pieces = [piece for chunk in stream for piece in chunk.tool_call_deltas]
    joined = dict[int, str]()
    for piece in pieces:
        joined[piece.index] = joined.get(piece.index, "") + piece.arguments
    assert [*joined] == [*range(len(expected))]
    assert [*joined.values()] == [one.arguments_json for one in result.tool_calls]


def test_a_call_that_a_model_makes_by_itself_may_be_made_again(tmp_path: Path) -> None:
    llm, _ = saying(tmp_path / "model", f"{OSLO}\n{OSLO}")
    result = llm.chat(ASKED, tools=[get_weather], max_new_tokens=400)
    assert cities([one.arguments for one in result.tool_calls]) == [OSLO, OSLO]


def test_on_the_wire(tmp_path: Path) -> None:
    llm, _ = saying(tmp_path / "model", "\n".join([OSLO] * 4))
    body = {"messages": ASKED, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 600}
    client = client_of(llm)
    (choice,) = client.post(CHAT, json=body).json()["choices"]
    assert [one["function"]["arguments"] for one in choice["message"]["tool_calls"]] == ['{"city":"Oslo"}']
    assert choice["finish_reason"] == "tool_calls"
    chunks = [one["choices"][0] for one in events(client.post(CHAT, json=body | {"stream": True}).text)]
    told = [piece for one in chunks for piece in one["delta"].get("tool_calls", [])]
    assert {piece["index"] for piece in told} == {0}
    assert "".join(piece["function"]["arguments"] for piece in told) == '{"city":"Oslo"}'
    assert chunks[-1]["finish_reason"] == "tool_calls"
