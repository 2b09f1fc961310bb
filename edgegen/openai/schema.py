"""Parameters of chat completions and completions beside prompts and options, as schemas, for the server and batches."""

from collections.abc import Mapping
from typing import Any, cast

from edgegen.chat.conversation import RESERVED_VARIABLES
from edgegen.options.option import EFFORTS
from edgegen.strict_json.check import SchemaCheck
from edgegen.strict_json.schema import (
    BOOLEAN,
    COUNT,
    Schema,
    advised,
    any_of,
    checked_later,
    described,
    enum,
    expecting,
    object_of,
    parameters,
)

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
URLS = (CHAT, COMPLETION)

TEMPLATE_VARIABLES = "chat_template_kwargs"
"""The variables of the chat template, as other servers call them."""

THINKING_TYPES: Mapping[str, bool | None] = {"enabled": True, "disabled": False, "auto": None, "adaptive": None}
"""The ``type`` of ``thinking``, and whether the model is to think; None leaves it to the model."""

_NOTHING: Mapping[str, tuple[Any, ...]] = {
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
    "verbosity": ("medium",),
    "moderation": (),
}
UNSUPPORTED: dict[str, Schema] = {name: advised(enum(*values), "leave it out") for name, values in _NOTHING.items()}
"""Settings that are not supported, but for values that ask for nothing."""


def _thinking() -> dict[str, Schema]:
    tokens, switch = checked_later(COUNT), checked_later(BOOLEAN)
    switched = object_of({}, parameters({"type": enum(*THINKING_TYPES), "budget_tokens": tokens}))
    asked = {
        "effort": checked_later(enum(*EFFORTS)),
        "max_tokens": tokens,
        "enabled": switch,
        "exclude": advised(enum(False), "leave it out"),
    }
    return {
        "thinking": described(any_of(BOOLEAN, switched), "Have the model think before it answers, or not."),
        "reasoning": described(object_of({}, parameters(asked)), "reasoning_effort, max_thinking_tokens and thinking."),
    }


_RESERVED = advised(
    {"not": enum(*RESERVED_VARIABLES)}, "it is not a variable of its own: give it as a parameter of the request"
)
_VARIABLES = expecting({"type": "object", "propertyNames": _RESERVED}, "an object of template variables")
CHAT_OWN: dict[str, Schema] = {
    "continue_final_message": described(BOOLEAN, "The last message is the beginning of the answer."),
    "add_generation_prompt": described(BOOLEAN, "The answer is a message of its own."),
    TEMPLATE_VARIABLES: described(_VARIABLES, "Variables that the model's chat template reads."),
}
"""Parameters of chat completions that are part of the conversation, as vLLM has them."""

CHAT_PARAMETERS: dict[str, Schema] = {**UNSUPPORTED, **CHAT_OWN, **_thinking()}

_CHECKS = {
    url: SchemaCheck(object_of({}, parameters(given), more=True), {}, url)
    for url, given in {CHAT: CHAT_PARAMETERS, COMPLETION: UNSUPPORTED, "": CHAT_OWN}.items()
}


def fitting(body: Mapping[str, Any], url: str, problems: list[str]) -> dict[str, Any]:
    """``body`` without the parameters that do not fit, which ``problems`` tell; without ``url`` it is no request."""
    given = cast(dict[str, Any], _CHECKS[url].with_whole_numbers({**body}))
    found = _CHECKS[url].problems(given)
    problems += [one.text for one in found]
    wrong = {one.path[0] for one in found}
    return {name: value for name, value in given.items() if name not in wrong}
