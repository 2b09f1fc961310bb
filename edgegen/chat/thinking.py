"""ThinkingSwitch: how a chat template is told whether to think and how hard, found out by rendering it.

Templates name it differently, and some mention a name without effect: a name counts where the prompt changes with it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from edgegen.errors import ConversationError
from edgegen.options.option import EFFORTS

SWITCHES = ("enable_thinking", "thinking", "enable_reasoning", "reasoning", "think")
"""Names that templates have for the variable that is true or false."""

_EFFORT, _BUDGET = "reasoning_effort", "thinking_budget"
_USUAL_EFFORTS = ("low", "medium", "high")
"""Levels of a template that shows any text as the level, and names none: those of gpt-oss."""

_THINK, _DO_NOT = "/think", "/no_think"
_PROBE = "Xyzzy plugh"
_NO_LEVEL = "xyzzy"

Probe = Callable[[Mapping[str, Any], str], str | None]
"""``probe(variables, system)``: the prompt of a short conversation; None where the template refuses it."""


@dataclass(frozen=True, slots=True)
class ThinkingSwitch:
    """Ways in which a template switches and limits thinking.

    Attributes:
        on: the variables that switch it on; None where no variable does.
        off: the variables that switch it off.
        efforts: the levels that the template tells apart, the least first.
        budget: the variable for the most tokens of a thought.
        words: ``/think`` and ``/no_think`` in the system message switch it.
    """

    on: Mapping[str, Any] | None = None
    off: Mapping[str, Any] | None = None
    efforts: tuple[str, ...] = ()
    budget: str | None = None
    words: bool = False

    @classmethod
    def find(cls, probe: Probe, names: Collection[str], constants: Collection[str]) -> "ThinkingSwitch":
        """The switch of a template that reads ``names`` and compares with ``constants``."""
        efforts, without = _efforts(probe, constants) if _EFFORT in names else ((), None)
        budget = _BUDGET if _BUDGET in names and _differ(probe, {_BUDGET: 0}, {_BUDGET: 512}) else None
        for name in SWITCHES:
            if name in names and _differ(probe, {name: True}, {name: False}):
                return cls({name: True}, {name: False}, efforts, budget)
        if without is not None:
            return cls(None, {_EFFORT: without}, efforts, budget)
        if budget is not None:
            return cls({_BUDGET: -1}, {_BUDGET: 0}, efforts, budget)
        words = any(_DO_NOT in constant for constant in constants) and _reads_words(probe)
        return cls(efforts=efforts, words=words)

    @property
    def is_there(self) -> bool:
        """Whether the template can be told anything of thinking."""
        return self.can_switch or bool(self.efforts)

    @property
    def can_switch(self) -> bool:
        """Whether thinking can be switched on and off."""
        return self.off is not None or self.words

    def tell(self, thinking: bool | None, effort: str | None, *, thinks: bool) -> tuple[dict[str, Any], str]:
        """The variables that ask for it, and the word for the system message.

        ``thinks``: whether the model is known to think aloud.

        Raises:
            ConversationError: the template cannot ask for it, and it is not what the model does anyway.
        """
        if thinking is None and effort is None:
            return {}, ""
        asked = f"reasoning_effort: {effort!r}" if effort is not None else f"thinking: {thinking}"
        if thinking is False or effort == "none":
            return self._tell_off(asked, thinks=thinks)
        if self.is_there:
            level = self._nearest(effort) if effort and self.efforts else None
            told = {**(self.on or {}), **({_EFFORT: level} if level else {})}
            return told, _THINK if self.words else ""
        if thinks and effort in (None, "medium"):  # what it does anyway
            return {}, ""
        does = "always thinks aloud, as much as it sees fit" if thinks else "does not think aloud"
        raise ConversationError(f"{asked} cannot be had, as this model {does}: leave it out.")

    def _tell_off(self, asked: str, *, thinks: bool) -> tuple[dict[str, Any], str]:
        if self.can_switch:
            return dict(self.off or {}), _DO_NOT if self.words else ""
        if self.efforts:
            least = f"{self.efforts[0]!r} is the least effort it can be asked for"
            raise ConversationError(f"{asked} cannot be had, as this model always thinks aloud: {least}.")
        if thinks:
            raise ConversationError(
                f"{asked} cannot be had, as this model always thinks aloud: leave it out, or end the thoughts at once "
                "with max_thinking_tokens 0."
            )
        return {}, ""

    def _nearest(self, effort: str) -> str:
        """The level itself, or the nearest at which the model thinks; of two as near, the higher."""
        if effort in self.efforts:
            return effort
        thinking = [level for level in self.efforts if (self.off or {}).get(_EFFORT) != level] or self.efforts
        at = EFFORTS.index(effort)
        return min(reversed(thinking), key=lambda level: abs(EFFORTS.index(level) - at))


def with_word(messages: list[Mapping[str, Any]], word: str) -> list[Mapping[str, Any]]:
    """The messages with ``word`` at the end of the system message, which is added if it is missing."""
    if not messages or messages[0]["role"] != "system":
        return [{"role": "system", "content": word}, *messages]
    first, content = messages[0], messages[0].get("content")
    if isinstance(content, str):
        return [{**first, "content": f"{content}\n{word}"}, *messages[1:]]
    return [{**first, "content": [*(content or ()), {"type": "text", "text": word}]}, *messages[1:]]


def probe_messages(system: str) -> list[Mapping[str, Any]]:
    """The short conversation of a probe."""
    said = [{"role": "system", "content": system}] if system else []
    return [*said, {"role": "user", "content": _PROBE}]


def _differ(probe: Probe, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    first, second = probe(one, ""), probe(other, "")
    return first is not None and second is not None and first != second


def _efforts(probe: Probe, constants: Collection[str]) -> tuple[tuple[str, ...], str | None]:
    """The levels that a template tells apart, and the one that leaves thoughts out, if one does."""
    shown = probe({_EFFORT: _NO_LEVEL}, "")
    if shown is not None and _NO_LEVEL in shown:
        named = tuple(level for level in EFFORTS if level in constants)
        levels = named if len(named) > 1 else _USUAL_EFFORTS
    else:
        levels = tuple(level for level in EFFORTS if level in constants)
    prompts = {level: prompt for level in levels if (prompt := probe({_EFFORT: level}, "")) is not None}
    if len(set(prompts.values())) < 2:
        return (), None
    ends = {level: prompt.rpartition(_PROBE)[2] for level, prompt in prompts.items()}
    *_, most = ends.values()
    # A template that leaves the thoughts out ends the prompt otherwise.
    without = "none" if "none" in prompts else next((level for level, end in ends.items() if end != most), None)
    return tuple(level for level in prompts if level != "none"), without


def _reads_words(probe: Probe) -> bool:
    """Whether the prompt ends otherwise with one word in the system message than with the other."""
    ends = [prompt.rpartition(_PROBE)[2] for word in (_THINK, _DO_NOT) if (prompt := probe({}, word)) is not None]
    return len({*ends}) > 1
