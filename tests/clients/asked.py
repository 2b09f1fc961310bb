"""Questions that every client asks, and texts that must be in its errors."""

import json
from typing import Any

from tests.clients.model import CONTEXT, NAME

MODELS = (NAME, "stories")
KEY = "none"
TOKENS = 40
ENDING: dict[str, Any] = {"max_tokens": 200, "stop": [".", "&"]}
"""Ends an answer of either model before it is cut: a penalty has the random one write every character soon."""
OLLAMA_ENDING: dict[str, Any] = {"temperature": 0, "num_predict": ENDING["max_tokens"], "stop": ENDING["stop"]}
QUESTION = "Weather in Oslo and Rome?"
ASKED: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
REPORT = "rain in {city} for {days} days"

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "enum": ["Oslo", "Rome"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
        },
    },
}
TOOLS: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required"}

_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>'
OLLAMA_CALLING: dict[str, Any] = {"temperature": 0, "num_predict": 200, "grammar": f"start: {json.dumps(_CALL)}"}
"""Ollama's API cannot require a call: the grammar does."""

PET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "kind": {"type": "string", "enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 20},
    },
    "required": ["name", "kind", "age"],
    "additionalProperties": False,
}

WRONG_MODEL = "gpt-4"
MISSPELT = {"temprature": 0.5}
TOO_LONG = "word " * 1000

SAID_OF_MODEL = f"no model named 'gpt-4' is served: there is {', '.join(MODELS)}."
SAID_OF_PARAMETER = "'temprature' is not a parameter of /v1/chat/completions (did you mean 'temperature'?)."
SAID_OF_LENGTH = f"this model's context is {CONTEXT}"

Calls = list[tuple[str, dict[str, Any]]]
"""Names and arguments of tool calls; the ids are new in each answer."""


def calls_of(message: dict[str, Any]) -> Calls:
    functions = [call["function"] for call in message["tool_calls"]]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def reported(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The conversation after the calls of ``message`` have been made."""
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": REPORT.format(**arguments)}
        for call, (_, arguments) in zip(message["tool_calls"], calls_of(message), strict=True)
    ]
    return [*ASKED, message, *results]
