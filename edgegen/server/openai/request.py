"""OpenAI's requests: the parameters that chat completions and completions share, checked by name and type."""

from collections.abc import Collection, Mapping
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.batch.openai import ASKS_NOTHING, RENAMED, UNSUPPORTED, from_json, settings_of
from edgegen.errors import did_you_mean, one_or_list
from edgegen.server.api_error import ApiError
from edgegen.server.request_settings import OPTION_NAMES, RequestSettings

SHARED = frozenset({"model", "stream", "stream_options", *RENAMED, *ASKS_NOTHING, *UNSUPPORTED, *OPTION_NAMES})
"""Parameters of both."""

_NO_OPTIONS = ("model", "stream", "stream_options")


def given_parameters(body: Mapping[str, Any], url: str, known: Collection[str]) -> dict[str, Any]:
    """The parameters of ``body`` that are not null.

    Raises:
        ApiError: there is one that is not ``known``.
    """
    for name in body:
        if name not in known:
            said = f"{name!r} is not a parameter of {url}{did_you_mean(name, known)}."
            raise ApiError(400, said, param=name, code="unknown_parameter")
    return {name: value for name, value in body.items() if value is not None}


def request_settings(
    given: Mapping[str, Any], url: str, own: Collection[str], default_tokens: int | None = None
) -> RequestSettings:
    """The generation options in a body; ``own``: parameters of ``url`` that are none.

    Raises:
        ApiError: one is not supported, or beyond its limit.
    """
    problems = list[str]()
    left = {name: value for name, value in given.items() if name not in own and name not in _NO_OPTIONS}
    values = settings_of(left, url, problems)
    renamed = dict(RENAMED)
    if "logprobs" in given and "top_logprobs" not in given:
        renamed["logprobs"] = "top_logprobs"
    settings = RequestSettings(
        {name: from_json(name, value) for name, value in values.items()}, given, renamed, default_tokens
    )
    if problems:
        raise settings.error(one_or_list(problems))
    settings.check_limits()
    return settings


def switch(given: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """
    Raises:
        ApiError: the parameter is neither true nor false.
    """
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise ApiError(400, f"{name}: true or false expected, found {shortened(value)}", param=name)
    return value


def wants_usage(given: Mapping[str, Any]) -> bool:
    """What ``stream_options`` ask for."""
    options = given.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise ApiError(400, "stream_options: an object expected.", param="stream_options")
    if not switch(given, "stream"):
        raise ApiError(400, "stream_options is for streams: add 'stream': true.", param="stream_options")
    known = ("include_usage", "include_obfuscation")
    for name in cast(dict[str, object], options):
        if name not in known:
            said = f"{name!r} is not a key of stream_options{did_you_mean(name, known)}."
            raise ApiError(400, said, param="stream_options", code="unknown_parameter")
    return switch(cast(dict[str, Any], options), "include_usage")
