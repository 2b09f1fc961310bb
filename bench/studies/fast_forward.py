"""Constrained decoding: time saved by running forced tokens in one step, as proposals.

    python -m bench.studies.fast_forward --model stories

Each round generates the same constrained answers with and without a proposer and takes the ratio of the pair. With a
float32 KV cache, steps of one and of several tokens differ in their last bits, so the answers may differ. The times
are therefore compared per token.
"""

import argparse
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from edgegen import LLM
from edgegen.constraint import Choice, Constraint, JsonSchema
from edgegen.constraint.row import RowConstraint

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "full_name": {"type": "string", "maxLength": 12},
        "is_a_hero": {"type": "boolean"},
        "number_of_friends": {"type": "integer", "minimum": 0, "maximum": 99},
        "favourite_colour": {"enum": ["red", "green", "blue"]},
    },
    "required": ["full_name", "is_a_hero", "number_of_friends", "favourite_colour"],
    "additionalProperties": False,
}
SENTENCES = (" the little girl went to the park to play", " the old man was very sad and went home")
CASES: tuple[tuple[str, Constraint], ...] = (
    ("JSON, compact", JsonSchema.of(PERSON, whitespace="compact")),
    ("JSON, flexible", JsonSchema.of(PERSON)),
    ("choice of 2 sentences", Choice(SENTENCES)),
)


@dataclass(frozen=True)
class Measurement:
    """Medians over all rounds."""

    case: str
    tokens: int
    ms_per_token: float
    ms_per_token_without: float
    speedup: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description="Time saved by running forced tokens in one step.")
    parser.add_argument("--model", default="stories", help="a bundle's name or path (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of answers per case (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    options = parser.parse_args(arguments)
    llm = LLM.load(options.model)
    results = [measure(llm, name, constraint, options.rounds) for name, constraint in CASES]
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=1))
        return
    print("| | tokens | ms per token | one by one | speedup |\n|---|---:|---:|---:|---:|")
    for r in results:
        print(f"| {r.case} | {r.tokens} | {r.ms_per_token:.2f} | {r.ms_per_token_without:.2f} | {r.speedup:.2f} |")


def measure(llm: LLM, name: str, constraint: Constraint, rounds: int) -> Measurement:
    """Answers with and without proposals, in pairs."""
    pairs: list[tuple[float, float]] = []
    tokens: list[int] = []
    for _ in range(rounds + 1):
        count, together = answer(llm, constraint)
        with without_proposals():
            _, single = answer(llm, constraint)
        tokens.append(count)
        pairs.append((together, single))
    pairs = pairs[1:]  # the first compiled the constraint
    return Measurement(
        name,
        tokens[0],
        median(a for a, _ in pairs) * 1e3,
        median(b for _, b in pairs) * 1e3,
        median(b / a for a, b in pairs),
    )


def answer(llm: LLM, constraint: Constraint) -> tuple[int, float]:
    """Tokens of one answer, and seconds per token after the first."""
    result = llm.generate("A hero:", grammar=constraint, max_new_tokens=150, do_sample=False)
    return len(result.token_ids), result.timings.decode_seconds / max(1, result.timings.decode_tokens)


@contextmanager
def without_proposals() -> Generator[None]:
    """Every token by itself."""
    propose = RowConstraint.propose
    RowConstraint.propose = lambda self, token_ids: []
    try:
        yield
    finally:
        RowConstraint.propose = propose


if __name__ == "__main__":
    main()
