"""LLM.chat with tools, reasoning and long conversations, over a model that says what the test wants."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from edgegen import CancelToken, Conversation, Session
from edgegen.errors import ConstraintError, ConversationError, OptionError, PromptTooLongError, UsageError
from tests.runtime.saying import ASKED, CALL, TEMPLATE, THINKING, get_weather, saying

PLAIN = TEMPLATE.replace("tools", "nothing")

COMPACT = '<tool_call>\n{"name":"get_weather","arguments":{"city":"Oslo"}}\n</tool_call>'
"""A call that must be made, as it is written."""
UNENFORCEABLE: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "not": {"required": ["town"]}},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bundle"


def undescribed(city: str) -> str:
    return city


def test_a_call_is_parsed(folder: Path) -> None:
    llm, graphs = saying(folder, f"I look.\n{CALL}")
    answer = llm.chat(ASKED, tools=[get_weather])
    (call,) = answer.tool_calls
    assert (call.name, call.arguments, json.loads(call.arguments_json)) == (
        "get_weather",
        {"city": "Oslo"},
        {"city": "Oslo"},
    )
    assert answer.finish_reason == "tool_calls"
    assert (answer.content, answer.text) == ("I look.", f"I look.\n{CALL}")
    assert '"name": "get_weather"' in graphs.prompt
    assert get_weather(**call.arguments) == "rain in Oslo, in C"


def test_the_answer_to_a_call_goes_on(folder: Path) -> None:
    llm, graphs = saying(folder, CALL)
    session = Session()
    answer = llm.chat(ASKED, tools=[get_weather], session=session)
    assert session.messages == (*ASKED, answer.message)
    result = {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "rain"}
    graphs.answer = b"It rains."
    last = llm.chat([*ASKED, answer.message, result], tools=[get_weather])
    assert (last.content, last.finish_reason, last.tool_calls) == ("It rains.", "stop", ())
    assert '[get_weather {"city": "Oslo"}]<tool>rain' in graphs.prompt


def test_arguments_may_be_json_text_as_in_openais_api(folder: Path) -> None:
    llm, graphs = saying(folder, "Yes.")
    function = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    calls = [{"id": "1", "type": "function", "function": function}]
    llm.chat([*ASKED, {"role": "assistant", "content": "", "tool_calls": calls}], tools=[get_weather])
    assert '[get_weather {"city": "Oslo"}]' in graphs.prompt


@pytest.mark.parametrize("asynchronous", [False, True])
def test_streamed_pieces_are_the_whole(folder: Path, asynchronous: bool) -> None:
    llm, _ = saying(folder, f"Hm, so.\n</think>\n\nI look.\n{CALL}\n{CALL}", THINKING)

    async def read() -> list[Any]:
        async with llm.stream_chat(ASKED, tools=[get_weather]) as stream:
            chunks = [chunk async for chunk in stream]
        return [chunks, stream.result]

    if asynchronous:
        chunks, result = asyncio.run(read())
    else:
        stream = llm.stream_chat(ASKED, tools=[get_weather])
        chunks, result = list(stream), stream.result
    assert "".join(chunk.content for chunk in chunks) == result.content == "I look."
    assert "".join(chunk.reasoning_content for chunk in chunks) == result.reasoning_content == "Hm, so."
    assert [call for chunk in chunks for call in chunk.tool_calls] == [*result.tool_calls]
    assert len(result.tool_calls) == 2
    assert "".join(chunk.text for chunk in chunks) == result.text
    assert chunks[-1].finish_reason == result.finish_reason == "tool_calls"


def test_a_model_that_thinks_aloud_needs_no_tools(folder: Path) -> None:
    llm, _ = saying(folder, "Hm.\n</think>\n\nHello!", THINKING)
    answer = llm.chat(ASKED)
    assert (answer.reasoning_content, answer.content) == ("Hm.", "Hello!")
    assert answer.message == {"role": "assistant", "content": "Hello!", "reasoning_content": "Hm."}


def test_without_tools_and_thoughts_content_is_the_text(folder: Path) -> None:
    llm, _ = saying(folder, CALL)
    answer = llm.chat(ASKED)
    assert (answer.content, answer.tool_calls, answer.finish_reason) == (CALL, (), "stop")
    assert answer.reasoning_content == ""


def test_with_tool_choice_none_the_model_is_told_of_no_tools(folder: Path) -> None:
    llm, graphs = saying(folder, CALL)
    answer = llm.chat(ASKED, tools=[get_weather], tool_choice="none")
    assert answer.content == CALL
    assert "get_weather" not in graphs.prompt


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_that_must_be_made_is_made(folder: Path, choice: Any) -> None:
    llm, _ = saying(folder, "I would rather talk.")
    answer = llm.chat(ASKED, tools=[get_weather], tool_choice=choice, max_new_tokens=20)
    assert answer.text.startswith("<tool_call>\n{")
    llm, _ = saying(folder / "willing", COMPACT)
    assert llm.chat(ASKED, tools=[get_weather], tool_choice=choice).tool_calls[0].arguments == {"city": "Oslo"}


def test_a_call_that_may_be_made_follows_its_schema(folder: Path) -> None:
    said = "I look.\n" + CALL.replace("get_weather", "get_wether").replace("city", "town")
    llm, _ = saying(folder, said)
    answer = llm.chat(ASKED, tools=[get_weather], max_new_tokens=60)
    assert answer.text.startswith('I look.\n<tool_call>\n{"name": "get_weather"')
    assert llm.chat(ASKED, tools=[get_weather], max_new_tokens=7).content == "I look."


def test_a_schema_that_cannot_be_enforced_is_an_error_only_where_a_call_must_be_made(folder: Path) -> None:
    llm, _ = saying(folder, CALL)
    stream = llm.stream_chat(ASKED, tools=[UNENFORCEABLE])
    deltas = [delta for chunk in stream for delta in chunk.tool_call_deltas]
    (call,) = stream.result.tool_calls
    assert [(d.index, d.id, d.name, d.arguments) for d in deltas] == [(0, call.id, "get_weather", '{"city": "Oslo"}')]
    with pytest.raises(ConstraintError, match=r"Unimplemented keys: .*not"):
        llm.chat(ASKED, tools=[UNENFORCEABLE], tool_choice="required")


def test_without_parallel_calls_there_is_one(folder: Path) -> None:
    rome = CALL.replace("Oslo", "Rome")
    llm, _ = saying(folder, f"{CALL}\n{rome}")
    spaced: dict[str, Any] = {"json_whitespace": "flexible"}
    for tool, choice in ((get_weather, "auto"), (get_weather, "required"), (UNENFORCEABLE, "auto")):
        answer = llm.chat(ASKED, tools=[tool], tool_choice=choice, parallel_tool_calls=False, **spaced)
        assert [call.arguments for call in answer.tool_calls] == [{"city": "Oslo"}]
        assert (answer.finish_reason, answer.text == CALL) == ("tool_calls", tool is get_weather)
        assert len(llm.chat(ASKED, tools=[tool], tool_choice=choice, **spaced).tool_calls) == 2
    assert llm.chat(ASKED, parallel_tool_calls=False).content == f"{CALL}\n{rome}"
    with pytest.raises(ConversationError, match="parallel_tool_calls is True or False, not 'no'"):
        llm.chat(ASKED, tools=[get_weather], parallel_tool_calls=cast(Any, "no"))


def test_a_constraint_of_another_kind_contradicts_a_call(folder: Path) -> None:
    llm, _ = saying(folder, "")
    with pytest.raises(ConstraintError, match="tool_choice asks for a tool call, and response_format"):
        llm.chat(ASKED, tools=[get_weather], tool_choice="required", response_format={"type": "json_object"})


def test_a_call_that_must_be_made_is_streamed_while_it_is_written(folder: Path) -> None:
    llm, _ = saying(folder, f"{COMPACT}\n{COMPACT.replace('Oslo', 'Rome')}")
    stream = llm.stream_chat(ASKED, tools=[get_weather], tool_choice="required")
    chunks, result = list(stream), stream.result
    deltas = [delta for chunk in chunks for delta in chunk.tool_call_deltas]
    for n, (call, city) in enumerate(zip(result.tool_calls, ("Oslo", "Rome"), strict=True)):
        assert [(d.id, d.name) for d in deltas if d.index == n and d.id] == [(call.id, "get_weather")]
        pieces = [delta.arguments for delta in deltas if delta.index == n]
        assert "".join(pieces) == call.arguments_json == f'{{"city":"{city}"}}'
        assert len([*filter(None, pieces)]) > (0 if n else 5)  # what begins as an earlier call is held back
    assert [call for chunk in chunks for call in chunk.tool_calls] == [*result.tool_calls]
    assert (result.content, result.finish_reason) == ("", "tool_calls")


def test_a_call_that_is_repeated_for_ever_comes_to_an_end(folder: Path) -> None:
    llm, _ = saying(folder, "\n".join(COMPACT.replace("Oslo", f"Oslo {n}") for n in range(20)))
    answer = llm.chat(ASKED, tools=[get_weather], tool_choice="required", max_new_tokens=1500)
    assert (len(answer.tool_calls), answer.finish_reason, answer.content) == (8, "tool_calls", "")


def test_a_call_that_is_cut_short_has_been_streamed(folder: Path) -> None:
    said = f"{COMPACT}\n{COMPACT.replace('Oslo', 'Rome')}"
    llm, _ = saying(folder, said)
    most = len(said.removesuffix('me"}}\n</tool_call>'))
    stream = llm.stream_chat(ASKED, tools=[get_weather], tool_choice="required", max_new_tokens=most)
    deltas = [delta for chunk in stream for delta in chunk.tool_call_deltas]
    assert "".join(delta.arguments for delta in deltas if delta.index == 1) == '{"city":"Ro'
    assert (len(stream.result.tool_calls), stream.result.finish_reason, stream.result.content) == (1, "length", "")


@pytest.mark.parametrize("template", [PLAIN, None])
def test_a_model_whose_template_knows_no_tools_is_told_of_them(folder: Path, template: str | None) -> None:
    llm, graphs = saying(folder, f" {CALL}", template)
    answer = llm.chat(ASKED, tools=[get_weather])
    assert [call.arguments for call in answer.tool_calls] == [{"city": "Oslo"}]
    assert "You may call functions" in graphs.prompt
    result = {"role": "tool", "tool_call_id": answer.tool_calls[0].id, "content": "rain"}
    graphs.answer = b" It rains."
    llm.chat([*ASKED, answer.message, result], tools=[get_weather])
    assert "<tool_response>\nrain\n</tool_response>" in graphs.prompt


def test_an_answer_cut_short_has_no_call(folder: Path) -> None:
    llm, _ = saying(folder, CALL)
    answer = llm.chat(ASKED, tools=[get_weather], max_new_tokens=30)
    assert (answer.finish_reason, answer.tool_calls, answer.content) == ("length", (), "")
    for most in (5, 12, 30):
        stream = llm.stream_chat(ASKED, tools=[UNENFORCEABLE], max_new_tokens=most)
        assert "".join(chunk.content for chunk in stream) == stream.result.content == ""
        assert (stream.result.finish_reason, stream.result.tool_calls) == ("length", ())
    token = CancelToken()
    token.cancel()
    assert llm.chat(ASKED, tools=[get_weather], cancel=token).tool_calls == ()


HARMONY = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}<|start|>{{ m.role }} to=all<|channel|>analysis<|message|>"
    "{{ m.content }}<|end|>{% endfor %}"
    "<|start|>assistant"
)
HARMONY_CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}'


def test_messages_with_headers_are_read(folder: Path) -> None:
    llm, _ = saying(folder, HARMONY_CALL, HARMONY)
    for choice in ("auto", "required"):
        stream = llm.stream_chat(ASKED, tools=[get_weather], tool_choice=choice, json_whitespace="flexible")
        chunks, result = list(stream), stream.result
        assert (result.content, result.finish_reason, result.text) == ("", "tool_calls", HARMONY_CALL)
        assert [call.arguments for call in result.tool_calls] == [{"city": "Oslo"}]
        deltas = [delta for chunk in chunks for delta in chunk.tool_call_deltas]
        assert "".join(delta.arguments for delta in deltas) == '{"city": "Oslo"}'
        assert len(deltas) > 5
    assert llm.chat(ASKED, tools=[UNENFORCEABLE]).tool_calls[0].arguments == {"city": "Oslo"}
    for most in range(1, len(HARMONY_CALL), 13):
        cut = llm.chat(ASKED, tools=[UNENFORCEABLE], max_new_tokens=most)
        assert (cut.content, cut.finish_reason) == ("", "length")


def test_what_a_message_with_a_header_says_goes_into_the_conversation(folder: Path) -> None:
    llm, graphs = saying(folder, "<|channel|>final<|message|>It rains.", HARMONY)
    session = Session()
    answer = llm.chat(ASKED, session=session)
    assert (answer.content, answer.reasoning_content) == ("It rains.", "")
    assert session.messages == (*ASKED, {"role": "assistant", "content": "It rains."})
    graphs.answer = b"<|channel|>analysis<|message|>Hm."
    answer = llm.chat(ASKED)
    assert (answer.content, answer.reasoning_content) == ("", "Hm.")


def test_each_of_several_answers_has_its_calls(folder: Path) -> None:
    llm, _ = saying(folder, CALL)
    answer = llm.chat(ASKED, tools=[get_weather], num_return_sequences=2, temperature=0.01)
    assert [len(choice.tool_calls) for choice in answer.choices] == [1, 1]


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"tools": "x"}, ConversationError, "tools must be a list of tools or functions, not str"),
    ({"tools": [3]}, ConversationError, r"tools\[0\] must be a dict or a function, not int"),
    ({"tools": [{"name": "f"}]}, ConversationError, r"tools\[0\] must be a dict such as"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, ConversationError, "not 'a b'"),
    (
        {"tools": [{"type": "function", "func": 1, "function": {"name": "f", "parameter": {}, "strict": 1}}, 3]},
        ConversationError,
        (
            r"4 problems:\n"
            r"  - tools\[0\]: 'func' is not a key of a tool \(did you mean 'function'\?\)\n"
            r"  - tools\[0\].function: 'parameter' is not a key of a function \(did you mean 'parameters'\?\)\n"
            r"  - tools\[0\].function.strict must be true or false, not 1\n"
            r"  - tools\[1\] must be a dict or a function, not int"
        ),
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "description": 3}}]},
        ConversationError,
        r"tools\[0\].function.description must be a text, not 3",
    ),
    ({"tools": [get_weather, get_weather]}, ConversationError, "tools has 'get_weather' twice"),
    ({"tools": [undescribed]}, ConversationError, "is the function undescribed, which has no docstring"),
    ({"tools": [get_weather], "tool_choice": "requird"}, ConversationError, "did you mean 'required'"),
    ({"tools": [get_weather], "tool_choice": 3}, ConversationError, "a tool_choice by name is"),
    (
        {"tools": [get_weather], "tool_choice": {"type": "function", "function": {"name": "get_weather"}, "x": 1}},
        ConversationError,
        "a tool_choice by name is",
    ),
    (
        {"tools": [get_weather], "tool_choice": {"type": "function", "function": {"name": "get_wether"}}},
        ConversationError,
        "'get_wether', which is no tool .did you mean 'get_weather'",
    ),
    ({"tools": [], "tool_choice": "required"}, ConversationError, "there are no tools"),
    ({"tool_choice": "required"}, UsageError, "tool_choice is for tools"),
    ({"context_overflow": "drop"}, OptionError, "context_overflow: 'error' or 'drop_oldest' expected, found 'drop'"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG)
def test_wrong_arguments_are_refused(
    folder: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    llm, graphs = saying(folder, "Hello")
    with pytest.raises(error, match=message):
        llm.chat(ASKED, **arguments)
    assert graphs.runs == []


def test_marks_for_prefix_caching_are_no_part_of_the_prompt(folder: Path) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    function = {"name": "now", "description": "The time.", "strict": None, "return": {"type": "string"}}
    prompts = list[str]()
    for name, more in (("plain", {}), ("marked", mark)):
        llm, graphs = saying(folder / name, "Noon")
        llm.chat(ASKED, tools=[{"type": "function", "function": function | more} | more])
        prompts.append(graphs.prompt)
    assert prompts[0] == prompts[1]
    assert "The time." in prompts[0]


def test_tools_of_a_conversation_are_tools(folder: Path) -> None:
    llm, _ = saying(folder, CALL)
    tool = {"type": "function", "function": {"name": "get_weather"}}
    assert len(llm.chat(Conversation(ASKED, tools=[tool])).tool_calls) == 1
    with pytest.raises(UsageError, match="tools are given twice"):
        llm.chat(Conversation(ASKED, tools=[tool]), tools=[tool])


LONG: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    *({"role": role, "content": f"{role} {n} " + "x" * 20} for n in range(8) for role in ("user", "assistant")),
    {"role": "user", "content": "And now?"},
]


def test_a_chat_that_outgrows_the_context_is_an_error(folder: Path) -> None:
    llm, _ = saying(folder, "Yes.", max_context=200)
    with pytest.raises(PromptTooLongError):
        llm.chat(LONG)


def test_the_oldest_turns_are_dropped_if_asked_for(folder: Path) -> None:
    llm, graphs = saying(folder, "Yes.", max_context=256)
    answer = llm.chat(LONG, context_overflow="drop_oldest", max_new_tokens=20)
    assert answer.content == "Yes."
    kept = [LONG[0], *LONG[1 + answer.dropped_messages :]]
    assert answer.dropped_messages > 0
    assert kept[1]["role"] == "user"
    assert graphs.prompt == llm.chat_template.render(Conversation(kept))
    more = [LONG[0], *LONG[answer.dropped_messages - 1 :]]
    assert len(llm.chat_template.render(Conversation(more))) > 256 - 20


def test_what_fits_is_not_dropped(folder: Path) -> None:
    llm, _ = saying(folder, "Yes.")
    assert llm.chat(LONG, context_overflow="drop_oldest", max_new_tokens=20).dropped_messages == 0


def test_the_last_turn_is_never_dropped(folder: Path) -> None:
    llm, _ = saying(folder, "Yes.", max_context=64)
    with pytest.raises(PromptTooLongError):
        llm.chat([*LONG, {"role": "user", "content": "x" * 90}], context_overflow="drop_oldest")
