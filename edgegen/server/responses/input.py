"""Input items of ``/v1/responses``: messages, function calls, their outputs and thoughts as the messages of a chat."""

from collections.abc import Callable, Mapping
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.errors import did_you_mean, one_or_list
from edgegen.server.api_error import ApiError
from edgegen.server.options import MOST_MESSAGES

_ROLES = ("user", "assistant", "system", "developer")
_SYSTEM = ("system", "developer")
_TEXTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Parts of a message's content that are text, and the key of each."""

_EXPECTED = "input: a text or a list of items expected, such as {'role': 'user', 'content': 'Hello'}."


def read_input(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``instructions`` and ``input`` as messages, which are checked.

    Raises:
        ApiError: lists everything that is wrong with them.
    """
    instructions, value = given.get("instructions"), given.get("input")
    if instructions is not None and not isinstance(instructions, str):
        raise ApiError(400, f"instructions: text expected, found {shortened(instructions)}.", param="instructions")
    items: list[object] = [{"role": "user", "content": value}] if isinstance(value, str) else _items(value)
    reader = _ItemReader()
    if instructions:
        reader.read({"role": "system", "content": instructions}, "instructions")
    for n, item in enumerate(items):
        reader.read(item, f"input[{n}]")
    if reader.problems:
        raise ApiError(400, one_or_list(reader.problems), param="input")
    return reader.messages


def _items(value: object) -> list[object]:
    items = cast(list[object], value) if isinstance(value, list) else []
    if not items:
        raise ApiError(400, _EXPECTED, param="input")
    if len(items) > MOST_MESSAGES:
        raise ApiError(400, f"input: at most {MOST_MESSAGES} items, found {len(items)}.", param="input")
    return items


class _ItemReader:
    """Reads items one by one. Thoughts, text and calls of one answer, which are items of their own, are one message."""

    def __init__(self) -> None:
        self.messages = list[dict[str, Any]]()
        self.problems = list[str]()
        self._calls = list[str]()
        self._answer: dict[str, Any] | None = None
        self._readers: Mapping[str, Callable[[Mapping[str, Any], str], None]] = {
            "message": self._message,
            "function_call": self._call,
            "function_call_output": self._output,
            "reasoning": self._reasoning,
        }

    def read(self, item: object, where: str) -> None:
        """Read an item; ``where`` names it in errors."""
        if not isinstance(item, Mapping):
            self.problems.append(f"{where} must be an object, not {shortened(item)}")
            return
        fields = cast(Mapping[str, Any], item)
        kind = fields.get("type") or ("message" if "role" in fields else "item_reference" if "id" in fields else None)
        if kind == "item_reference":
            self.problems.append(f"{where} refers to an item, and this server keeps none: send the item itself")
        elif isinstance(kind, str) and kind in self._readers:
            self._readers[kind](fields, where)
        else:
            hint = did_you_mean(kind, self._readers) if isinstance(kind, str) else ""
            known = ", ".join(self._readers)
            self.problems.append(f"{where}.type is {shortened(kind)}, which is not supported{hint}: there is {known}")

    def _message(self, item: Mapping[str, Any], where: str) -> None:
        role, text = item.get("role"), self._text(item.get("content"), f"{where}.content")
        if role not in _ROLES:
            hint = did_you_mean(role, _ROLES) if isinstance(role, str) else ""
            self.problems.append(f"{where}.role is {', '.join(_ROLES)}, not {shortened(role)}{hint}")
        elif role == "assistant":
            answer = self._answer
            if answer is None or (answer["content"] and "tool_calls" not in answer):
                answer = self._begin_answer()
            answer["content"] += text
        elif role in _SYSTEM and len(self.messages) == 1 and self.messages[0]["role"] in _SYSTEM:
            # Many templates know one system message only, the first.
            self.messages[0]["content"] += f"\n\n{text}"
        else:
            self._append({"role": role, "content": text})

    def _call(self, item: Mapping[str, Any], where: str) -> None:
        fields = {name: self._string(item, name, where) for name in ("call_id", "name", "arguments")}
        self._calls.append(fields["call_id"])
        answer = self._answer or self._begin_answer()
        function = {"name": fields["name"], "arguments": fields["arguments"]}
        call = {"id": fields["call_id"], "type": "function", "function": function}
        answer.setdefault("tool_calls", []).append(call)

    def _output(self, item: Mapping[str, Any], where: str) -> None:
        call_id = self._string(item, "call_id", where)
        if call_id and call_id not in self._calls:
            hint = did_you_mean(call_id, self._calls)
            self.problems.append(
                f"{where}.call_id is {shortened(call_id)}, and no function_call before it has that{hint}: "
                "send the call before its output"
            )
        text = self._text(item.get("output"), f"{where}.output")
        self._append({"role": "tool", "tool_call_id": call_id, "content": text})

    def _reasoning(self, item: Mapping[str, Any], where: str) -> None:
        thoughts = self._thoughts(item, "content", "reasoning_text", where)
        text = thoughts or self._thoughts(item, "summary", "summary_text", where)
        if not text:
            return
        answer = self._answer
        if answer is None or answer["content"] or "tool_calls" in answer:
            answer = self._begin_answer()
        before = answer.get("reasoning_content")
        answer["reasoning_content"] = f"{before}\n{text}" if before else text

    def _thoughts(self, item: Mapping[str, Any], name: str, kind: str, where: str) -> str:
        """The text of the parts at ``name``, if there are any."""
        value: object = item.get(name)
        parts = cast(list[object], value) if isinstance(value, list) else []
        texts = [cast(dict[str, Any], part).get("text") if isinstance(part, dict) else None for part in parts]
        if (value is not None and not isinstance(value, list)) or not all(isinstance(text, str) for text in texts):
            self.problems.append(f"{where}.{name} must be a list of {{'type': '{kind}', 'text': …}}")
            return ""
        return "\n".join(cast(list[str], texts))

    def _text(self, content: object, where: str) -> str:
        """A text, or the texts of a list of parts, in lines."""
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            self.problems.append(f"{where} must be a text or a list of parts, not {shortened(content)}")
            return ""
        return "\n".join(self._part(part, f"{where}[{n}]") for n, part in enumerate(cast(list[object], content)))

    def _part(self, part: object, where: str) -> str:
        fields: Mapping[str, Any] = cast(Mapping[str, Any], part) if isinstance(part, Mapping) else {}
        kind = fields.get("type")
        if not isinstance(kind, str) or kind not in _TEXTS:
            only = "only text is understood, as {'type': 'input_text', 'text': …}"
            self.problems.append(f"{where} is of type {shortened(kind)}: {only}")
            return ""
        return self._string(fields, _TEXTS[kind], where)

    def _string(self, fields: Mapping[str, Any], name: str, where: str) -> str:
        value = fields.get(name)
        if isinstance(value, str):
            return value
        self.problems.append(f"{where}.{name} must be a text, not {shortened(value)}")
        return ""

    def _begin_answer(self) -> dict[str, Any]:
        answer = {"role": "assistant", "content": ""}
        self._append(answer)
        self._answer = answer
        return answer

    def _append(self, message: dict[str, Any]) -> None:
        self._answer = None
        self.messages.append(message)
