"""What choosing the next token costs, in microseconds per step.

    python bench/sampling.py [--json] [--repeats N]

Logits are random: peaked like a language model's (a few likely tokens over a broad floor) except where it
says flat.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen.logits import Candidates, LogitsContext, LogitsPipeline
from edgegen.sampler import Sampler

VOCABULARIES = (50_257, 151_936)  # GPT-2, Qwen 2.5


@dataclass(frozen=True)
class Case:
    """One way to choose a token."""

    name: str
    do_sample: bool = True
    flat: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


CASES = (
    Case("greedy", do_sample=False),
    Case("temperature 0.8", temperature=0.8),
    Case("top-k 50", top_k=50),
    Case("temperature 0.8, top-k 50, top-p 0.95", temperature=0.8, top_k=50, top_p=0.95),
    Case("top-p 0.9", top_p=0.9),
    Case("top-p 0.9, flat", top_p=0.9, flat=True),
)


@dataclass(frozen=True)
class Measurement:
    """The cost of a case at a vocabulary size: the median over steps with different logits."""

    case: str
    vocabulary: int
    microseconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description="Microseconds per step of choosing the next token.")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--repeats", type=int, default=300, help="steps to measure per case (%(default)s)")
    options = parser.parse_args(arguments)
    measurements = [measure(case, size, options.repeats) for case in CASES for size in VOCABULARIES]
    print(json.dumps([asdict(m) for m in measurements], indent=2) if options.json else table(measurements))


def measure(case: Case, vocabulary: int, repeats: int) -> Measurement:
    """Time one case."""
    pipeline = LogitsPipeline.compose(temperature=case.temperature, top_k=case.top_k, top_p=case.top_p)
    sampler = Sampler(seed=1, do_sample=case.do_sample)
    context = LogitsContext(())
    steps = [random_logits(vocabulary, flat=case.flat, seed=seed) for seed in range(8)]
    seconds: list[float] = []
    for position in range(repeats):
        logits = steps[position % len(steps)]
        begin = time.perf_counter()
        sampler.sample(pipeline(Candidates(logits), context), position)
        seconds.append(time.perf_counter() - begin)
    return Measurement(case.name, vocabulary, round(float(np.median(seconds)) * 1e6, 1))


def random_logits(vocabulary: int, *, flat: bool, seed: int) -> NDArray[np.float32]:
    """``[vocabulary]`` float32: normally distributed, and unless flat with 40 tokens that stand out."""
    generator = np.random.default_rng(seed)
    if flat:
        return generator.normal(0.0, 0.5, vocabulary).astype(np.float32)
    logits = generator.normal(0.0, 2.5, vocabulary).astype(np.float32)
    logits[generator.choice(vocabulary, 40, replace=False)] += np.linspace(8, 18, 40, dtype=np.float32)
    return logits


def table(measurements: Sequence[Measurement]) -> str:
    """The measurements as a Markdown table, a column per vocabulary size."""
    cost = {(m.case, m.vocabulary): m.microseconds for m in measurements}
    lines = ["| µs per step | " + " | ".join(f"{size:,} tokens" for size in VOCABULARIES) + " |"]
    lines.append("|---|" + "---:|" * len(VOCABULARIES))
    for case in CASES:
        cells = " | ".join(f"{cost[case.name, size]:.0f}" for size in VOCABULARIES)
        lines.append(f"| {case.name} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
