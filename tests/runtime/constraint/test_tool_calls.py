"""Calls that must be made: whatever a model says, it is calls of the tools, and the parser reads them."""

from dataclasses import replace
from typing import Any

import pytest

from edgegen.chat.reasoning import ReasoningMarkers
from edgegen.chat.reply import Reply, ReplyFormat, ReplyParser
from edgegen.chat.tool_formats import FORMATS, HERMES, ToolFormat
from edgegen.chat.tools import Tools
from edgegen.constraint import ToolCallConstraint
from edgegen.errors import ConstraintError
from tests.runtime.chat.test_reply import joined, written
from tests.runtime.constraint.fake_model import FakeModel, generate
from tests.runtime.constraint.vocabulary import Vocabulary

THINK = ReasoningMarkers("<think>", "</think>")
UNITS = {"type": "string", "enum": ["C", "F"]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {"properties": {"city": {"type": "string"}, "unit": UNITS}, "required": ["city"]},
    "add": {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
    "now": {"properties": {}},
}
DEFINITIONS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "additionalProperties": False, **schema}},
    }
    for name, schema in SCHEMAS.items()
]
CHOICE: dict[str, Any] = {"properties": {"unit": UNITS, "n": {"enum": [1, 2]}}, "required": ["n"]}
CHOOSING = [{"type": "function", "function": {"name": "choose", "parameters": {"type": "object", **CHOICE}}}]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_weather", {"city": "Oslo", "unit": "C"}),
    ("add", {"a": -3, "b": 12}),
    ("now", {}),
]
STYLES = pytest.mark.parametrize("style", FORMATS, ids=lambda style: style.name)


def form_of(style: ToolFormat, choice: Any = "required", **more: Any) -> ReplyFormat:
    return ReplyFormat(style=style, tools=Tools.read(DEFINITIONS, choice), **more)


def by_name(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


@STYLES
def test_each_call_is_allowed_as_its_family_writes_it(qwen: Vocabulary, style: ToolFormat) -> None:
    for call in CALLS:
        constraint = ToolCallConstraint.of(form_of(style, by_name(call[0])), {})
        assert qwen.accepts(constraint, written(style, [call]))
        assert not qwen.accepts(constraint, "Hello")
        other = next(known for known in CALLS if known[0] != call[0])
        assert not qwen.accepts(constraint, written(style, [other]))


@STYLES
def test_several_calls_are_allowed_unless_one_is_named(qwen: Vocabulary, style: ToolFormat) -> None:
    if style.name == "kimi":  # whose calls are numbered; any number is read
        return
    assert qwen.accepts(ToolCallConstraint.of(form_of(style), {}), written(style, CALLS))
    assert not qwen.accepts(ToolCallConstraint.of(form_of(style, by_name("now")), {}), written(style, CALLS[2:] * 2))


@STYLES
def test_whatever_comes_out_is_read_as_calls(gpt2: Vocabulary, style: ToolFormat) -> None:
    # A value between tags ends when the model likes, and this one has no sense: it may only choose.
    definitions = CHOOSING if style.body in ("pairs", "functions") else DEFINITIONS
    form, read = ReplyFormat(style=style, tools=Tools.read(definitions, "required")), 0
    for seed in range(4):
        answer = generate(FakeModel(gpt2, seed), ToolCallConstraint.of(form, {}), seed=seed, most=400)
        if answer.finish is None:
            continue
        parser, streamed = ReplyParser(form), ReplyParser(replace(form, constrained=True))
        reply = parser.push(answer.text) + parser.finish()
        pieces = sum((streamed.push(letter) for letter in answer.text), Reply()) + streamed.finish()
        assert [(call.name, call.arguments) for call in pieces.tool_calls] == [
            (call.name, call.arguments) for call in reply.tool_calls
        ]
        assert joined(pieces) == [(call.id, call.name, call.arguments_json) for call in pieces.tool_calls]
        assert pieces.content == ""
        assert reply.content == "", answer.text
        assert reply.tool_calls, answer.text
        for call in reply.tool_calls:
            schema = {**SCHEMAS, "choose": CHOICE}[call.name]
            assert {*schema.get("required", ())} <= call.arguments.keys() <= schema["properties"].keys()
        read += 1
    assert read


def test_thoughts_may_come_first(qwen: Vocabulary) -> None:
    call = written(HERMES, CALLS[:1])
    may = ToolCallConstraint.of(form_of(HERMES, reasoning=THINK), {})
    assert qwen.accepts(may, call)
    assert qwen.accepts(may, f"<think>\nHm {{.\n</think>\n\n{call}")
    assert not qwen.accepts(may, f"Hm.</think>\n\n{call}")
    must = ToolCallConstraint.of(form_of(HERMES, reasoning=THINK, in_reasoning=True), {})
    assert qwen.accepts(must, f"Hm.\n</think>\n\n{call}")
    assert not qwen.accepts(must, call)


def test_a_marker_that_is_a_special_token_is_that_token(qwen: Vocabulary) -> None:
    style = ToolFormat("of special tokens", (), "<|vision_start|>", "<|vision_end|>", "object")
    special = {text: token_id for text in style.markers if (token_id := qwen.tokenizer.token_to_id(text)) is not None}
    assert len(special) == 2
    constraint = ToolCallConstraint.of(form_of(style), special)
    assert qwen.accepts(constraint, qwen.tokenizer.encode(written(style, CALLS[:1]), add_special_tokens=False))


def test_an_argument_that_cannot_be_enforced_is_named(qwen: Vocabulary) -> None:
    def form(argument: dict[str, Any], style: ToolFormat) -> ReplyFormat:
        parameters = {"type": "object", "properties": {"x": argument}}
        return ReplyFormat(
            style=style,
            tools=Tools.read([{"type": "function", "function": {"name": "f", "parameters": parameters}}], "required"),
        )

    with pytest.raises(ConstraintError, match=r"the arguments of the tool 'f' cannot be enforced: .*control character"):
        ToolCallConstraint.of(form({"enum": ["\x01"]}, HERMES), {})
    with pytest.raises(ConstraintError, match=r"the grammar of the tool calls cannot be used: .*uniqueItems"):
        qwen.start(ToolCallConstraint.of(form({"type": "array", "uniqueItems": True}, HERMES), {}))
    tags = next(style for style in FORMATS if style.body == "functions")
    with pytest.raises(ConstraintError, match="the tool 'f' has an argument 'x' whose pattern"):
        ToolCallConstraint.of(form({"type": "string", "pattern": "a+"}, tags), {})
