"""``reasoning`` of ``/v1/responses``: how much a model is to think, as the variables of its chat template."""

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.chat import Conversation
from edgegen.errors import did_you_mean
from edgegen.llm import LLM
from edgegen.server.api_error import ApiError

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_VARIABLES = ("reasoning_effort", "enable_thinking", "thinking")
"""What chat templates call it."""

_ASKS_NOTHING = {"summary": ("auto",), "generate_summary": ("auto",), "context": ("auto",), "mode": ("standard",)}
"""Values that leave it to the server."""


def read_effort(given: Mapping[str, Any], problems: list[str]) -> str | None:
    """``reasoning.effort``, if it is given; what is wrong is appended to ``problems``."""
    reasoning: object = given.get("reasoning", {})
    if not isinstance(reasoning, dict):
        problems.append(f"reasoning: an object such as {{'effort': 'none'}} expected, found {shortened(reasoning)}")
        return None
    fields = {name: value for name, value in cast(dict[str, Any], reasoning).items() if value is not None}
    known = ("effort", *_ASKS_NOTHING)
    for name, value in fields.items():
        if name not in known:
            problems.append(f"reasoning: {name!r} is not a key of it{did_you_mean(name, known)}")
        elif name != "effort" and value not in _ASKS_NOTHING[name]:
            advice = "thoughts come whole, not summarized" if "summary" in name else "the chat template decides"
            problems.append(f"reasoning.{name}: {shortened(value)} is not supported, as {advice}: leave it out")
    effort = fields.get("effort")
    if effort is not None and effort not in _EFFORTS:
        hint = did_you_mean(effort, _EFFORTS) if isinstance(effort, str) else ""
        problems.append(f"reasoning.effort: {', '.join(_EFFORTS)} expected, found {shortened(effort)}{hint}")
        return None
    return effort


def template_variables(effort: str | None) -> dict[str, Any]:
    """The variables of a chat template that ask for this effort, under all names that templates have for it."""
    if effort is None:
        return {}
    thinks = effort != "none"
    return dict(zip(_VARIABLES, (effort, thinks, thinks), strict=True))


def check_effort(effort: str | None, llm: LLM, conversation: Conversation) -> None:
    """
    Raises:
        ApiError: the model's chat template cannot ask for this effort.
    """
    if effort is None:
        return
    template = llm.chat_template
    if any(template.reads(conversation, name) for name in _VARIABLES):
        return
    thinks = template.reasoning(conversation) is not None
    if effort == ("medium" if thinks else "none"):  # what it does anyway
        return
    does = "always thinks aloud, as much as it sees fit" if thinks else "does not think aloud"
    raise ApiError(
        400,
        f"reasoning.effort: {effort!r} cannot be had, as this model {does}: leave it out.",
        param="reasoning.effort",
    )
