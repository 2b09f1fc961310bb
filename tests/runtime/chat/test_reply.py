"""Answers split into content, reasoning and tool calls: every format, cut anywhere, and what is malformed."""

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.chat import ChatTemplate, Conversation
from edgegen.chat.layout import answer_layout
from edgegen.chat.reasoning import ReasoningMarkers
from edgegen.chat.reply import Reply, ReplyFormat, ReplyParser
from edgegen.chat.tool_formats import FORMATS, HERMES, ToolFormat, tool_format
from edgegen.chat.tools import ToolCall, Tools
from edgegen.errors import ChatTemplateError, ConversationError
from tests.runtime.chat.material import SPECIAL, template_sources

PROPERTIES = {"city": {"type": "string"}, "days": {"type": "integer"}, "more": {"type": "object"}}
PARAMETERS: dict[str, Any] = {"type": "object", "properties": PROPERTIES, "required": []}
TOOLS = Tools.read(
    [
        {"type": "function", "function": {"name": name, "description": name, "parameters": PARAMETERS}}
        for name in ("get_weather", "look_up")
    ]
)
assert TOOLS is not None
THINK = ReasoningMarkers("<think>", "</think>")
Call = tuple[str, dict[str, Any]]


def written(style: ToolFormat, calls: list[Call]) -> str:
    """The calls as a model of the family writes them."""

    def entry(name: str, arguments: dict[str, Any]) -> str:
        call_id = {style.id_key: "0"} if style.id_key else {}
        function = {style.name_key: name, style.arguments_key: arguments}
        return json.dumps({**function, **call_id} if style.id_last else {**call_id, **function}, ensure_ascii=False)

    def value(given: Any) -> str:
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)

    match style.body:
        case "list":
            opening = style.opening.removesuffix("[") + (f"\n{style.fence}\n" if style.fence else "")
            return f"{opening}[{', '.join(entry(*call) for call in calls)}]{style.closing}"
        case "keyed":
            return f"{style.opening}[{', '.join(value({name: given}) for name, given in calls)}]{style.closing}"
        case "python":
            texts = [
                f"{name}({', '.join(f'{key}={given!r}' for key, given in arguments.items())})"
                for name, arguments in calls
            ]
            return f"{style.opening}[{', '.join(texts)}]{style.closing}"
        case "braces":
            return "".join(f"{style.opening}call:{name}{braces(given)}{style.closing}" for name, given in calls)
        case "object" if not style.opening:
            return "; ".join(entry(*call) for call in calls)
        case "object":
            between = "\n" if style.closing else ""
            return between.join(f"{style.opening}{style.pad}{entry(*call)}{style.pad}{style.closing}" for call in calls)
        case "named":
            begin, end = style.wrappers or ("", "")
            names = [style.name_text.format(name=name, n=n, id=f"call_{n}") for n, (name, _) in enumerate(calls)]
            texts = [
                f"{style.opening}{name}{style.separator}{json.dumps(arguments)}{style.pad}{style.closing}"
                for name, (_, arguments) in zip(names, calls, strict=True)
            ]
            return begin + style.pad.join(texts) + end
        case "functions":
            tags = style.tags

            def argument(key: str, given: Any) -> str:
                named = tags.typed.format("true" if isinstance(given, str) else "false") or tags.named
                return f"{tags.parameter}{key}{named}{tags.pad}{value(given)}{tags.pad}{tags.parameter_end}\n"

            texts = [
                f"{tags.function}{name}{tags.named}\n"
                + "".join(argument(key, given) for key, given in arguments.items())
                + tags.function_end
                for name, arguments in calls
            ]
            if style.several:
                return "\n".join([style.opening, *texts, style.closing])
            return "\n".join(f"{style.opening}\n{text}\n{style.closing}" for text in texts)
        case "pairs":
            return "\n".join(
                f"{style.opening}{name}\n"
                + "".join(
                    f"<arg_key>{key}</arg_key>\n<arg_value>{value(given)}</arg_value>\n"
                    for key, given in arguments.items()
                )
                + style.closing
                for name, arguments in calls
            )


def braces(given: Any, level: int = 0) -> str:
    """A value as Gemma 4's template writes it."""
    if isinstance(given, str):
        return f'<|"|>{given}<|"|>'
    if isinstance(given, dict):
        entries = cast(dict[str, Any], given).items()
        return "{" + ",".join(f"{braces(key) if level else key}:{braces(v, level + 1)}" for key, v in entries) + "}"
    return json.dumps(given)


def parsed(form: ReplyFormat, pieces: list[str]) -> tuple[str, str, list[Call]]:
    parser = ReplyParser(form)
    reply = sum((parser.push(piece) for piece in pieces), Reply()) + parser.finish()
    return reply.content, reply.reasoning_content, [(call.name, call.arguments) for call in reply.tool_calls]


def joined(reply: Reply) -> list[tuple[str, str, str]]:
    """The calls as their deltas tell them: id, name, arguments as JSON text."""
    calls = list[tuple[str, str, str]]()
    for delta in reply.tool_call_deltas:
        if delta.id is not None:
            assert delta.name is not None
            assert delta.index == len(calls)
            calls.append((delta.id, delta.name, delta.arguments))
        else:
            assert (delta.index, delta.name) == (len(calls) - 1, None)
            call_id, name, arguments = calls[-1]
            calls[-1] = (call_id, name, arguments + delta.arguments)
    return calls


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places})
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


WORDS = st.text(string.ascii_letters + string.digits + " .,'é日😀", max_size=12)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "city": WORDS.map(str.strip),
        "days": st.integers(-99, 99),
        "more": st.dictionaries(WORDS, st.sampled_from(["x", True, None, '"}]</tool_call>\\']), max_size=2),
    },
)  # fmt: skip
CALLS = st.lists(st.tuples(st.sampled_from(["get_weather", "look_up"]), ARGUMENTS), min_size=1, max_size=3)
STYLES = pytest.mark.parametrize("style", FORMATS, ids=lambda style: style.name)


@STYLES
@settings(max_examples=25, deadline=None)
@given(calls=CALLS, content=WORDS.map(str.strip), thought=WORDS.map(str.strip), places=st.lists(st.integers(0, 2000)))
def test_calls_come_back_however_the_text_is_cut(
    style: ToolFormat, calls: list[Call], content: str, thought: str, places: list[int]
) -> None:
    if style.body in ("functions", "pairs"):  # a value that holds the closing tag is not told from its end
        calls = [(name, {key: arguments[key] for key in arguments if key != "more"}) for name, arguments in calls]
    if not style.opening:
        content, calls = "", calls[:1] if style.single else calls
    text = f"<think>\n{thought}\n</think>\n\n{content}\n{written(style, calls)}\n"
    form = ReplyFormat(THINK, style=style, tools=TOOLS)
    assert parsed(form, cut(text, places)) == (content, thought, calls)
    assert parsed(form, list(text)) == (content, thought, calls)


@STYLES
@pytest.mark.parametrize("constrained", [False, True])
@settings(max_examples=25, deadline=None)
@given(calls=CALLS, thought=WORDS.map(str.strip), places=st.lists(st.integers(0, 2000)), end=st.integers(0, 2000))
def test_the_deltas_of_a_call_are_the_call(
    style: ToolFormat, constrained: bool, calls: list[Call], thought: str, places: list[int], end: int
) -> None:
    if style.body in ("functions", "pairs"):
        calls = [(name, {key: arguments[key] for key in arguments if key != "more"}) for name, arguments in calls]
    calls = calls[:1] if style.single else calls
    text = f"<think>\n{thought}\n</think>\n\n{written(style, calls)}\n"
    form = ReplyFormat(THINK, style=style, tools=TOOLS, constrained=constrained)

    def read(text: str) -> Reply:
        parser = ReplyParser(form)
        return sum((parser.push(piece) for piece in cut(text, places)), Reply()) + parser.finish()

    whole = read(text)
    assert [(call.name, call.arguments) for call in whole.tool_calls] == calls
    assert joined(whole) == [(call.id, call.name, call.arguments_json) for call in whole.tool_calls]
    assert [json.loads(arguments) for *_, arguments in joined(whole)] == [arguments for _, arguments in calls]
    short = read(text[: end % (len(text) + 1)])  # as max_new_tokens cuts it
    told, count = joined(short), len(short.tool_calls)
    assert told[:count] == [(call.id, call.name, call.arguments_json) for call in short.tool_calls]
    assert len(told) <= count + constrained
    assert [(call.name, call.arguments) for call in short.tool_calls] == calls[:count]
    assert all(said[2].startswith(begun[2]) for said, begun in zip(joined(whole), told, strict=False))
    if constrained and style.opening:  # a marker that is cut short cannot be known as one
        assert any(marker.startswith(short.content.strip()) for marker in ("<think>", style.opening, *style.wrappers))


@STYLES
def test_constrained_calls_are_given_out_while_they_are_written(style: ToolFormat) -> None:
    parser = ReplyParser(ReplyFormat(style=style, tools=TOOLS, constrained=True))
    text = written(style, [("look_up", {"city": "Oslo", "days": 3})])
    before, _, after = text.partition("days")
    begun = parser.push(before)
    ((_, name, arguments),) = joined(begun)
    assert name == "look_up"
    assert arguments.startswith('{"city": "Oslo"')
    assert begun.tool_calls == ()
    rest = parser.push(f"days{after}") + parser.finish()
    assert [delta.id for delta in rest.tool_call_deltas] == [None] * len(rest.tool_call_deltas)
    assert arguments + "".join(delta.arguments for delta in rest.tool_call_deltas) == rest.tool_calls[0].arguments_json


ALPHABET = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "{", "}", '"', "[", "]", "\\", " ",
     "\n", "x", '{"name": "look_up", "arguments": {}}', "look_up", "<function=look_up>", "</function>",
     "<|python_tag|>",
     "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_calls_section_begin|>", "<", "<t"]
)  # fmt: skip


@STYLES
@settings(max_examples=25, deadline=None)
@given(
    text=st.lists(ALPHABET, max_size=14).map("".join), places=st.lists(st.integers(0, 2000)), in_reasoning=st.booleans()
)
def test_no_text_fails_and_no_cut_matters(style: ToolFormat, text: str, places: list[int], in_reasoning: bool) -> None:
    form = ReplyFormat(THINK, in_reasoning=in_reasoning, style=style, tools=TOOLS)
    whole = parsed(form, [text])
    assert parsed(form, cut(text, places)) == whole
    assert parsed(form, list(text)) == whole


MALFORMED = [
    (HERMES, '<tool_call>\n{"name": "look_up", "arguments": \n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "look_up", "arguments": 3}\n</tool_call> and on'),
    (HERMES, '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>'),
    (HERMES, "Write <tool_call> to call one."),
    (HERMES, '<tool_call>{"name": "look_up", "arguments": {"a": NaN}}</tool_call>'),
    (HERMES, '<tool_call>{"name": ["look_up"], "arguments": {}}</tool_call>'),
    *((style, '{"name": "look_up"}') for style in FORMATS if style.name == "llama"),
    *((style, '<|python_tag|>search.call(query="x")') for style in FORMATS if style.name == "llama"),
    *((style, "[TOOL_CALLS][]") for style in FORMATS if style.name == "mistral"),
    *((style, "[TOOL_CALLS]look_up") for style in FORMATS if style.name == "mistral-named"),
]


@pytest.mark.parametrize(("style", "text"), MALFORMED)
def test_malformed_calls_are_content(style: ToolFormat, text: str) -> None:
    form = ReplyFormat(style=style, tools=TOOLS)
    assert parsed(form, [text]) == (text, "", [])
    assert parsed(form, list(text)) == (text, "", [])


def test_a_call_behind_a_malformed_one_is_a_call() -> None:
    good = '<tool_call>{"name": "look_up", "arguments": {"days": 2}}</tool_call>'
    content, _, calls = parsed(ReplyFormat(style=HERMES, tools=TOOLS), [f"<tool_call>oh</tool_call>\n{good}"])
    assert content == "<tool_call>oh</tool_call>"
    assert calls == [("look_up", {"days": 2})]


def test_a_call_that_lacks_its_last_marker_is_a_call() -> None:
    text = '<tool_call>{"name": "look_up", "arguments": {}}'
    assert parsed(ReplyFormat(style=HERMES, tools=TOOLS), [text]) == ("", "", [("look_up", {})])


def test_content_is_given_out_at_once() -> None:
    parser = ReplyParser(ReplyFormat(THINK, style=HERMES, tools=TOOLS))
    given_out = [parser.push(piece).content for piece in ("It", " rains", " <", "b> ", "now")]
    assert given_out == ["It", " rains", "", " <b>", " now"]


def test_thoughts_are_given_out_at_once() -> None:
    parser = ReplyParser(ReplyFormat(THINK, in_reasoning=True))
    pieces = [parser.push(piece) for piece in ("\nWell", ", hm", ".\n</thi", "nk>\n\n", "Yes")]
    assert [piece.reasoning_content for piece in pieces] == ["Well", ", hm", ".", "", ""]
    assert [piece.content for piece in pieces] == ["", "", "", "", "Yes"]


def test_thoughts_that_are_cut_short_are_thoughts() -> None:
    assert parsed(ReplyFormat(THINK), ["<think>\nSo far </thi"]) == ("", "So far </thi", [])


def test_only_the_beginning_of_an_answer_is_thought() -> None:
    assert parsed(ReplyFormat(THINK), ["Say <think> aloud"]) == ("Say <think> aloud", "", [])


def test_the_markers_of_one_prompt_end() -> None:
    assert THINK.left_open("<|im_start|>assistant\n<think>\n")
    assert not THINK.left_open("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not THINK.left_open("<|im_start|>assistant\n")


def written_by_templates(test_data: Path) -> Iterator[tuple[str, ReplyFormat, list[Call], str]]:
    """Each family's own template, how to read it, and two calls or one as it renders them."""
    given: list[Call] = [("get_weather", {"city": "Ålesund"}), ("look_up", {"city": "Oslo", "days": 3})]
    assert TOOLS is not None
    for name, source in template_sources(test_data).items():
        template = ChatTemplate({"default": source}, SPECIAL)
        # DeepSeek's own template shows calls, but no tools; templates of its users show both.
        style = tool_format(source if name != "deepseek-ai-DeepSeek-V3.1" else source + "{# tools #}")
        if style is not None and (texts := [text for n in (1, 2) for text in _rendered(template, given[:n])]):
            form = ReplyFormat(style=style, tools=TOOLS, layout=answer_layout(source))
            yield from ((name, form, given[: text.count("city")], text) for text in texts)


def _rendered(template: ChatTemplate, given: list[Call]) -> Iterator[str]:
    calls = [ToolCall(f"abcdefgh{n}", *call, "") for n, call in enumerate(given)]
    said = Reply("", "", tuple(calls)).to_message()
    assert TOOLS is not None
    asked = Conversation([{"role": "user", "content": "XYZZY"}], TOOLS.definitions)
    reads = template.capabilities(asked)
    if not reads.calls or (len(given) > 1 and not reads.parallel_calls):  # as text, or as several turns
        return
    described = {key: {**PROPERTIES[key], "description": key} for key in ("city", "days")}  # what Command R+ reads
    simple = {**PARAMETERS, "properties": described}
    tools = [{"type": "function", "function": {**tool["function"], "parameters": simple}} for tool in TOOLS.definitions]
    variables = {"functions": json.dumps(tools), "datetime": "today"}  # as firefunction's model card has it
    functions = [{"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)} for name, arguments in given]
    as_text = [{"id": "abcdefgh0", "type": "function", "function": function} for function in functions]
    for content, written_calls in (("", said["tool_calls"]), (None, said["tool_calls"]), ("", as_text)):
        messages = [{"role": "user", "content": "XYZZY"}, {**said, "content": content, "tool_calls": written_calls}]
        conversation = Conversation(messages, tools=tools, add_generation_prompt=False, variables=variables)
        try:
            text = template.render(conversation)
        except (ConversationError, ChatTemplateError):
            continue
        text = text.rpartition("XYZZY")[2].rpartition("<|SYSTEM_TOKEN|>Write")[0] or text.rpartition("XYZZY")[2]
        if all(name in text for name, _ in given):  # Granite 3.3's leaves earlier calls out
            yield text
            return


def part_of(form: ReplyFormat, text: str) -> str:
    """Return the model's part of a rendering: from the first call, or from the end of the prompt, to the last call."""
    style = form.style
    assert style is not None
    if form.layout is not None and form.layout.headers is not None:
        return text.partition(form.layout.headers.begin)[2].removesuffix("<|call|>")
    begin = text.index(style.wrappers[0] if style.wrappers else style.opening or "{")
    ends = (style.closing, *style.wrappers[1:], "}", "]")
    last = max(text.rfind(end, begin) + len(end) for end in ends if end and end in text)
    return text[begin : last if style.opening else text.rindex("}") + 1]


def test_calls_that_a_template_writes_are_read(test_data: Path) -> None:
    """The golden rendering of each family's own templates is what its parser reads, call for call."""
    read = set[str]()
    for name, form, calls, text in written_by_templates(test_data):
        assert form.style is not None
        shown = text if form.style.opening and form.layout is None else part_of(form, text)
        assert parsed(form, [shown])[2] == calls, f"{name}: {text}"
        assert parsed(form, list(shown))[2] == calls, f"{name}: {text}"
        read.add(form.style.name)
    # Their templates do not write calls into a conversation.
    assert read == {style.name for style in FORMATS} - {"granite", "lfm2", "chatglm4", "yandexgpt"}
