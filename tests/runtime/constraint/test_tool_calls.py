"""Calls that must be made: whatever a model says, it is calls of the tools, and the parser reads them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgegen.chat.reasoning import ReasoningMarkers
from edgegen.chat.reply import Reply, ReplyFormat, ReplyParser
from edgegen.chat.tool_formats import FORMATS, HERMES, ToolFormat
from edgegen.chat.tools import Tools
from edgegen.constraint import ToolCallConstraint, Whitespace
from edgegen.errors import ConstraintError
from tests.runtime.chat.test_reply import joined, parsed, part_of, written, written_by_templates
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


def flexible(form: ReplyFormat, special: Mapping[str, int]) -> ToolCallConstraint:
    """Calls as templates write them, with their spaces."""
    return ToolCallConstraint.of(form, special, "flexible")


def by_name(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


@STYLES
def test_each_call_is_allowed_as_its_family_writes_it(qwen: Vocabulary, style: ToolFormat) -> None:
    for call in CALLS:
        constraint = flexible(form_of(style, by_name(call[0])), {})
        assert qwen.accepts(constraint, written(style, [call]))
        assert not qwen.accepts(constraint, "Hello")
        other = next(known for known in CALLS if known[0] != call[0])
        assert not qwen.accepts(constraint, written(style, [other]))


def test_a_call_that_must_be_made_is_compact(qwen: Vocabulary) -> None:
    """And one that a model begins by itself may have the spaces of its template, and no others."""
    compact = '<tool_call>\n{"name":"add","arguments":{"a":1,"b":2}}\n</tool_call>'
    spaced = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    broken = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2\n}}\n</tool_call>'
    cases: list[tuple[str, Whitespace, list[bool]]] = [
        ("required", "compact", [True, False, False]),
        ("auto", "compact", [True, True, False]),
        ("required", "flexible", [True, True, True]),
        ("auto", "flexible", [True, True, True]),
    ]
    for choice, whitespace, allowed in cases:
        constraint = ToolCallConstraint.of(form_of(HERMES, choice), {}, whitespace)
        assert [qwen.accepts(constraint, text) for text in (compact, spaced, broken)] == allowed, (choice, whitespace)
    assert ToolCallConstraint.of(form_of(HERMES), {}) == ToolCallConstraint.of(form_of(HERMES), {}, "compact")


@pytest.mark.slow
def test_calls_are_allowed_as_templates_write_them(qwen: Vocabulary, test_data: Path) -> None:
    seen = set[tuple[str, str]]()
    for name, form, calls, text in written_by_templates(test_data):
        assert form.style is not None
        assert form.tools is not None
        said = part_of(form, text)
        if (form.style.name, said) in seen:
            continue
        seen.add((form.style.name, said))
        for required in (True, False):
            state = qwen.start(flexible(replace(form, tools=replace(form.tools, required=required)), {}))
            ids = qwen.encode(said)
            allowed = state.valid_prefix(ids)
            assert allowed == ids, f"{name}: {calls} {said!r} only {qwen.tokenizer.decode(allowed)!r}"


@STYLES
def test_several_calls_are_allowed_unless_one_is_named(qwen: Vocabulary, style: ToolFormat) -> None:
    assert qwen.accepts(flexible(form_of(style), {}), written(style, CALLS)) == (not style.single)
    one = Tools.read(DEFINITIONS, "required", parallel=False)
    assert qwen.accepts(flexible(ReplyFormat(style=style, tools=one), {}), written(style, CALLS[2:]))
    assert not qwen.accepts(flexible(ReplyFormat(style=style, tools=one), {}), written(style, CALLS))
    assert not qwen.accepts(flexible(form_of(style, by_name("now")), {}), written(style, CALLS[2:] * 2))


@STYLES
def test_whatever_comes_out_is_read_as_calls(gpt2: Vocabulary, style: ToolFormat) -> None:
    # A value between tags ends when the model likes, and this one has no sense: it may only choose.
    definitions = CHOOSING if style.body in ("pairs", "functions", "braces") else DEFINITIONS
    form, read = ReplyFormat(style=style, tools=Tools.read(definitions, "required")), 0
    for seed in range(4):
        answer = generate(FakeModel(gpt2, seed), flexible(form, {}), seed=seed, most=400)
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
    may = flexible(form_of(HERMES, reasoning=THINK), {})
    assert qwen.accepts(may, call)
    assert qwen.accepts(may, f"<think>\nHm {{.\n</think>\n\n{call}")
    assert not qwen.accepts(may, f"Hm.</think>\n\n{call}")
    must = flexible(form_of(HERMES, reasoning=THINK, in_reasoning=True), {})
    assert qwen.accepts(must, f"Hm.\n</think>\n\n{call}")
    assert not qwen.accepts(must, call)


@STYLES
def test_calls_in_free_text_are_calls_of_the_tools(qwen: Vocabulary, style: ToolFormat) -> None:
    free, call = flexible(form_of(style, "auto"), {}), written(style, CALLS[:1])
    before = "I look. <tool, {x}\n" if style.opening else ""
    for text in ("", "Hello {", "<think>", before + call, before + written(style, CALLS[: 1 if style.single else 3])):
        assert qwen.accepts(free, text)
    for broken in (call.replace("city", "town"), call.replace("Oslo", "Oslo</arg_value>").replace("unit", "units")):
        assert not qwen.accepts(free, broken)
    unknown = call.replace("get_weather", "get_wether")
    assert qwen.accepts(free, unknown) == (not style.opening)
    state = qwen.start(free)
    assert state.valid_prefix(qwen.encode(call)) == qwen.encode(call)
    one = Tools.read(DEFINITIONS, "auto", parallel=False)
    single = flexible(ReplyFormat(style=style, tools=one), {})
    assert qwen.accepts(single, "Hello")
    assert qwen.accepts(single, before + written(style, CALLS[2:]))
    assert not qwen.accepts(single, before + written(style, CALLS[1:]))


@STYLES
@pytest.mark.parametrize("begun", [True, False])
def test_what_is_thought_is_no_call(qwen: Vocabulary, style: ToolFormat, begun: bool) -> None:
    form = form_of(style, "auto", reasoning=THINK, in_reasoning=begun)
    call, opening = written(style, CALLS[:1]), "" if begun else "<think>\n"
    broken = call.replace("city", "town")
    free = flexible(form, {})
    for said in ("", "\n\nYes.", "\n\n" + call):
        assert qwen.accepts(free, f"{opening}Hm, {broken}</think>{said}")
    assert qwen.accepts(free, f"{opening}Hm, {broken}")
    assert not qwen.accepts(free, f"{opening}Hm.\n</think>\n\n{broken}")
    assert qwen.accepts(free, broken) == begun


PIECES = ["<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "{", "}", " ", "\n", "x", "; ",
          '{"name": "now"', "<|python_tag|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"]  # fmt: skip


@STYLES
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.sampled_from([*PIECES, *range(3), *range(3)]), max_size=7), thinks=st.booleans())
@example(["<|python_tag|>", 0, "<think>"], False)
def test_free_text_is_read_as_the_grammar_has_it(
    qwen: Vocabulary, style: ToolFormat, pieces: list[str | int], thinks: bool
) -> None:
    text = "".join(written(style, [CALLS[piece]]) if isinstance(piece, int) else piece for piece in pieces)
    form = form_of(style, "auto", reasoning=THINK if thinks else None)
    ids = qwen.encode(text)
    state = qwen.start(flexible(form, {}))
    prefix = state.valid_prefix(ids)
    for token_id in prefix:
        state.accept(token_id)
    parser = ReplyParser(replace(form, constrained=True))
    reply = sum((parser.push(letter) for letter in qwen.tokenizer.decode(prefix)), Reply()) + parser.finish()
    told, calls = joined(reply), [(call.id, call.name, call.arguments_json) for call in reply.tool_calls]
    assert told[: len(calls)] == calls
    assert len(told) <= len(calls) + (not state.may_stop)
    if state.may_stop and prefix == ids:
        content, thought, read = parsed(form, [text])
        assert read == [(call.name, call.arguments) for call in reply.tool_calls]
        assert (content.strip(), thought) == (reply.content.strip(), reply.reasoning_content)


def test_a_marker_that_is_a_special_token_is_that_token(qwen: Vocabulary) -> None:
    def encode(text: str) -> list[int]:
        return qwen.tokenizer.encode(text, add_special_tokens=False)

    style = ToolFormat("of special tokens", (), "<|vision_start|>", "<|vision_end|>", "object")
    special = {text: token_id for text in style.markers if (token_id := qwen.tokenizer.token_to_id(text)) is not None}
    assert len(special) == 2
    constraint = flexible(form_of(style), special)
    assert qwen.accepts(constraint, encode(written(style, CALLS[:1])))
    think = ReasoningMarkers("<|box_start|>", "<|box_end|>")
    special |= {text: encode(text)[0] for text in (think.opening, think.closing)}
    for begun in (True, False):
        free = flexible(form_of(style, "auto", reasoning=think, in_reasoning=begun), special)
        call, opening = written(style, CALLS), "" if begun else "<|box_start|>"
        broken = call.replace("city", "town")
        assert qwen.accepts(free, encode(f"{opening}Hm, {broken}<|box_end|>Well,\n{call}\nor so"))
        assert not qwen.accepts(free, encode(f"{opening}Hm.<|box_end|>Well,\n{broken}"))
        assert qwen.accepts(free, encode(f"Well,\n{broken}")) == begun
        assert not qwen.accepts(free, encode(f"{opening}Hm.<|box_end|><|box_start|>"))


def test_an_argument_that_cannot_be_enforced_is_named(qwen: Vocabulary) -> None:
    def form(argument: dict[str, Any], style: ToolFormat) -> ReplyFormat:
        parameters = {"type": "object", "properties": {"x": argument}}
        return ReplyFormat(
            style=style,
            tools=Tools.read([{"type": "function", "function": {"name": "f", "parameters": parameters}}], "required"),
        )

    with pytest.raises(ConstraintError, match=r"the arguments of the tool 'f' cannot be enforced: .*control character"):
        flexible(form({"enum": ["\x01"]}, HERMES), {})
    with pytest.raises(ConstraintError, match=r"the grammar of the tool calls cannot be used: .*uniqueItems"):
        qwen.start(flexible(form({"type": "array", "uniqueItems": True}, HERMES), {}))
    tags = next(style for style in FORMATS if style.body == "functions")
    with pytest.raises(ConstraintError, match="the tool 'f' has an argument 'x' whose pattern"):
        flexible(form({"type": "string", "pattern": "a+"}, tags), {})
