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


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The markers of one family.

    Attributes:
        signs: texts that all stand in a template of the family.
        opening: begins a call, or a list of calls; the empty one: an answer that begins with ``{`` is a call.
        closing: ends it; the empty one: the end of the JSON does.
        wrappers: texts around all calls, which say nothing.
    """

    name: str
    signs: tuple[str, ...]
    opening: str
    closing: str
    body: BodyKind
    name_key: str = "name"
    arguments_key: str = "arguments"
    separator: str = ""
    wrappers: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be control tokens of the model."""
        return tuple(filter(None, (self.opening.strip(), self.closing, self.separator, *self.wrappers, *self.in_calls)))

    @property
    def in_calls(self) -> tuple[str, ...]:
        """Control tokens inside a call."""
        return {
            "named": ("[CALL_ID]",),
            "pairs": ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        }.get(self.body, ())


HERMES = ToolFormat("hermes", ("<tool_call>",), "<tool_call>", "</tool_call>", "object")
"""Qwen 2.5 and 3, Hermes, Granite 4, and every model whose own format is unknown."""

FORMATS = (
    ToolFormat("qwen3-coder", ("<tool_call>", "<function=", "<parameter="), "<tool_call>", "</tool_call>", "functions"),
    ToolFormat("seed-oss", ("seed:tool_call", "<function="), "<seed:tool_call>", "</seed:tool_call>", "functions"),
    ToolFormat("glm", ("<tool_call>", "<arg_key>"), "<tool_call>", "</tool_call>", "pairs"),
    ToolFormat("apriel", ("<tool_calls>[",), "<tool_calls>", "</tool_calls>", "list"),
    HERMES,
    ToolFormat("nemotron", ("<TOOLCALL>[",), "<TOOLCALL>", "</TOOLCALL>", "list"),
    ToolFormat("granite", ("<|tool_call|>",), "<|tool_call|>", "", "list"),
    ToolFormat("mistral-named", ("[TOOL_CALLS]", "[ARGS]"), "[TOOL_CALLS]", "", "named", separator="[ARGS]"),
    ToolFormat("mistral", ("[TOOL_CALLS]",), "[TOOL_CALLS]", "", "list"),
    ToolFormat(
        "kimi",
        ("<|tool_call_begin|>", "<|tool_call_argument_begin|>"),
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
        "named",
        separator="<|tool_call_argument_begin|>",
        wrappers=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
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
