"""Input items of ``/v1/responses``: messages, function calls, their outputs and thoughts as the messages of a chat."""

from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as shortened
from typing import Any

from edgegen.errors import did_you_mean
from edgegen.server.wire.parameters import refusal

_Item = Mapping[str, Any]


def read_input(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``instructions`` and ``input``, which fit their schemas, as messages.

    Raises:
        ApiError: lists the outputs of tool calls without a call.
    """
    value: str | list[_Item] = params["input"]
    items: list[_Item] = [{"role": "user", "content": value}] if isinstance(value, str) else value
    reader = _ItemReader()
    if instructions := params.get("instructions"):
        reader.read({"role": "system", "content": instructions}, "instructions")
    for n, item in enumerate(items):
        reader.read(item, f"input[{n}]")
    if reader.problems:
        raise refusal(reader.problems, "input")
    return reader.messages


class _ItemReader:
    """Reads items one by one. Thoughts, text and calls of one answer, which are items of their own, are one message."""

    def __init__(self) -> None:
        self.messages = list[dict[str, Any]]()
        self.problems = list[str]()
        self._calls = list[str]()
        self._answer: dict[str, Any] | None = None
        self._readers: Mapping[str, Callable[[_Item, str], None]] = {
            "message": self._message,
            "function_call": self._call,
            "function_call_output": self._output,
            "reasoning": self._reasoning,
        }

    def read(self, item: _Item, where: str) -> None:
        """Read an item; ``where`` names it in errors."""
        self._readers[item.get("type", "message")](item, where)

    def _message(self, item: _Item, where: str) -> None:
        role, text = item["role"], _text(item["content"])
        if role == "assistant":
            answer = self._answer
            if answer is None or (answer["content"] and "tool_calls" not in answer):
                answer = self._begin_answer()
            answer["content"] += text
        else:
            self._append({"role": role, "content": text})

    def _call(self, item: _Item, where: str) -> None:
        self._calls.append(item["call_id"])
        answer = self._answer or self._begin_answer()
        function = {"name": item["name"], "arguments": item.get("arguments")}
        answer.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "function", "function": function})

    def _output(self, item: _Item, where: str) -> None:
        call_id = item["call_id"]
        if call_id not in self._calls:
            hint = did_you_mean(call_id, self._calls)
            self.problems.append(
                f"{where}.call_id is {shortened(call_id)}, and no function_call before it has that{hint}: "
                "send the call before its output"
            )
        self._append({"role": "tool", "tool_call_id": call_id, "content": _text(item["output"])})

    def _reasoning(self, item: _Item, where: str) -> None:
        thoughts = ("\n".join(part["text"] for part in item.get(name) or ()) for name in ("content", "summary"))
        text = next(filter(None, thoughts), "")
        if not text:
            return
        answer = self._answer
        if answer is None or answer["content"] or "tool_calls" in answer:
            answer = self._begin_answer()
        before = answer.get("reasoning_content")
        answer["reasoning_content"] = f"{before}\n{text}" if before else text

    def _begin_answer(self) -> dict[str, Any]:
        answer = {"role": "assistant", "content": ""}
        self._append(answer)
        self._answer = answer
        return answer

    def _append(self, message: dict[str, Any]) -> None:
        self._answer = None
        self.messages.append(message)


def _text(content: str | Sequence[_Item]) -> str:
    """A text, or the texts of a list of parts, in lines."""
    if isinstance(content, str):
        return content
    return "\n".join(part["refusal" if part["type"] == "refusal" else "text"] for part in content)
