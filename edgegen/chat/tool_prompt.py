"""Tools for models whose chat template knows none: described in the system message, called in the Hermes format."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from edgegen.chat.conversation import Conversation, Message, text_of
from edgegen.chat.tools import Tools

_INTRODUCTION = """\
You may call functions. Their JSON schemas, one a line:
<tools>
{tools}
</tools>
To call a function, answer with its name and arguments as JSON between these tags, and nothing else:
<tool_call>
{{"name": "…", "arguments": {{…}}}}
</tool_call>"""


def describe_tools(conversation: Conversation, tools: Tools | None) -> Sequence[Message]:
    """The messages with the tools in the system message, and earlier calls and their results as text."""
    messages = [_as_text(message) for message in conversation.messages]
    if tools is None:
        return messages
    lines = "\n".join(json.dumps(definition, ensure_ascii=False) for definition in tools.definitions)
    introduction = _INTRODUCTION.format(tools=lines)
    if messages[0]["role"] in ("system", "developer"):
        first = {**messages[0], "content": f"{text_of(messages[0].get('content'))}\n\n{introduction}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": introduction}, *messages]


def _as_text(message: Message) -> Message:
    if message["role"] == "tool":
        return {
            "role": "user",
            "content": f"<tool_response>\n{text_of(message.get('content'))}\n</tool_response>",
        }
    calls = message.get("tool_calls")
    if message["role"] != "assistant" or not isinstance(calls, Sequence):
        return message
    said = [text_of(message.get("content"))] if message.get("content") else []
    said += [_call_text(call) for call in cast(Sequence[Any], calls)]
    return {"role": "assistant", "content": "\n".join(said)}


def _call_text(call: Any) -> str:
    fields: Mapping[str, Any] = cast(Mapping[str, Any], call) if isinstance(call, Mapping) else {}
    function: Any = fields.get("function", fields)
    entry: Mapping[str, Any] = cast(Mapping[str, Any], function) if isinstance(function, Mapping) else {}
    written = {"name": entry.get("name"), "arguments": parsed_arguments(entry.get("arguments"))}
    return f"<tool_call>\n{json.dumps(written, ensure_ascii=False, default=str)}\n</tool_call>"


def parsed_arguments(arguments: object) -> object:
    """The arguments of a call as a dict, also where they are given as JSON text, as in OpenAI's API."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return cast(object, value) if isinstance(value, dict) else arguments
