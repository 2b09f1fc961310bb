"""OpenAI's batch format: the body of a request, its settings under the names they have here.

The wire is that of https://platform.openai.com/docs/api-reference/batch (the request input object).
"""

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any, cast

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
URLS = (CHAT, COMPLETION)

RENAMED = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "stop": "stop_strings",
    "n": "num_return_sequences",
}

ASKS_NOTHING = (
    "model",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "stream_options",
    "parallel_tool_calls",
)
"""Settings that do not change what a model says."""

UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "stream": (False,),
    "echo": (False,),
    "best_of": (1,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
}
"""Settings that are not supported, but for values that ask for nothing."""


def settings_of(body: Mapping[str, Any], url: str, problems: list[str]) -> dict[str, Any]:
    """What a body says beside its prompt or messages, by option; what cannot be done is appended to ``problems``.

    Options that OpenAI's API has not may stand in a body too, under their own names.
    """
    settings, said_by = dict[str, Any](), dict[str, str]()
    for name, value in body.items():
        option = RENAMED.get(name, name)
        if value is None or name in (*ASKS_NOTHING, "prompt", "messages") or value in UNSUPPORTED.get(name, ()):
            continue
        if name in UNSUPPORTED:
            problems.append(f"{name}: {shortened(value)} is not supported: leave it out")
        elif option in settings:
            problems.append(f"{said_by[option]} and {name} would say the same: keep one of them")
        else:
            settings[option], said_by[option] = value, name
    if url == COMPLETION and isinstance(likeliest := settings.get("logprobs"), int) and likeliest is not True:
        settings |= {"logprobs": True, "top_logprobs": likeliest} if likeliest is not False else {}
    return settings


def each_problem(error: Exception) -> list[str]:
    """The problems that a message tells, one by one."""
    head, *listed = str(error).split("\n  - ")
    return listed or [head]


def from_json(name: str, value: Any) -> Any:
    """What JSON cannot say as it is meant: token ids as keys, and minus infinity."""
    if name == "logit_bias" and isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {int(key) if key.isascii() and key.isdigit() and len(key) < 10 else key: _bias(v) for key, v in items}
    if name == "sequence_bias" and isinstance(value, list):
        return [_biased(pair) for pair in cast(list[object], value)]
    return value


def _biased(pair: object) -> object:
    items = cast(list[object], pair) if isinstance(pair, list) else []
    return [items[0], _bias(items[1])] if len(items) == 2 else cast(object, pair)


def _bias(value: object) -> object:
    return float("-inf") if value == "-inf" else value
