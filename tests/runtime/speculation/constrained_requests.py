"""Requests of which some have a constraint, and what each answers alone and in a batch."""

from collections.abc import Sequence
from typing import Any

from edgegen import LLM
from edgegen.constraint import Choice, Grammar, JsonSchema, Regex
from edgegen.generation.results import GenerationResult
from tests.runtime.models import EOS

COLOURS = ("red", "green", "blue", "light blue")
GRAMMAR = """
start: line+
line: NAME "=" NUMBER ";"
NAME: /[ab]{2}/
NUMBER: /[0-9]{1,3}/
"""
REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("one, two, one, two, one,", {}),
    ("ab ba ab ba", {"grammar": Regex("([ab]{2} ){3,30}")}),
    (
        "colours: ",
        {"grammar": JsonSchema.of({"type": "array", "items": {"enum": [*COLOURS]}, "minItems": 6, "maxItems": 9})},
    ),
    ("which? ", {"grammar": Choice.of(f"{one} as {other} is {one}" for one in COLOURS for other in COLOURS)}),
    ("ab=12;ab=12;", {"grammar": Grammar(GRAMMAR), "max_new_tokens": 25}),
)
"""Prompts and their options."""

BATCHES = ((0, 1), (1, 2), (1, 4), (0, 3), (0, 1, 4), (1, 1, 2), (0, 1, 2, 3), (4, 0, 1, 1))
"""Which of them run together; the last one joins when the first has ended."""


def options_of(place: int, *, sampled: bool) -> dict[str, Any]:
    """Of a request: greedy, or with a seed of its own."""
    choice = {"do_sample": True, "seed": place, "temperature": 1.2} if sampled else {"do_sample": False}
    return {"max_new_tokens": 40, "eos_token_id": (EOS,), **choice, **REQUESTS[place][1]}


def alone(llm: LLM, *, sampled: bool) -> list[GenerationResult]:
    """The answers to all of them, one after the other."""
    return [llm.generate(prompt, **options_of(place, sampled=sampled)) for place, (prompt, _) in enumerate(REQUESTS)]


def together(llm: LLM, batch: Sequence[int], *, sampled: bool) -> list[GenerationResult]:
    """The answers of a batch."""
    streams = [llm.stream(REQUESTS[place][0], **options_of(place, sampled=sampled)) for place in batch[:-1]]
    list(streams[0])
    streams.append(llm.stream(REQUESTS[batch[-1]][0], **options_of(batch[-1], sampled=sampled)))
    for stream in streams[1:]:
        list(stream)
    return [stream.result for stream in streams]
