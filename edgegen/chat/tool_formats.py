"""ToolFormat: how the models of a template family write tool calls, as a table of markers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

BodyKind = Literal["object", "list", "named", "functions", "pairs"]
"""What stands between the markers of a call.

``object``: JSON of name and arguments. ``list``: a JSON list of these. ``named``: the name, ``separator``, the
arguments as JSON. ``functions``: ``<function=name><parameter=key>value</parameter></function>``. ``pairs``: the name,
then ``<arg_key>key</arg_key><arg_value>value</arg_value>``.
"""


_CONTROL = re.compile(r"<[|｜][^<>]*[|｜]>")


@dataclass(frozen=True, slots=True)
class Tags:
    """How ``functions`` are written: what stands before and behind a name and a value.

    Attributes:
        pad: stands before a value and behind it, where it is no part of it.
    """

    function: str = "<function="
    parameter: str = "<parameter="
    named: str = ">"
    parameter_end: str = "</parameter>"
    function_end: str = "</function>"
    pad: str = "\n"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The markers of one family.

    Attributes:
        signs: texts that all stand in a template of the family.
        opening: begins a call, or a list of calls; the empty one: an answer that begins with ``{`` is a call.
        closing: ends it; the empty one: the end of the JSON does.
        pad: stands around the JSON of an ``object``, and behind that of a ``named`` one.
        id_key: of a list's entries, the key of an id that stands first.
        id_last: it stands last, or is left out.
        name_text: how the name of a ``named`` call stands; ``{n}`` is a number, ``{id}`` any id.
        wrappers: texts around all calls, which say nothing.
        tags: of ``functions``.
        several: behind one opening marker several ``functions`` may stand.
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

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be control tokens of the model."""
        texts = (self.opening.strip(), self.closing, self.separator, *self.wrappers, *self.in_calls)
        return tuple(filter(None, (*texts, *_CONTROL.findall(" ".join((*texts, self.name_text))))))

    @property
    def in_calls(self) -> tuple[str, ...]:
        """Control tokens inside a call."""
        return {
            "named": ("[CALL_ID]",),
            "pairs": ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        }.get(self.body, ())


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
    ToolFormat("functionary", ("<function=", "</function>"), "<function=", "</function>", "named", separator=">"),
    ToolFormat("llama", ('"parameters"', "ipython"), "", "", "object", arguments_key="parameters"),
)
"""By family; the first whose signs a template has is its format."""

PYTHON_TAG = "<|python_tag|>"
"""Stands before the calls of some Llama models."""

_WRITES_TOOLS = re.compile(r"\btools\b")


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
