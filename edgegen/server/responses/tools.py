"""Tools of ``/v1/responses``: function tools and the choice among them, as chat completions have them."""

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.chat.tools import Tools
from edgegen.errors import ConversationError, did_you_mean, one_or_list
from edgegen.server.api_error import ApiError
from edgegen.server.options import MOST_TOOLS

_TOOL_KEYS = (
    "type",
    "name",
    "description",
    "parameters",
    "strict",
    "output_schema",
    "defer_loading",
    "allowed_callers",
)


def read_tools(given: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str | dict[str, Any] | None]:
    """``tools`` and ``tool_choice`` as chat completions have them; no choice where there are no tools.

    Raises:
        ApiError: a tool is none, or is of a kind that is not supported; the choice is none, or names no tool.
    """
    problems = list[str]()
    listed = _definitions(given.get("tools", []), problems)
    if problems:
        raise ApiError(400, one_or_list(problems), param="tools")
    choice: object = given.get("tool_choice", "auto")
    allowed: list[str] | None = None
    if isinstance(choice, dict):
        fields = cast(dict[str, Any], choice)
        if fields.get("type") == "allowed_tools":
            allowed = _allowed(fields, problems)
            choice = fields.get("mode", "auto")
        elif fields.get("type") == "function":
            choice = {"type": "function", "function": {"name": fields.get("name")}}
        else:
            said = "is not supported: only tools of type 'function' and 'allowed_tools' can be chosen"
            raise ApiError(400, f"tool_choice: {shortened(fields)} {said}.", param="tool_choice")
    names = [name for tool in listed if isinstance(name := tool["function"].get("name"), str)]
    problems += [
        f"tool_choice allows {name!r}, which is no tool{did_you_mean(name, names)}"
        for name in allowed or ()
        if name not in names
    ]
    if problems:
        raise ApiError(400, one_or_list(problems), param="tool_choice")
    try:
        Tools.read(listed, cast(Any, choice))
    except ConversationError as error:
        said = str(error).replace(".function.", ".").replace("'function': {'name': …}", "'name': …")
        about = "tool_choice" if said.startswith(("tool_choice", "a tool_choice")) else "tools"
        raise ApiError(400, said, param=about) from None
    if allowed is not None:
        listed = [tool for tool in listed if tool["function"]["name"] in allowed]
    return listed, cast(Any, choice) if listed else None


def _definitions(tools: object, problems: list[str]) -> list[dict[str, Any]]:
    if not isinstance(tools, list):
        problems.append(f"tools: a list of tools expected, found {shortened(tools)}")
        return []
    listed = cast(list[object], tools)
    if len(listed) > MOST_TOOLS:
        problems.append(f"tools: at most {MOST_TOOLS}, found {len(listed)}")
        return []
    return [_definition(tool, f"tools[{n}]", problems) for n, tool in enumerate(listed)]


def _definition(tool: object, where: str, problems: list[str]) -> dict[str, Any]:
    fields = cast(dict[str, Any], tool) if isinstance(tool, dict) else {}
    if fields.get("type") != "function":
        problems.append(
            f"{where} is of type {shortened(fields.get('type'))}: only tools of type 'function' are supported"
        )
    elif "function" in fields:
        problems.append(f"{where}: name, description and parameters stand beside 'type' here, not in 'function'")
    else:
        problems += [
            f"{where}: {name!r} is not a key of a tool{did_you_mean(name, _TOOL_KEYS)}"
            for name in fields
            if name not in _TOOL_KEYS
        ]
    if not isinstance(fields.get("strict"), bool | None):
        problems.append(f"{where}.strict: true or false expected, found {shortened(fields['strict'])}")
    if not isinstance(fields.get("description"), str | None):
        problems.append(f"{where}.description: text expected, found {shortened(fields['description'])}")
    if fields.get("defer_loading"):
        problems.append(f"{where}.defer_loading is not supported: leave it out")
    if fields.get("allowed_callers") not in (None, [], ["direct"]):
        problems.append(f"{where}.allowed_callers is not supported: leave it out")
    told = {name: fields.get(name) for name in ("name", "description", "parameters")}
    return {"type": "function", "function": {name: value for name, value in told.items() if value is not None}}


def _allowed(choice: Mapping[str, Any], problems: list[str]) -> list[str]:
    """The names of the tools that a choice of type ``allowed_tools`` leaves."""
    tools: object = choice.get("tools")
    entries = cast(list[Any], tools) if isinstance(tools, list) else []
    names = [cast(dict[str, Any], entry).get("name") if isinstance(entry, dict) else None for entry in entries]
    if not names or not all(isinstance(name, str) for name in names):
        problems.append("tool_choice: allowed_tools has a list of {'type': 'function', 'name': …} at 'tools'")
        return []
    if choice.get("mode", "auto") not in ("auto", "required"):
        problems.append(f"tool_choice: the mode of allowed_tools is auto or required, not {shortened(choice['mode'])}")
    return cast(list[str], names)
