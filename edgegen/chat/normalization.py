"""Normalization: makes a conversation fit for a chat template, so that all that was said reaches the model.

Every wire, ``LLM.chat`` and the command line pass through here. First a conversation is made **canonical**, which asks
nothing of a template: older spellings (``function_call``, ``refusal``, ``reasoning``) get their usual names, tool
calls their ids, results the names of their tools. Then it is **fitted** to what one template reads
(:class:`~edgegen.chat.capabilities.TemplateCapabilities`):

- ``developer`` becomes ``system`` where the template does not know the role;
- several system messages at the front become one; a later one is told in the next user message;
- messages of one role in a row become one where roles must alternate;
- calls get the arguments, the ids and the content that the template accepts; several calls become turns of one call
  with its result, where it accepts one; a text beside calls becomes a message before them, where it would be left out;
- calls and results become text where the template writes none.

What is already fit stays as it is, and is rendered as transformers renders it.
"""

import hashlib
import json
import re
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, cast

from edgegen.chat.capabilities import REASONING_KEYS, SHORT_ID, TemplateCapabilities
from edgegen.chat.conversation import Conversation, Message, text_of
from edgegen.chat.tool_formats import HERMES, ToolFormat
from edgegen.chat.tool_prompt import as_keywords, as_text
from edgegen.errors import ConversationError, did_you_mean, sentence_or_list

MESSAGE_KEYS = (
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "refusal",
    *REASONING_KEYS,
)
"""Fields of a message that are read whatever the template."""

UNREAD_KEYS = (
    "annotations",
    "id",
    "parsed",
    "provider_specific_fields",
    "reasoning_details",
    "thinking_blocks",
    "cache_control",
    "type",  # lm-eval's "text", and the "message" of answers of OpenAI's Responses
)
"""Fields that clients send back with an answer, or beside a message, and that say nothing to a model."""

SYSTEM_ROLES = ("system", "developer")
_CALL_KEYS = ("id", "type", "function", "index", "extra_content", "provider_specific_fields")
_FUNCTION_KEYS = ("name", "arguments", "parsed_arguments", "provider_specific_fields")
"""Fields of a call, with what clients add to it."""
_ASCII = string.ascii_letters + string.digits
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


def canonical(conversation: Conversation, own_keys: Collection[str] = ()) -> Conversation:
    """The conversation with the usual names for everything in its messages; ``own_keys``: fields a template reads.

    Raises:
        ConversationError: lists unknown fields, and tool calls that are malformed.
    """
    problems = list[str]()
    reader = _Canonical(own_keys, problems)
    messages = [reader.read(f"messages[{n}]", message) for n, message in enumerate(conversation.messages)]
    if problems:
        raise ConversationError(sentence_or_list(problems))
    return conversation.with_messages(messages)


class _Canonical:
    """Reads messages in order, and remembers the calls whose results are still to come."""

    def __init__(self, own_keys: Collection[str], problems: list[str]) -> None:
        self._own_keys, self._problems = own_keys, problems
        self._names = dict[str, str]()
        self._open = list[str]()
        self._count = 0

    def read(self, where: str, message: Message) -> Message:
        fields = {key: value for key, value in message.items() if value is not None or key == "content"}
        known = (*MESSAGE_KEYS, *UNREAD_KEYS)
        self._problems += [
            f"{where} has no {key!r}{did_you_mean(key, known)}"
            for key in fields
            if key not in known and key not in self._own_keys
        ]
        role = fields["role"]
        content = fields.get("content")
        if content is not None and not isinstance(content, str):
            fields["content"] = [{"type": "text", "text": part[part["type"]]} for part in content]
        if "function_call" in fields:  # OpenAI's older form, whose result has the role and the name of the function
            fields.setdefault("tool_calls", [{"function": fields.pop("function_call")}])
        calls = fields.get("tool_calls")
        if calls is not None:
            fields["tool_calls"] = self._calls(f"{where}.tool_calls", calls)
            if not fields["tool_calls"]:
                del fields["tool_calls"]
        if role in ("tool", "function"):
            self._read_result(fields)
        if isinstance(refusal := fields.pop("refusal", None), str) and refusal:
            fields["content"] = "\n".join(filter(None, [text_of(fields.get("content")), refusal]))
        if role == "assistant":
            thoughts = [text for key in REASONING_KEYS if isinstance(text := fields.pop(key, None), str) and text]
            if thoughts:
                fields["reasoning_content"] = thoughts[0]
            if fields.get("content") is None and "tool_calls" not in fields:
                fields["content"] = ""
        return {key: value for key, value in fields.items() if key not in UNREAD_KEYS or key in self._own_keys}

    def _calls(self, where: str, calls: object) -> list[dict[str, Any]]:
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            self._problems.append(f"{where} must be a list of tool calls")
            return []
        return [self._call(f"{where}[{n}]", call) for n, call in enumerate(cast(Sequence[object], calls))]

    def _call(self, where: str, call: object) -> dict[str, Any]:
        entry = dict(cast(Mapping[str, Any], call)) if isinstance(call, Mapping) else {}
        function: Any = entry.get("function", entry)
        named: Mapping[str, Any] = cast(Mapping[str, Any], function) if isinstance(function, Mapping) else {}
        name, arguments = named.get("name"), named.get("arguments")
        self._unknown(where, entry, (*_CALL_KEYS, *(_FUNCTION_KEYS if function is entry else ())))
        if function is not entry:
            self._unknown(f"{where}.function", named, _FUNCTION_KEYS)
        if not isinstance(name, str) or not name:
            self._problems.append(
                f"{where} must be a call such as {{'type': 'function', 'function': {{'name': …, 'arguments': …}}}}"
            )
            return {}
        if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
            arguments = {}
        if not isinstance(arguments, str | Mapping):
            self._problems.append(f"{where}.function.arguments must be an object or its JSON text, not {arguments!r}")
        given = entry.get("id")
        call_id = given if isinstance(given, str) and given else f"call_{self._count}"
        self._count += 1
        self._names[call_id] = name
        self._open.append(call_id)
        kind: Any = entry.get("type") or "function"
        return {"id": call_id, "type": kind, "function": {"name": name, "arguments": arguments}}

    def _unknown(self, where: str, entry: Mapping[str, Any], known: Sequence[str]) -> None:
        self._problems += [f"{where} has no {key!r}{did_you_mean(key, known)}" for key in entry if key not in known]

    def _read_result(self, fields: dict[str, Any]) -> None:
        """A result belongs to the call that it names, or else to the first one that has none."""
        fields["role"] = "tool"
        call_id, name = fields.get("tool_call_id"), fields.get("name")
        if not isinstance(call_id, str) or not call_id:
            waiting = [known for known in self._open if name in (None, self._names[known])]
            call_id = waiting[0] if waiting else "call_0"
        if call_id in self._open:
            self._open.remove(call_id)
        fields["tool_call_id"] = call_id
        if not name and call_id in self._names:
            fields["name"] = self._names[call_id]


def fitted(conversation: Conversation, reads: TemplateCapabilities, style: ToolFormat | None = None) -> Conversation:
    """A canonical conversation as one template reads it; ``style``: how calls are written where it writes none."""
    messages = _with_systems(_results_after_calls(conversation.messages), reads)
    if not reads.calls or not reads.results:
        messages = [as_text(message, style or HERMES, results=not reads.results) for message in messages]
    else:
        messages = list(_with_calls(messages, reads))
    messages = [_with_reasoning(message, reads) for message in messages]
    if not reads.consecutive:
        messages = _alternating(messages)
    messages = [_with_content(message, reads) for message in messages]
    tools = conversation.tools
    if tools is not None:
        tools = [_without_null(tool, complete=not reads.bare_tools) for tool in tools]
    return replace(conversation, messages=messages, tools=tools)


def _with_systems(messages: Sequence[Message], reads: TemplateCapabilities) -> list[Message]:
    """System messages where the template reads them: at the front, each for itself or as one, or told to the user."""
    front = next((n for n, message in enumerate(messages) if message["role"] not in SYSTEM_ROLES), len(messages))
    as_system = [{**one, "role": "system"} if one["role"] == "developer" else one for one in messages]
    systems, later = [*(messages if reads.developer else as_system)[:front]], as_system[front:]
    alone = not later and not reads.system_alone
    hidden = messages[-1]["role"] == "tool" and not reads.system_before_results
    if not reads.system or alone or hidden:
        return _told_to_user([*systems, *later])
    if len(systems) > 1 and not (reads.several_systems and all(one["role"] == "system" for one in systems)):
        texts = [text_of(message.get("content")) for message in systems]
        systems = [{**systems[0], "content": "\n\n".join(filter(None, texts))}]
    return [*systems, *(later if reads.late_systems else _told_to_user(later))]


def _results_after_calls(messages: Sequence[Message]) -> list[Message]:
    """System messages between a call and its results put after these: some templates look for them at once."""
    moved: list[Message] = []
    waiting: list[Message] = []
    called = False
    for message in messages:
        if called and message["role"] in SYSTEM_ROLES:
            waiting.append(message)
            continue
        if message["role"] != "tool":
            moved += waiting
            waiting.clear()
            called = bool(_calls_of(message))
        moved.append(message)
    return [*moved, *waiting]


def _told_to_user(messages: Sequence[Message]) -> list[Message]:
    """Each system message put before the next user message, on a line of its own; after the last, a user message."""
    folded: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message["role"] in SYSTEM_ROLES:
            waiting.append(text_of(message.get("content")))
        elif message["role"] == "user" and waiting:
            folded.append({**message, "content": "\n".join([*waiting, text_of(message.get("content"))])})
            waiting.clear()
        else:
            folded.append(message)
    if waiting:
        folded.append({"role": "user", "content": "\n".join(waiting)})
    return folded


def _with_calls(messages: Sequence[Message], reads: TemplateCapabilities) -> Iterator[Message]:
    """Calls and results in the forms that the template accepts."""
    ids = _call_ids(messages, reads)
    results = _results_by_call(messages) if not reads.parallel_calls else {}
    used = set[int]()
    for n, message in enumerate(messages):
        if message["role"] == "tool":
            if n not in used:
                yield _renamed_result(message, ids)
            continue
        calls = _calls_of(message)
        if not calls:
            yield message
            continue
        shown = [_fit_call(call, ids[n, at], reads) for at, call in enumerate(calls)]
        said = text_of(message.get("content"))
        if said and not reads.text_beside_calls:
            kept = {key: value for key, value in message.items() if key not in ("tool_calls", *REASONING_KEYS)}
            yield kept
            message = {**message, "content": ""}
        if said == "" or not reads.text_beside_calls:
            empty = None if message.get("content") is None and reads.null_content else reads.empty_content
            message = {**message, "content": empty}
        if reads.parallel_calls or len(shown) == 1:
            yield {**message, "tool_calls": shown}
            continue
        for at, call in enumerate(shown):
            extra = {} if at == 0 else {"content": reads.empty_content}
            turn = {key: value for key, value in message.items() if at == 0 or key not in REASONING_KEYS}
            yield {**turn, **extra, "tool_calls": [call]}
            for place in results.get((n, at), ()):
                used.add(place)
                yield _renamed_result(messages[place], ids)


def _calls_of(message: Message) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], message.get("tool_calls") or [])


def _call_ids(messages: Sequence[Message], reads: TemplateCapabilities) -> dict[Any, str]:
    """The id that each call is to have, by its place, and that each result is to name, by the id that was sent."""
    ids, count = dict[Any, str](), 0
    for n, message in enumerate(messages):
        for at, call in enumerate(_calls_of(message)):
            sent = call["id"]
            match reads.call_ids:
                case "named":
                    shown = f"functions.{call['function']['name']}:{count}"
                case "short" if not SHORT_ID.fullmatch(sent):
                    shown = _short_id(sent)
                case _:
                    shown = sent
            ids[n, at] = ids[sent] = shown
            count += 1
    return ids


def _short_id(given: str) -> str:
    """Nine letters and digits that stand for an id, always the same."""
    number = int.from_bytes(hashlib.sha256(given.encode()).digest()[:8])
    return "".join(_ASCII[number // len(_ASCII) ** place % len(_ASCII)] for place in range(9))


def _results_by_call(messages: Sequence[Message]) -> dict[tuple[int, int], list[int]]:
    """The places of the results of each call, by the call's place."""
    calls, results = dict[str, tuple[int, int]](), dict[tuple[int, int], list[int]]()
    for n, message in enumerate(messages):
        calls |= {call["id"]: (n, at) for at, call in enumerate(_calls_of(message))}
        if message["role"] == "tool" and (place := calls.get(message["tool_call_id"])) is not None:
            results.setdefault(place, []).append(n)
    return results


def _renamed_result(message: Message, ids: Mapping[Any, str]) -> Message:
    given = message["tool_call_id"]
    return {**message, "tool_call_id": ids.get(given, given)}


def _fit_call(call: Mapping[str, Any], call_id: str, reads: TemplateCapabilities) -> dict[str, Any]:
    function = call["function"]
    return {**call, "id": call_id, "function": {**function, "arguments": _fit_arguments(function["arguments"], reads)}}


def _fit_arguments(arguments: Any, reads: TemplateCapabilities) -> Any:
    """Arguments as text or as a mapping; a text that was cut off is completed where a mapping must be had."""
    if isinstance(arguments, str):
        if "text" in reads.arguments:
            return arguments
        return as_keywords(arguments)
    return arguments if "mapping" in reads.arguments else json.dumps(arguments, ensure_ascii=False, default=str)


def _with_reasoning(message: Message, reads: TemplateCapabilities) -> Message:
    thoughts = message.get("reasoning_content")
    if thoughts is None or message["role"] != "assistant" or reads.reasoning_key in (None, "reasoning_content"):
        return message
    kept = {key: value for key, value in message.items() if key != "reasoning_content"}
    return {**kept, reads.reasoning_key: thoughts}


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """Turns of the user and the assistant that alternate, and begin with the user's; calls and results do not count.

    Messages of one role in a row are one, in lines. A missing turn is a blank one: some templates accept no empty text.
    """
    turns: list[Message] = []
    last: int | None = None
    for message in messages:
        role = message["role"]
        if role not in ("user", "assistant") or _calls_of(message):
            turns.append(message)
            continue
        if last is not None and turns[last]["role"] == role and last == len(turns) - 1:
            texts = [text_of(one.get("content")) for one in (turns[last], message)]
            turns[last] = {**turns[last], **message, "content": "\n".join(filter(None, texts))}
            continue
        before = "assistant" if last is None else turns[last]["role"]
        if before == role:
            turns.append({"role": "user" if role == "assistant" else "assistant", "content": " "})
        turns.append(message)
        last = len(turns) - 1
    return turns


def _with_content(message: Message, reads: TemplateCapabilities) -> Message:
    content = message.get("content")
    if isinstance(content, str):
        if reads.text_content or (not content and _calls_of(message)):
            return message
        return {**message, "content": [{"type": "text", "text": content}] if content else []}
    if content is None:
        return message if _calls_of(message) else {**message, "content": ""}
    return message if message["role"] in reads.content_parts else {**message, "content": text_of(content)}


def _without_null(tool: Mapping[str, Any], *, complete: bool) -> Mapping[str, Any]:
    """A tool without what is null in it; ``complete``: with what a template needs that fails without it."""
    function: Any = tool.get("function")
    if not isinstance(function, Mapping):
        return tool
    kept = {key: value for key, value in cast(Mapping[str, Any], function).items() if value is not None}
    if complete:
        kept = {
            **kept,
            "description": kept.get("description", ""),
            "parameters": kept.get("parameters", _NO_PARAMETERS),
        }
    return {**{key: value for key, value in tool.items() if value is not None}, "function": kept}


_WORD = re.compile(r"[^\W_]{2,}")
_TOKEN = re.compile(r"[\w.:/-]{2,}")
"""Of an argument more is one word: an identifier differs from the next by a number. None of it is escaped in JSON."""
_MOST_WORDS = 3


def _strings_in(arguments: object) -> str:
    """The strings of a call's arguments that templates write as they are, whether as JSON or otherwise."""
    strings, pending = list[str](), list[object]([as_keywords(arguments)])
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            pending += cast(Mapping[str, object], value).values()
        elif isinstance(value, list):
            pending += cast(list[object], value)
        elif isinstance(value, str) and value.isascii():
            strings.append(value)
    return " ".join(strings)


def left_out(conversation: Conversation, rendered: str, source: str, closings: Sequence[str]) -> list[str]:
    """Where in ``conversation`` something was said that ``rendered`` does not show.

    Looked for are a few long words of every message, and of the names and strings of its calls, that the template's own
    ``source`` has not. Of an assistant only what follows its thoughts, which end with one of ``closings``.
    """
    folded: str | None = None
    missing = list[str]()
    places = list[tuple[str, list[str]]]()
    for n, message in enumerate(conversation.messages):
        said = text_of(message.get("content"))
        if message["role"] == "assistant":
            for closing in closings:
                said = said.rpartition(closing)[2]
        places.append((f"messages[{n}].content", _WORD.findall(said)))
        for at, call in enumerate(_calls_of(message)):
            place, function = f"messages[{n}].tool_calls[{at}].function", call["function"]
            places.append((f"{place}.name", _WORD.findall(function["name"])))
            places.append((f"{place}.arguments", _TOKEN.findall(_strings_in(function["arguments"]))))
    for place, words in places:
        longest = sorted(dict.fromkeys(words), key=len, reverse=True)
        for word in islice((word for word in longest if word not in source), _MOST_WORDS):
            if word in rendered:
                continue
            folded = rendered.casefold() if folded is None else folded
            if word.casefold() not in folded:
                missing.append(place)
                break
    return missing
