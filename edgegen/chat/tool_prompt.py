"""Tools for models whose chat template knows none: described in the system message, called in the Hermes format."""

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, cast

from edgegen.chat.conversation import Conversation, Message, text_of
from edgegen.chat.partial_json import completed_json
from edgegen.chat.tool_formats import HERMES, ToolFormat
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


def described(conversation: Conversation, tools: Tools) -> Sequence[Message]:
    """The messages with the tools in a system message at the front, and earlier calls and their results as text."""
    lines = "\n".join(json.dumps(definition, ensure_ascii=False) for definition in tools.definitions)
    introduction = _INTRODUCTION.format(tools=lines)
    first, *others = [as_text(message, HERMES) for message in conversation.messages]
    if first["role"] in ("system", "developer"):
        return [{**first, "content": f"{text_of(first.get('content'))}\n\n{introduction}"}, *others]
    return [{"role": "system", "content": introduction}, first, *others]


def as_text(message: Message, style: ToolFormat, *, results: bool = True) -> Message:
    """A canonical message with its calls as text of that format, and a result, if ``results`` says so, as a user's."""
    if message["role"] == "tool":
        result = text_of(message.get("content"))
        return {"role": "user", "content": f"<tool_response>\n{result}\n</tool_response>"} if results else message
    calls = message.get("tool_calls")
    if not calls:
        return message
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    said = filter(None, [text_of(message.get("content")), call_text(calls, style)])
    return {**kept, "content": "\n".join(said)}


def call_text(calls: Sequence[Mapping[str, Any]], style: ToolFormat) -> str:
    """Calls as a model of that format writes them; as in the Hermes format where its own has more than JSON."""
    entries = [
        {style.name_key: call["function"]["name"], style.arguments_key: _as_mapping(call["function"]["arguments"])}
        for call in calls
    ]
    texts = [json.dumps(entry, ensure_ascii=False, default=str) for entry in entries]
    match style.body:
        case "list":
            return f"{style.opening}[{', '.join(texts)}]{style.closing}"
        case "named":
            heads = [_named_head(call, n, style) for n, call in enumerate(calls)]
            arguments = [json.dumps(entry[style.arguments_key], ensure_ascii=False, default=str) for entry in entries]
            begin, end = style.wrappers or ("", "")
            parts = [
                f"{style.opening}{head}{style.separator}{text}{style.pad}{style.closing}"
                for head, text in zip(heads, arguments, strict=True)
            ]
            return f"{begin}{''.join(parts)}{end}"
        case "python":
            written = [
                f"{call['function']['name']}({', '.join(f'{key}={_literal(value)}' for key, value in given.items())})"
                for call, given in zip(
                    calls, (as_keywords(entry[style.arguments_key]) for entry in entries), strict=True
                )
            ]
            begin = style.opening if style.opening.endswith("[") else f"{style.opening}["
            return f"{begin}{', '.join(written)}{']' if not style.closing.startswith(']') else ''}{style.closing}"
        case "object" if style.opening:
            return "\n".join(f"{style.opening}{style.pad}{text}{style.pad}{style.closing}" for text in texts)
        case _:
            return call_text(calls, HERMES)


def _named_head(call: Mapping[str, Any], n: int, style: ToolFormat) -> str:
    named = {"{name}": call["function"]["name"], "{n}": str(n), "{id}": str(call["id"])}
    return reduce(lambda head, field: head.replace(field, named[field]), named, style.name_text)


def as_keywords(arguments: object) -> Mapping[str, Any]:
    """Arguments as a mapping, whatever they are: a text that is not JSON stands under a name."""
    read = _as_mapping(arguments)
    return cast(Mapping[str, Any], read) if isinstance(read, Mapping) else {"arguments": arguments}


def _literal(value: object) -> str:
    """A value as Python has it, with texts in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _as_mapping(arguments: object) -> object:
    """Arguments as a mapping, also where they are given as JSON text, as in OpenAI's API."""
    if not isinstance(arguments, str):
        return arguments
    value: object = completed_json(arguments)
    return cast(object, value) if isinstance(value, dict) else arguments
