"""Tools of ``/v1/responses``: function tools and the choice among them, as chat completions have them."""

from collections.abc import Mapping
from typing import Any, cast

from edgegen.chat.tools import ToolChoice, Tools
from edgegen.errors import ConversationError, did_you_mean
from edgegen.server.http.api_error import ApiError
from edgegen.server.wire.parameters import refusal


def read_tools(params: Mapping[str, Any]) -> tuple[list[dict[str, Any]], ToolChoice | None]:
    """``tools`` and ``tool_choice`` as chat completions have them; no choice where there are no tools.

    Raises:
        ApiError: a tool is given twice, or the choice names none.
    """
    tools: list[dict[str, Any]] = [_definition(tool) for tool in params.get("tools", [])]
    choice: Any = params.get("tool_choice", "auto")
    names = [tool["function"]["name"] for tool in tools]
    allowed = names
    if isinstance(choice, dict):
        chosen = cast(dict[str, Any], choice)
        if chosen["type"] == "allowed_tools":
            allowed = [entry["name"] for entry in chosen["tools"]]
            choice = chosen.get("mode") or "auto"
        else:
            choice = {"type": "function", "function": {"name": chosen["name"]}}
    problems = [
        f"tool_choice allows {name!r}, which is no tool{did_you_mean(name, names)}"
        for name in allowed
        if name not in names
    ]
    if problems:
        raise refusal(problems, "tool_choice")
    try:
        Tools.read(tools, choice)
    except ConversationError as error:
        about = "tool_choice" if str(error).startswith(("tool_choice", "a tool_choice")) else "tools"
        raise ApiError(400, str(error), param=about) from None
    return [tool for tool in tools if tool["function"]["name"] in allowed], choice if tools else None


def _definition(tool: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: tool.get(name) for name in ("name", "description", "parameters")}
    return {"type": "function", "function": {name: value for name, value in told.items() if value is not None}}
