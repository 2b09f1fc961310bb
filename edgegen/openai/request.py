"""OpenAI's batch format: the body of a request, its settings under the names they have here.

The wire is that of https://platform.openai.com/docs/api-reference/batch (the request input object).
"""

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, cast

from edgegen.chat import Conversation
from edgegen.errors import ConversationError
from edgegen.openai.schema import CHAT, CHAT_OWN, COMPLETION, TEMPLATE_VARIABLES, THINKING_TYPES, UNSUPPORTED
from edgegen.options.kinds import asks_whole_numbers
from edgegen.options.table import OPTIONS

RENAMED = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "stop": "stop_strings",
    "n": "num_return_sequences",
}

RENAMED_THINKING = {
    "enable_thinking": "thinking",
    "thinking_budget": "max_thinking_tokens",
    "thinking_token_budget": "max_thinking_tokens",
    "thinking_budget_tokens": "max_thinking_tokens",
    "reasoning_budget_tokens": "max_thinking_tokens",
}
"""Options of thinking in chat completions, by their names in other servers."""

ASKS_NOTHING = (
    "model",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "stream_options",
    "parallel_tool_calls",
)
"""Settings that do not change what a model says."""


def read_chat(body: Mapping[str, Any], problems: list[str]) -> Conversation | None:
    """The conversation of a chat completion, whose parameters fit; what is wrong with it is appended to ``problems``.

    A last message of the assistant is the beginning of the answer, unless ``continue_final_message`` is false or
    ``add_generation_prompt`` true. ``chat_template_kwargs`` are variables of the chat template.
    """
    begins, goes_on = body.get("add_generation_prompt"), body.get("continue_final_message")
    if goes_on is None:
        goes_on = begins is not True and _ends_open(body.get("messages"))
    variables: dict[str, Any] = body.get(TEMPLATE_VARIABLES) or {}
    try:
        return Conversation(
            cast(Any, body.get("messages")),
            add_generation_prompt=None if goes_on and not begins else begins,
            continue_final_message=goes_on,
            variables={name: value for name, value in variables.items() if value is not None},
        )
    except ConversationError as error:
        problems += each_problem(error)
        return None


def _ends_open(messages: object) -> bool:
    """Whether the last message is what an assistant has begun to say."""
    last: object = cast(list[object], messages)[-1] if isinstance(messages, list) and messages else None
    fields = cast(dict[str, Any], last) if isinstance(last, dict) else {}
    calls = fields.get("tool_calls") or fields.get("function_call")
    return fields.get("role") == "assistant" and bool(fields.get("content")) and not calls


def settings_of(body: Mapping[str, Any], url: str, problems: list[str]) -> dict[str, Any]:
    """Read the settings of a body, whose parameters fit, beside its prompt or messages, by option.

    Two that say the same are appended to ``problems``. Options that OpenAI's API has not may stand in a body too, under
    their own names.
    """
    settings, said_by = dict[str, Any](), dict[str, str]()
    renamed = {**RENAMED, **RENAMED_THINKING} if url == CHAT else RENAMED
    for name, value in _flat(body) if url == CHAT else body.items():
        option = renamed.get(name, name)
        if value is None or name in (*ASKS_NOTHING, *UNSUPPORTED, "prompt", "messages"):
            continue
        if option in settings:
            problems.append(f"{said_by[option]} and {name} would say the same: keep one of them")
        else:
            settings[option], said_by[option] = value, name
    if url == COMPLETION and isinstance(likeliest := whole(settings.get("logprobs")), int) and likeliest is not True:
        settings |= {"logprobs": True, "top_logprobs": likeliest} if likeliest is not False else {}
    return settings


_REASONING = {"effort": "reasoning_effort", "max_tokens": "max_thinking_tokens", "enabled": "thinking"}


def _flat(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The parameters of a chat, those in objects about thinking one by one: OpenRouter's and Anthropic's."""
    for name, value in body.items():
        if name == "reasoning" and value is not None:
            yield from ((option, value.get(key)) for key, option in _REASONING.items())
        elif name == "thinking" and isinstance(value, dict):
            asked = cast(dict[str, Any], value)
            yield name, THINKING_TYPES.get(asked.get("type", ""))
            yield "max_thinking_tokens", asked.get("budget_tokens")
        elif name not in CHAT_OWN:
            yield name, value


def each_problem(error: Exception) -> list[str]:
    """The problems that a message tells, one by one, without a full stop."""
    head, *listed = str(error).split("\n  - ")
    return [problem.removesuffix(".") for problem in listed or [head]]


def in_words_of(body: Container[str], renamed: Mapping[str, str], message: str) -> str:
    """A message about options, under the names that a body has for them; ``renamed``: options by those names."""
    for name, option in renamed.items():
        if name in body and option not in body:
            message = re.sub(rf"\b{option}\b", name, message)
    return message


UNLIMITED = 2**31 - 1
"""Tokens of an answer that only the context limits: what -1 means as ``max_tokens``."""


def from_json(name: str, value: Any) -> Any:
    """Convert a value that JSON cannot express: token ids as keys, minus infinity, whole numbers; and the meaning of
    -1.

    A seed of -1 is a random one, and -1 new tokens are as many as there is room for. Where an option is a whole number,
    or a list of these, 40.0 is 40.
    """
    if name in OPTIONS and asks_whole_numbers(OPTIONS[name].kind):
        value = whole(value)
    if type(value) is int and value == -1 and name in ("seed", "max_new_tokens"):
        return None if name == "seed" else UNLIMITED
    if name == "logit_bias" and isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {int(key) if key.isascii() and key.isdigit() and len(key) < 10 else key: _bias(v) for key, v in items}
    if name == "sequence_bias" and isinstance(value, list):
        return [_biased(pair) for pair in cast(list[object], value)]
    return value


def whole(value: Any) -> Any:
    """Whole numbers in place of floats such as 40.0, in lists too."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**63:
        return int(value)
    return [whole(one) for one in cast(list[Any], value)] if isinstance(value, list) else value


def _biased(pair: object) -> object:
    items = cast(list[object], pair) if isinstance(pair, list) else []
    return [whole(items[0]), _bias(items[1])] if len(items) == 2 else cast(object, pair)


def _bias(value: object) -> object:
    return float("-inf") if value == "-inf" else value
