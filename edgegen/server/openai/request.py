"""OpenAI's requests: the options in the parameters that chat completions and completions share."""

from collections.abc import Mapping
from typing import Any, cast, get_args

from edgegen.constraint import (
    STRUCTURED_OUTPUT,
    Constraint,
    Grammar,
    Whitespace,
    read_response_format,
    read_structured_output,
)
from edgegen.errors import ConstraintError, refuse_any
from edgegen.openai.request import RENAMED, RENAMED_THINKING, each_problem, from_json, settings_of
from edgegen.openai.schema import CHAT, CHAT_OWN
from edgegen.server.wire.parameters import check_stream_options
from edgegen.server.wire.ported_options import TAKEN, with_own_names
from edgegen.server.wire.request_settings import RequestSettings

_NO_OPTIONS = (*CHAT_OWN, *STRUCTURED_OUTPUT)


def request_settings(params: Mapping[str, Any], url: str, default_tokens: int | None = None) -> RequestSettings:
    """The generation options in a body.

    Raises:
        ApiError: two say the same, or one is beyond its limit.
    """
    problems = list[str]()
    left = {name: value for name, value in params.items() if name not in _NO_OPTIONS}
    values = settings_of(with_own_names(left, problems), url, problems)
    try:
        asked = {name: params[name] for name in STRUCTURED_OUTPUT if name in params}
        constraint = read_structured_output(asked, _whitespace(values))
        others = _others(values) if constraint is not None else {}
    except ConstraintError as error:
        problems += each_problem(error)
        constraint, others = None, {}
    if constraint is not None:
        said = [name for name, other in others.items() if other is not None and other != constraint]
        first = next(name for name in params if name in STRUCTURED_OUTPUT)
        problems += [f"{first} and {name} both say what the text must be: keep one of them" for name in said]
        values = {name: value for name, value in values.items() if name != "grammar"} | {"response_format": constraint}
    renamed = {**RENAMED, **TAKEN, **(RENAMED_THINKING if url == CHAT else {})}
    if "logprobs" in params and "top_logprobs" not in params:
        renamed["logprobs"] = "top_logprobs"
    settings = RequestSettings(
        {name: from_json(name, value) for name, value in values.items()}, params, renamed, default_tokens
    )
    refuse_any(problems, settings.error)
    settings.check_limits()
    return settings


def _whitespace(values: Mapping[str, Any]) -> Whitespace:
    """Return the white space of JSON; another value is refused with the other options."""
    asked: object = values.get("json_whitespace")
    return cast(Whitespace, asked) if asked in get_args(Whitespace) else "compact"


def _others(values: Mapping[str, Any]) -> dict[str, Constraint | None]:
    """Return the constraints that options beside another constraint set on the text, by their names.

    Raises:
        ConstraintError: one is wrong.
    """
    found = dict[str, Constraint | None]()
    if "response_format" in values:
        found["response_format"] = read_response_format(values["response_format"], _whitespace(values))
    if "grammar" in values:
        found["grammar"] = Grammar(values["grammar"]) if isinstance(values["grammar"], str) else None
    return found


def wants_usage(given: Mapping[str, Any]) -> bool:
    """Return whether ``stream_options`` ask for usage, after checking them."""
    check_stream_options(given)
    return given.get("stream_options", {}).get("include_usage", False)
