"""Constrained JSON: tokens of answers with each kind of white space, and how many characters of them are white space.

    python -m bench.studies.json_whitespace

Each prompt is answered greedily under each schema, and by a tool that must be called. Counts do not depend on the
machine.
"""

import argparse
import json
from collections.abc import Sequence
from statistics import mean
from typing import Any

from edgegen import LLM, EngineOptions
from edgegen.constraint import Whitespace
from edgegen.generation.results import GenerationResult

_WORD: dict[str, Any] = {"type": "string", "maxLength": 8}
_AGE: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 99}
SCHEMAS: dict[str, dict[str, Any]] = {
    "two fields": {"name": _WORD, "age": _AGE},
    "choices": {"colour": {"enum": ["red", "green", "blue"]}, "big": {"type": "boolean"}, "count": _AGE},
    "a list": {"words": {"type": "array", "items": _WORD, "minItems": 3, "maxItems": 3}},
    "nested": {
        "person": {
            "type": "object",
            "properties": {"name": _WORD, "friends": {"type": "array", "items": _WORD, "minItems": 1, "maxItems": 2}},
            "required": ["name", "friends"],
        },
        "age": _AGE,
    },
}
PROMPTS = ("Once upon a time", "The little girl is", "A dog named Max", "In the garden")
MOST_TOKENS = 400


def main(arguments: Sequence[str] | None = None) -> None:
    """Answer everything and print a table."""
    parser = argparse.ArgumentParser(description="Tokens of constrained JSON by its white space.")
    parser.add_argument("--model", default="stories", help="a bundle's name or path (%(default)s)")
    options = parser.parse_args(arguments)
    llm = LLM.load(options.model, options=EngineOptions(deterministic=True))
    print("| `json_whitespace` | tokens of an answer | white space in it, % | tokens of a call | calls cut short |")
    print("|---|---:|---:|---:|---:|")
    styles: tuple[Whitespace, ...] = ("compact", "flexible")
    for whitespace in styles:
        answers = [answer(llm, schema, prompt, whitespace) for schema in SCHEMAS.values() for prompt in PROMPTS]
        calls = [call(llm, name, prompt, whitespace) for name in SCHEMAS for prompt in PROMPTS]
        tokens, of_calls = (mean(len(one.token_ids) for one in each) for each in (answers, calls))
        cut = sum(not one.tool_calls for one in calls)
        space = 100 * mean(map(blank, answers))
        print(f"| `{whitespace}` | {tokens:.1f} | {space:.0f} | {of_calls:.1f} | {cut} of {len(calls)} |")


def answer(llm: LLM, properties: dict[str, Any], prompt: str, whitespace: Whitespace) -> GenerationResult:
    """A whole answer under one schema."""
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    found = llm.generate(prompt, response_format=form, json_whitespace=whitespace, max_new_tokens=MOST_TOKENS)
    assert found.finish_reason == "stop"
    return found


def call(llm: LLM, name: str, prompt: str, whitespace: Whitespace) -> GenerationResult:
    """A call of one tool; white space may use up its tokens."""
    properties = SCHEMAS[name]
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    function = {"name": name.replace(" ", "_"), "parameters": parameters}
    choice: Any = {"type": "function", "function": {"name": function["name"]}}
    return llm.chat(
        [{"role": "user", "content": prompt}],
        tools=[{"type": "function", "function": function}],
        tool_choice=choice,
        json_whitespace=whitespace,
        max_new_tokens=MOST_TOKENS,
    )


def blank(result: GenerationResult) -> float:
    """The share of an answer's characters that is white space between the tokens of JSON."""
    compact = json.dumps(json.loads(result.text), ensure_ascii=False, separators=(",", ":"))
    return 1 - len(compact) / len(result.text)


if __name__ == "__main__":
    main()
