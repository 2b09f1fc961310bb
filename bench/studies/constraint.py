"""Cost of constrained decoding in microseconds per token: compile, mask and accept.

    python -m bench.studies.constraint --tokenizer gpt2/tokenizer.json:50257 --tokenizer qwen2.5/tokenizer.json:151936

For each token of a text the mask is computed and applied to random logits, then the token is accepted. Reading a
vocabulary and compiling a constraint happen once; both are reported separately, in milliseconds.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.studies.sampling import random_logits
from edgegen.constraint import AnyJson, Choice, Constraint, ConstraintCompiler, JsonSchema, Regex
from edgegen.sampling import Candidates
from edgegen.tokenizer import Tokenizer

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}},
    },
    "required": ["name", "age", "tags"],
}
ANSWER = '{"name": "John Smith the third", "age": 42, "tags": ["blue as the sky", "tall"], "note": {"so": [1.5, null]}}'
CASES: tuple[tuple[str, Constraint, str], ...] = (
    ("JSON schema", JsonSchema.of(PERSON), ANSWER),
    ("any JSON object", AnyJson(), ANSWER),
    ("regex, words", Regex("[A-Z][a-z]*( [a-z]+)*\\."), "Once upon a time there was a little girl."),
    ("regex, counted", Regex("[A-Za-z ,.]{10,200}"), "Once upon a time there was a little girl."),
    ("choice of 3", Choice(("positive", "negative", "neutral")), "negative"),
)


@dataclass(frozen=True)
class Measurement:
    """One case over one vocabulary: medians over all tokens of all rounds, and the slowest token's median."""

    case: str
    vocabulary: int
    compile_ms: float
    mask_us: float
    slowest_us: float
    accept_us: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description="Microseconds per token of constrained output.")
    parser.add_argument("--tokenizer", action="append", required=True, help="tokenizer.json:vocabulary size")
    parser.add_argument("--rounds", type=int, default=20, help="passes over each text (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    options = parser.parse_args(arguments)
    measurements: list[Measurement] = []
    for named in options.tokenizer:
        path, _, size = named.rpartition(":")
        measurements += measure(Tokenizer.from_file(Path(path)), int(size), options.rounds)
    print(json.dumps([asdict(m) for m in measurements], indent=2) if options.json else table(measurements))


def measure(tokenizer: Tokenizer, size: int, rounds: int) -> list[Measurement]:
    """Time every case over one vocabulary; the first line is the vocabulary itself."""
    compiler = ConstraintCompiler(tokenizer, size)
    begin = time.perf_counter()
    compiler.compile(Regex("x"))
    measurements = [Measurement("the vocabulary, once", size, (time.perf_counter() - begin) * 1e3, 0, 0, 0)]
    logits = random_logits(size, flat=False, seed=0)
    for name, constraint, text in CASES:
        begin = time.perf_counter()
        compiled = compiler.compile(constraint)
        compile_ms = (time.perf_counter() - begin) * 1e3
        ids = tokenizer.encode(text, add_special_tokens=False)
        times = np.zeros((rounds, len(ids), 2))
        for n in range(rounds):
            state = compiled.start(())
            for at, token_id in enumerate(ids):
                t0 = time.perf_counter()
                state.apply(Candidates(logits))
                t1 = time.perf_counter()
                state.accept(token_id)
                times[n, at] = t1 - t0, time.perf_counter() - t1
        times *= 1e6
        mask, accept = np.median(times, axis=(0, 1)).tolist()
        slowest = float(np.median(times[:, :, 0], axis=0).max())
        measurements.append(Measurement(name, size, compile_ms, mask, slowest, accept))
    return measurements


def table(measurements: Sequence[Measurement]) -> str:
    """The measurements as a Markdown table."""
    lines = ["| constraint | vocabulary | compile, ms | mask, µs | slowest mask, µs | accept, µs |"]
    lines += ["|---|---:|---:|---:|---:|---:|"]
    for m in measurements:
        cells = [f"{value:.1f}" for value in (m.compile_ms, m.mask_us, m.slowest_us, m.accept_us)]
        lines.append(f"| {m.case} | {m.vocabulary:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
