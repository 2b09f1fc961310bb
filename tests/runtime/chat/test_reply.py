"""Answers split into content, reasoning and tool calls: every format, cut anywhere, and what is malformed."""

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.chat import ChatTemplate, Conversation
from edgegen.chat.reasoning import ReasoningMarkers, reasoning_markers
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
            return f"{style.opening}[{', '.join(entry(*call) for call in calls)}]{style.closing}"
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
        case "functions" if style.several:
            texts = [
                f'<invoke name="{name}">\n'
                + "".join(f'<parameter name="{key}">{value(given)}</parameter>\n' for key, given in arguments.items())
                + "</invoke>"
                for name, arguments in calls
            ]
            return "\n".join([style.opening, *texts, style.closing])
        case "functions":
            texts = [
                f"<function={name}>\n"
                + "".join(
                    f"<parameter={key}>{style.tags.pad}{value(given)}{style.tags.pad}</parameter>\n"
                    for key, given in arguments.items()
                )
                + "</function>"
                for name, arguments in calls
            ]
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
        content = ""
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
    if constrained and style.opening:  # of a marker that is cut short nobody knows that it is one
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


FAMILIES = {
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", None),
    "Qwen-Qwen3-0.6B": ("hermes", "<think>"),
    "Qwen-QwQ-32B": ("hermes", "<think>"),
    "Qwen3-Coder": ("qwen3-coder", None),
    "Qwen3.5-4B": ("qwen3-coder", "<think>"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", None),
    "ibm-granite-granite-4.0": ("hermes", None),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", "<think>"),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama", None),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama", None),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", None),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral-id", None),
    "unsloth-mistral-Devstral-Small-2507": ("mistral-named", None),
    "llama-cpp-deepseek-r1": ("deepseek-r1", "<think>"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("command-r", "<|START_THINKING|>"),
    "MiniMax-M2": ("minimax", "<think>"),
    "GigaChat3.1-10B-A1.8B": ("gigachat", None),
    "meetkai-functionary-medium-v3.1": ("functionary", None),
    "upstage-Solar-Open-100B": ("solar", None),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral-named", "[THINK]"),
    "Kimi-K2-Thinking": ("kimi", "<think>"),
    "GLM-4.6": ("glm", "<think>"),
    "ByteDance-Seed-OSS": ("seed-oss", "<seed:think>"),
    "NVIDIA-Nemotron-Nano-v2": ("nemotron", "<think>"),
    "unsloth-Apriel-1.5": ("apriel", None),
    "google-gemma-2-2b-it": (None, None),
    "microsoft-Phi-3.5-mini-instruct": (None, None),
    "openai-gpt-oss-120b": (None, None),
}


def test_the_family_is_found_in_the_template(test_data: Path) -> None:
    sources = template_sources(test_data)
    found = {name: (tool_format(sources[name]), reasoning_markers(sources[name])) for name in FAMILIES}
    assert {name: (s and s.name, r and r.opening) for name, (s, r) in found.items()} == FAMILIES


def written_by_templates(test_data: Path) -> Iterator[tuple[str, ToolFormat, list[Call], str]]:
    """Each family's own template, its format, and two calls or one as it renders them, up to the end of the turn."""
    given: list[Call] = [("get_weather", {"city": "Ålesund"}), ("look_up", {"city": "Oslo", "days": 3})]
    assert TOOLS is not None
    for name, source in template_sources(test_data).items():
        template = ChatTemplate({"default": source}, SPECIAL)
        # DeepSeek's own template shows calls, but no tools; templates of its users show both.
        style = tool_format(source if name != "deepseek-ai-DeepSeek-V3.1" else source + "{# tools #}")
        if style is not None and (texts := [text for n in (1, 2) for text in _rendered(template, given[:n])]):
            yield from ((name, style, given[: text.count("city")], text) for text in texts)


def _rendered(template: ChatTemplate, given: list[Call]) -> Iterator[str]:
    calls = [ToolCall(f"abcdefgh{n}", *call, "") for n, call in enumerate(given)]
    said = Reply("", "", tuple(calls)).to_message()
    for content in ("", None):  # some write calls only in place of a content
        messages = [{"role": "user", "content": "XYZZY"}, {**said, "content": content}]
        assert TOOLS is not None
        try:
            text = template.render(Conversation(messages, tools=TOOLS.definitions, add_generation_prompt=False))
        except (ConversationError, ChatTemplateError):  # Llama's allow one call only
            continue
        text = text.rpartition("XYZZY")[2]
        if all(name in text for name, _ in given):  # Granite 3.3's leaves earlier calls out
            yield text
            return


def test_calls_that_a_template_writes_are_read(test_data: Path) -> None:
    """The golden rendering of each family's own templates is what its parser reads, call for call."""
    read = set[str]()
    for name, style, calls, text in written_by_templates(test_data):
        begin, end = (0, len(text)) if style.opening else (text.index("{"), text.rindex("}") + 1)
        _, _, got = parsed(ReplyFormat(style=style, tools=TOOLS), [text[begin:end]])
        assert got == calls, f"{name}: {text}"
        read.add(style.name)
    assert read == {style.name for style in FORMATS} - {"granite"}
