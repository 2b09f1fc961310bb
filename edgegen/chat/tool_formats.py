"""ToolFormat: how the models of a template family write tool calls, as a table of markers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

BodyKind = Literal["object", "list", "keyed", "named", "functions", "pairs", "python", "braces"]
"""Form of a call between its markers.

``object``: JSON of name and arguments. ``list``: a JSON list of these. ``keyed``: a JSON list of ``{"name": {…}}``.
``named``: the name, ``separator``, the arguments as JSON. ``functions``:
``<function=name><parameter=key>value</parameter></function>``. ``pairs``: the name, then
``<arg_key>key</arg_key><arg_value>value</arg_value>``. ``python``: a list of Python's calls,
``[name(key="text", n=1)]``. ``braces``: ``call:name{key:<|"|>text<|"|>,n:1}``.
"""


QUOTE = '<|"|>'
"""Stands around the strings of ``braces``."""

_CONTROL = re.compile(r"<[|｜][^<>]*>|<[^<>|]*\|>|｜DSML｜|\[[A-Z_]+\]")


def control_texts(*texts: str) -> tuple[str, ...]:
    """``texts``, and parts that look like a control token: candidates for tokens of the model."""
    return tuple(dict.fromkeys(filter(None, (*texts, *_CONTROL.findall(" ".join(texts))))))


@dataclass(frozen=True, slots=True)
class Tags:
    """How ``functions`` are written: what stands before and after a name and a value.

    Attributes:
        typed: stands after the name of a value, and tells with ``true`` in place of ``{}`` that the value is a string.
        pad: stands before a value and after it, where it is not part of it.
    """

    function: str = "<function="
    parameter: str = "<parameter="
    named: str = ">"
    parameter_end: str = "</parameter>"
    function_end: str = "</function>"
    typed: str = ""
    pad: str = "\n"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The markers of one family.

    Attributes:
        signs: texts that all stand in a template of the family.
        opening: begins a call, or a list of calls, whose ``[`` it may have; the empty one: an answer that begins like a
            call is one.
        closing: ends it; the empty one: the end of the JSON does.
        pad: stands around the JSON of an ``object``, and after the JSON of a ``named`` one.
        id_key: of a list's entries, the key of an id that stands first.
        id_last: it stands last, or is left out.
        name_text: how the name of a ``named`` call stands; ``{n}`` is a number, ``{id}`` any id.
        wrappers: texts around all calls, which say nothing.
        tags: of ``functions``.
        several: after one opening marker several ``functions`` may stand.
        fence: stands between the opening marker and the JSON, among white space.
        no_call: names that a model calls to say that it calls nothing.
        turn_end: the token that ends what is said before a call, as well as a turn.
        single: an answer ends with its first call.
        indented: the templates write the JSON of calls in lines, with indentation.
    """

    name: str
    signs: tuple[str, ...]
    opening: str
    closing: str
    body: BodyKind
    name_key: str = "name"
    arguments_key: str = "arguments"
    separator: str = ""
    pad: str = ""
    id_key: str = ""
    id_last: bool = False
    name_text: str = "{name}"
    wrappers: tuple[str, ...] = ()
    tags: Tags = Tags()
    several: bool = False
    fence: str = ""
    no_call: tuple[str, ...] = ()
    turn_end: str = ""
    single: bool = False
    indented: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be control tokens of the model."""
        texts = (self.opening.strip(), self.closing, self.separator, self.turn_end, *self.wrappers, *self.in_calls)
        name = _CONTROL.findall(self.name_text)
        return tuple(dict.fromkeys((*control_texts(*texts), *name)))

    @property
    def in_calls(self) -> tuple[str, ...]:
        """Control tokens inside a call."""
        tags = (self.tags.function, self.tags.parameter, self.tags.parameter_end, self.tags.function_end)
        return {
            "named": ("[CALL_ID]",),
            "functions": tuple(tag for tag in tags if _CONTROL.search(tag)),
            "pairs": ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
            "braces": (QUOTE,),
        }.get(self.body, ())

    @property
    def body_start(self) -> int:
        """Where in a text that begins with the opening marker the call begins."""
        return len(self.opening) - self.opening.endswith("[")


HERMES = ToolFormat("hermes", ("<tool_call>",), "<tool_call>", "</tool_call>", "object", pad="\n")
"""Qwen 2.5 and 3, Hermes, Granite 4, and every model whose own format is unknown."""

FORMATS = (
    ToolFormat("qwen3-coder", ("<tool_call>", "<function=", "<parameter="), "<tool_call>", "</tool_call>", "functions"),
    ToolFormat(
        "seed-oss",
        ("seed:tool_call", "<function="),
        "<seed:tool_call>",
        "</seed:tool_call>",
        "functions",
        tags=Tags(pad=""),
    ),
    ToolFormat("glm", ("<tool_call>", "<arg_key>"), "<tool_call>", "</tool_call>", "pairs"),
    ToolFormat("apriel", ("<tool_calls>[",), "<tool_calls>", "</tool_calls>", "list"),
    HERMES,
    ToolFormat("nemotron", ("<TOOLCALL>[",), "<TOOLCALL>", "</TOOLCALL>", "list"),
    ToolFormat("granite", ("<|tool_call|>",), "<|tool_call|>", "", "list"),
    ToolFormat(
        "mistral-id",
        ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
        "[TOOL_CALLS]",
        "",
        "named",
        separator="[ARGS]",
        name_text="{name}[CALL_ID]{id}",
    ),
    ToolFormat("mistral-named", ("[TOOL_CALLS]", "[ARGS]"), "[TOOL_CALLS]", "", "named", separator="[ARGS]"),
    ToolFormat("mistral", ("[TOOL_CALLS]",), "[TOOL_CALLS]", "", "list", id_key="id", id_last=True),
    ToolFormat(
        "kimi",
        ("<|tool_call_begin|>", "<|tool_call_argument_begin|>"),
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
        "named",
        separator="<|tool_call_argument_begin|>",
        name_text="functions.{name}:{n}",
        wrappers=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    ToolFormat(
        "deepseek-r1",
        ("<｜tool▁call▁begin｜>", "```json"),
        "<｜tool▁call▁begin｜>",
        "```<｜tool▁call▁end｜>",
        "named",
        separator="\n```json\n",
        pad="\n",
        name_text="function<｜tool▁sep｜>{name}",
        wrappers=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    ToolFormat(
        "deepseek",
        ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"),
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "named",
        separator="<｜tool▁sep｜>",
        wrappers=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    ToolFormat(
        "solar",
        ("<|tool_call:begin|>", "<|tool_call:args|>"),
        "<|tool_call:begin|>",
        "<|tool_call:end|>",
        "named",
        separator="<|tool_call:args|>",
        name_text="{id}<|tool_call:name|>{name}",
        wrappers=("<|tool_calls|>", "<|calls|>"),
    ),
    ToolFormat(
        "command-r",
        ("<|START_ACTION|>", "tool_name"),
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "list",
        name_key="tool_name",
        arguments_key="parameters",
        id_key="tool_call_id",
        indented=True,
    ),
    ToolFormat(
        "minimax",
        ("<minimax:tool_call>", "<invoke name="),
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        "functions",
        tags=Tags('<invoke name="', '<parameter name="', '">', "</parameter>", "</invoke>", pad=""),
        several=True,
    ),
    ToolFormat("gigachat", ("<|function_call|>",), "<|function_call|>", "", "object"),
    ToolFormat(
        "gigachat-3",
        ("'function call'", "<|role_sep|>", "<|message_sep|>"),
        "function call<|role_sep|>\n",
        "",
        "object",
        turn_end="<|message_sep|>",
        single=True,
    ),
    ToolFormat(
        "harmony",
        ("<|channel|>", "<|message|>", "to="),
        "<|channel|>commentary to=functions.",
        "",
        "named",
        separator="<|message|>",
        name_text="{name} <|constrain|>json",
        single=True,
    ),
    ToolFormat("gemma", ("<|tool_call>", "<tool_call|>"), "<|tool_call>", "<tool_call|>", "braces"),
    ToolFormat("apertus", ("<|tools_prefix|>",), "<|tools_prefix|>", "<|tools_suffix|>", "keyed"),
    ToolFormat("lfm2", ("List of tools: ",), "<|tool_call_start|>", "<|tool_call_end|>", "python"),
    ToolFormat(
        "command-r-plus",
        ("Action:", "tool_name", "```json"),
        "Action:",
        "```",
        "list",
        name_key="tool_name",
        arguments_key="parameters",
        fence="```json",
        indented=True,
        no_call=("directly-answer", "directly_answer"),
    ),
    ToolFormat("firefunction", ("functools[",), "functools[", "", "list"),
    ToolFormat(
        "deepseek-dsml",
        ("DSML", "function_calls>"),
        "<｜DSML｜function_calls>",
        "</｜DSML｜function_calls>",
        "functions",
        tags=Tags(
            '<｜DSML｜invoke name="',
            '<｜DSML｜parameter name="',
            '">',
            "</｜DSML｜parameter>",
            "</｜DSML｜invoke>",
            typed='" string="{}">',
            pad="",
        ),
        several=True,
    ),
    ToolFormat("functionary-v3.2", (">>>all",), ">>>", "", "named", separator="\n"),
    ToolFormat("yandexgpt", ("[TOOL_CALL_START]",), "[TOOL_CALL_START]", "", "named", separator="\n"),
    ToolFormat("functionary", ("<function=", "</function>"), "<function=", "</function>", "named", separator=">"),
    ToolFormat("llama", ('"parameters"', "ipython"), "", "", "object", arguments_key="parameters"),
    ToolFormat("chatglm4", ("[gMASK]", "# 可用工具"), "", "", "named", separator="\n", single=True),
)
"""By family; the first whose signs a template has is its format."""

PYTHON_TAG = "<|python_tag|>"
"""Stands before the calls of some Llama models."""

_WRITES_TOOLS = re.compile(r"\b(?:tools|functions)\b")


def tool_format(template: str) -> ToolFormat | None:
    """The format of a template's family; None where the template writes no tools, or its family is not known."""
    if not _WRITES_TOOLS.search(template):
        return None
    return next((known for known in FORMATS if all(sign in template for sign in known.signs)), None)


def is_text(schema: Mapping[str, Any], key: str) -> bool:
    """Whether the schema of a tool's arguments calls one of them a string."""
    properties: Any = schema.get("properties")
    entry: Any = cast(Mapping[str, Any], properties).get(key) if isinstance(properties, Mapping) else None
    return isinstance(entry, Mapping) and cast(Mapping[str, Any], entry).get("type") == "string"
