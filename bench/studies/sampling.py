"""Cost of sampling in microseconds per token: each logits processor alone, and common chains.

    python -m bench.studies.sampling [--json] [--repeats N] [--text N] [--only WORD] [--step-ms MS MS]

Logits are random: peaked like a language model's (a few likely tokens over a broad floor) unless named "flat". The
context has ``--text`` tokens with word-like frequencies and grows by one per step. Every figure includes the draw (or
the argmax), so "greedy" and "draw only" are the baselines. ``--step-ms`` gives the duration of a decode step for each
vocabulary and adds each figure's share of it.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsSettings
from edgegen.sampling.sampler import Sampler

VOCABULARIES = (50_257, 151_936)  # GPT-2, Qwen 2.5
EOS = (50_256,)


@dataclass(frozen=True)
class Case:
    """One way to choose a token."""

    name: str
    settings: LogitsSettings
    do_sample: bool = True
    flat: bool = False


def _halve(ids: NDArray[np.int64], logits: NDArray[np.float32]) -> NDArray[np.float32]:
    logits[ids[-1]] /= 2
    return logits


_SEVERAL = tuple(range(100, 50_000, 500))
CASES = (
    Case("greedy", LogitsSettings(), do_sample=False),
    Case("draw only", LogitsSettings()),
    Case("default: top-k 50", LogitsSettings(top_k=50)),
    Case("temperature 0.8, top-k 50, top-p 0.95", LogitsSettings(temperature=0.8, top_k=50, top_p=0.95)),
    Case(
        "repetition penalty 1.1, temperature 0.8, top-k 50, top-p 0.95",
        LogitsSettings(repetition_penalty=1.1, temperature=0.8, top_k=50, top_p=0.95),
    ),
    Case("guidance 1.5", LogitsSettings(guidance_scale=1.5)),
    Case("logit bias on 100 tokens", LogitsSettings(logit_bias=dict.fromkeys(_SEVERAL, 1.0))),
    Case("sequence bias on 100 pairs", LogitsSettings(sequence_bias={(i, i + 1): 1.0 for i in _SEVERAL})),
    Case("repetition penalty 1.1", LogitsSettings(repetition_penalty=1.1)),
    Case("repetition penalty 1.1, last 64", LogitsSettings(repetition_penalty=1.1, penalty_last_n=64)),
    Case("frequency and presence penalties", LogitsSettings(frequency_penalty=0.5, presence_penalty=0.5)),
    Case("DRY", LogitsSettings(dry_multiplier=0.8, dry_sequence_breakers=(0, 1, 2))),
    Case("no-repeat n-gram 3", LogitsSettings(no_repeat_ngram_size=3)),
    Case("100 bad words", LogitsSettings(bad_words_ids=tuple((i, i + 1) for i in _SEVERAL))),
    Case("least new tokens", LogitsSettings(min_new_tokens=10**6)),
    Case("invalid values removed", LogitsSettings(remove_invalid_values=True)),
    Case("exponential decay", LogitsSettings(exponential_decay_length_penalty=(5, 1.01))),
    Case("100 tokens suppressed", LogitsSettings(suppress_tokens=_SEVERAL)),
    Case("a function of the caller's", LogitsSettings(logits_processor=(_halve,))),
    Case("temperature 0.8", LogitsSettings(temperature=0.8)),
    Case("top-n-sigma 1", LogitsSettings(top_n_sigma=1.0)),
    Case("top-p 0.9", LogitsSettings(top_p=0.9)),
    Case("top-p 0.9, flat", LogitsSettings(top_p=0.9), flat=True),
    Case("min-p 0.05", LogitsSettings(min_p=0.05)),
    Case("min-p 0.05, flat", LogitsSettings(min_p=0.05), flat=True),
    Case("typical-p 0.9", LogitsSettings(typical_p=0.9)),
    Case("typical-p 0.9, flat", LogitsSettings(typical_p=0.9), flat=True),
    Case("epsilon cutoff 3e-4", LogitsSettings(epsilon_cutoff=3e-4)),
    Case("eta cutoff 3e-4", LogitsSettings(eta_cutoff=3e-4)),
    Case("XTC, every time", LogitsSettings(xtc_probability=1.0)),
    Case("mirostat", LogitsSettings(mirostat=2)),
    Case("renormalization", LogitsSettings(renormalize_logits=True)),
)


@dataclass(frozen=True)
class Measurement:
    """The cost of a case at a vocabulary size: the median over steps with different logits."""

    case: str
    vocabulary: int
    microseconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description="Cost of sampling in microseconds per token.")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--repeats", type=int, default=300, help="steps to measure per case (%(default)s)")
    parser.add_argument("--text", type=int, default=1000, help="tokens before the first step (%(default)s)")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    parser.add_argument("--step-ms", type=float, nargs=len(VOCABULARIES), help="a decode step, for the shares")
    options = parser.parse_args(arguments)
    cases = [case for case in CASES if options.only in case.name]
    measurements = [measure(case, size, options.repeats, options.text) for case in cases for size in VOCABULARIES]
    if options.json:
        print(json.dumps([asdict(m) for m in measurements], indent=2))
    else:
        print(table(measurements, options.step_ms))


def measure(case: Case, vocabulary: int, repeats: int, text: int) -> Measurement:
    """Time one case."""
    pipeline = LogitsPipeline.from_settings(case.settings, do_sample=case.do_sample, eos_token_ids=EOS, seed=1)
    sampler = Sampler(seed=1, do_sample=case.do_sample)
    steps = [random_logits(vocabulary, flat=case.flat, seed=seed) for seed in range(8)]
    other = random_logits(vocabulary, flat=case.flat, seed=9) if case.settings.guidance_scale != 1.0 else None
    words = (np.random.default_rng(0).zipf(1.3, 100 * (text + repeats)) - 1).tolist()
    words = [word for word in words if word < vocabulary][: text + repeats]
    ids = words[:text]
    seconds: list[float] = []
    for position in range(repeats):
        logits = steps[position % len(steps)]
        begin = time.perf_counter()
        left = pipeline(Candidates(logits), LogitsContext(ids, text // 2, other))
        sampler.sample(left, position)
        seconds.append(time.perf_counter() - begin)
        ids.append(words[text + position])
    return Measurement(case.name, vocabulary, round(float(np.median(seconds)) * 1e6, 1))


def random_logits(vocabulary: int, *, flat: bool, seed: int) -> NDArray[np.float32]:
    """``[vocabulary]`` float32: normally distributed, and unless flat with 40 tokens that stand out."""
    generator = np.random.default_rng(seed)
    if flat:
        return generator.normal(0.0, 0.5, vocabulary).astype(np.float32)
    logits = generator.normal(0.0, 2.5, vocabulary).astype(np.float32)
    logits[generator.choice(vocabulary, 40, replace=False)] += np.linspace(8, 18, 40, dtype=np.float32)
    return logits


def table(measurements: Sequence[Measurement], step_ms: Sequence[float] | None = None) -> str:
    """The measurements as a Markdown table, a column per vocabulary size."""
    cost = {(m.case, m.vocabulary): m.microseconds for m in measurements}
    lines = ["| µs per token | " + " | ".join(f"{size:,} tokens" for size in VOCABULARIES) + " |"]
    lines.append("|---|" + "---:|" * len(VOCABULARIES))
    for case in dict.fromkeys(m.case for m in measurements):
        cells = [f"{cost[case, size]:.0f}" for size in VOCABULARIES]
        if step_ms is not None:
            shares = [cost[case, size] / (10 * ms) for size, ms in zip(VOCABULARIES, step_ms, strict=True)]
            cells = [f"{cell} ({share:.1f}%)" for cell, share in zip(cells, shares, strict=True)]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
