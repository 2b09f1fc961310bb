"""OpenAI's requests: the options in the parameters that chat completions and completions share."""

from collections.abc import Mapping
from typing import Any

from edgegen.constraint import STRUCTURED_OUTPUT, read_structured_output
from edgegen.errors import ConstraintError, one_or_list
from edgegen.openai.request import RENAMED, RENAMED_THINKING, each_problem, from_json, settings_of
from edgegen.openai.schema import CHAT, CHAT_OWN
from edgegen.server.parameters import check_stream_options
from edgegen.server.ported_options import TAKEN, with_own_names
from edgegen.server.request_settings import RequestSettings

_NO_OPTIONS = (*CHAT_OWN, *STRUCTURED_OUTPUT)


def request_settings(given: Mapping[str, Any], url: str, default_tokens: int | None = None) -> RequestSettings:
    """The generation options in a body.

    Raises:
        ApiError: two say the same, or one is beyond its limit.
    """
    problems = list[str]()
    left = {name: value for name, value in given.items() if name not in _NO_OPTIONS}
    values = settings_of(with_own_names(left, problems), url, problems)
    try:
        constraint = read_structured_output({name: given[name] for name in STRUCTURED_OUTPUT if name in given})
    except ConstraintError as error:
        problems += each_problem(error)
        constraint = None
    if constraint is not None:
        said = [name for name in ("response_format", "grammar") if name in values]
        asked = next(name for name in given if name in STRUCTURED_OUTPUT)
        problems += [f"{asked} and {name} both say what the text must be: keep one of them" for name in said]
        values["response_format"] = constraint
    renamed = {**RENAMED, **TAKEN, **(RENAMED_THINKING if url == CHAT else {})}
    if "logprobs" in given and "top_logprobs" not in given:
        renamed["logprobs"] = "top_logprobs"
    settings = RequestSettings(
        {name: from_json(name, value) for name, value in values.items()}, given, renamed, default_tokens
    )
    if problems:
        raise settings.error(one_or_list(problems))
    settings.check_limits()
    return settings


def wants_usage(given: Mapping[str, Any]) -> bool:
    """What ``stream_options`` ask for."""
    check_stream_options(given)
    return given.get("stream_options", {}).get("include_usage", False)
