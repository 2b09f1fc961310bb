"""Schemas of OpenAI's chat completions and completions: requests are checked against them, and the OpenAPI document has
them.
"""

from edgegen.constraint import STRUCTURED_OUTPUT
from edgegen.openai.request import ASKS_NOTHING, RENAMED, RENAMED_THINKING
from edgegen.openai.schema import CHAT, CHAT_PARAMETERS, COMPLETION, UNSUPPORTED
from edgegen.options.generation import THINKING_OPTIONS
from edgegen.options.table import MOST_TOP_LOGPROBS
from edgegen.server.http.options import MOST_MESSAGES, MOST_PROMPTS, MOST_TOOLS
from edgegen.server.wire.parameters import Parameters
from edgegen.server.wire.ported_options import ported_schemas
from edgegen.server.wire.schemas import NOTHING, PARALLEL_CALLS, PROMPT_IDS, STREAM, TOOL_NAME, option_schemas
from edgegen.strict_json.schema import (
    ANYTHING,
    BOOLEAN,
    STRING,
    Schema,
    advised,
    any_of,
    array_of,
    checked_later,
    const,
    described,
    enum,
    expecting,
    object_of,
    parameters,
    ref,
)

_OPTIONS = option_schemas()


def _shared() -> dict[str, Schema]:
    """Of chat completions and of completions; what they do not support may have the values that ask for nothing."""
    other = checked_later(described(ANYTHING, "Another server's way to say what the text must be."))
    return {
        **{name: schema for name, schema in _OPTIONS.items() if name not in THINKING_OPTIONS},
        **{name: described(_OPTIONS[option], f"OpenAI's name of {option}.") for name, option in RENAMED.items()},
        **ported_schemas(_OPTIONS),
        **dict.fromkeys(sorted(STRUCTURED_OUTPUT), other),
        **dict.fromkeys(ASKS_NOTHING, NOTHING),
        **UNSUPPORTED,
        "model": ref("ModelName"),
        "stream": STREAM,
        "stream_options": ref("StreamOptions"),
    }


def _chat_request() -> Schema:
    fields = {
        **_shared(),
        **{name: _OPTIONS[name] for name in THINKING_OPTIONS},
        **{
            name: described(_OPTIONS[option], f"Another name of {option}.") for name, option in RENAMED_THINKING.items()
        },
        **{name: schema for name, schema in CHAT_PARAMETERS.items() if name not in UNSUPPORTED},
        "echo": advised(enum(False), f"it is a parameter of {COMPLETION}: leave it out"),
        "tools": array_of(checked_later(ref("Tool")), most=MOST_TOOLS),
        "tool_choice": ref("ToolChoice"),
        "parallel_tool_calls": PARALLEL_CALLS,
    }
    messages = array_of(checked_later(ref("ChatMessage")), 1, MOST_MESSAGES)
    asked = "a list of messages such as {'role': 'user', 'content': 'Hello'}"
    return object_of({"messages": expecting(messages, asked)}, parameters(fields))


def _completion_request() -> Schema:
    several = array_of(any_of(STRING, PROMPT_IDS), 1, MOST_PROMPTS)
    prompt = expecting(any_of(STRING, PROMPT_IDS, several), "a text, a list of token ids, or a list of such prompts")
    tokens = described(
        {"type": "integer", "minimum": -1}, "Most tokens of the answer; -1: all that fit; 0 goes with echo only."
    )
    logprobs = described(
        any_of(BOOLEAN, {"type": "integer", "minimum": 0, "maximum": MOST_TOP_LOGPROBS}),
        "Log-probabilities of the tokens, and of so many alternatives at each position.",
    )
    fields = {
        "echo": described(BOOLEAN, "The answer begins with the prompt."),
        "suffix": described(STRING, "What comes after the text; for models with tokens for it (FIM)."),
        "logprobs": checked_later(logprobs),
        **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_new_tokens"), checked_later(tokens)),
    }
    return object_of({"prompt": prompt}, parameters({**_shared(), **fields}))


def _chat_message() -> Schema:
    name: Schema = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_ -]*$"}
    part = object_of({"type": const("text"), "text": STRING}, more=True)
    said = object_of({"role": name, "content": any_of(STRING, array_of(part))}, more=True)
    # An assistant may have called tools or thought aloud in place of speaking: any other key says so.
    role = {"role": const("assistant")}
    null = {**object_of({**role, "content": {"type": "null"}}, more=True), "minProperties": 3}
    silent = {**object_of(role, {"content": {"not": {}}}, more=True), "minProperties": 2}
    return any_of(said, null, silent)


def _tool() -> Schema:
    arguments = {"type": ["object", "null"], "properties": {"type": const("object")}}
    function = object_of({"name": TOOL_NAME}, {"parameters": arguments}, more=True)
    return object_of({"type": const("function"), "function": function}, more=True)


def _tool_choice() -> Schema:
    function = object_of({"name": STRING}, more=True)
    named = object_of({"type": const("function"), "function": function}, more=True)
    asked = "auto, none, required or {'type': 'function', 'function': {'name': …}}"
    return expecting(any_of(enum("auto", "none", "required"), named), asked)


COMPONENTS: dict[str, Schema] = {
    "ChatCompletionRequest": _chat_request(),
    "ChatMessage": _chat_message(),
    "CompletionRequest": _completion_request(),
    "StreamOptions": object_of(
        {}, {"include_usage": BOOLEAN, "include_obfuscation": described(ANYTHING, "Accepted; nothing is padded.")}
    ),
    "Tool": _tool(),
    "ToolChoice": _tool_choice(),
}
CHAT_REQUEST = Parameters(CHAT, COMPONENTS["ChatCompletionRequest"], COMPONENTS)
COMPLETION_REQUEST = Parameters(COMPLETION, COMPONENTS["CompletionRequest"], COMPONENTS)
