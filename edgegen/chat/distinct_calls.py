"""DistinctCalls: leaves out of an answer's tool calls those that repeat an earlier one, while they are written."""

from collections.abc import Iterable
from dataclasses import replace

from edgegen.chat.tools import ToolCall, ToolCallDelta


class DistinctCalls:
    """Holds the deltas of a call back for as long as an earlier one begins as it does; drops it if it is the same.

    Attributes:
        repeated: whether a call was dropped.
    """

    def __init__(self) -> None:
        self.repeated = False
        self._calls: list[ToolCall] = []
        self._held: list[ToolCallDelta] = []
        self._id, self._name, self._begun = "", "", ""
        self._dropped = 0

    def read(
        self, deltas: Iterable[ToolCallDelta], calls: Iterable[ToolCall]
    ) -> tuple[list[ToolCallDelta], list[ToolCall]]:
        """Return the deltas and calls to report of these, which go on where the last ones ended."""
        whole, shown_deltas, shown_calls = {call.id: call for call in calls}, list[ToolCallDelta](), list[ToolCall]()
        for delta in deltas:
            if delta.id is not None:
                self._end(whole, shown_deltas, shown_calls)
                self._id, self._name, self._begun = delta.id, delta.name or "", ""
            self._begun += delta.arguments
            self._held.append(delta)
            if not any(one.name == self._name and one.arguments_json.startswith(self._begun) for one in self._calls):
                self._release(shown_deltas)
        self._end(whole, shown_deltas, shown_calls)
        return shown_deltas, shown_calls

    def _end(self, whole: dict[str, ToolCall], shown_deltas: list[ToolCallDelta], shown_calls: list[ToolCall]) -> None:
        """End the call whose deltas have been read, if it is whole."""
        call = whole.pop(self._id, None)
        if call is None:
            return
        if self._held and any((call.name, call.arguments) == (one.name, one.arguments) for one in self._calls):
            self._held.clear()
            self._dropped += 1
            self.repeated = True
            return
        self._release(shown_deltas)
        self._calls.append(call)
        shown_calls.append(call)

    def _release(self, shown_deltas: list[ToolCallDelta]) -> None:
        shown_deltas += [replace(delta, index=delta.index - self._dropped) for delta in self._held]
        self._held.clear()
