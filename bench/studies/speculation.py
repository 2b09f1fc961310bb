"""Speculative decoding with prompt lookup: speedup, in pairs of answers with and without it.

    python -m bench.studies.speculation --text FILE [--model BUNDLE] [--tokenizer FILE]
    python -m bench.studies.speculation --text FILE [--model BUNDLE] [--tokenizer FILE] --replay
    python -m bench.studies.speculation --costs [--model BUNDLE]

No model that is small enough for a benchmark edits texts well, so the answers are dictated: a logits processor forces
passages of a text, token by token, with and without proposals. The repetition rate is thereby known, and the time is
that of the model's own steps. ``--tokenizer`` uses another tokenizer's ids, for a random-weight checkpoint whose own
tokenizer does not suit real text. One case is not dictated: the model's own greedy answer.

``--replay`` runs no model: it counts the steps that passages of the text would take with n-grams and proposals of
several sizes; a proposed token costs what the break-even rule assumes. The options' defaults come from this.

``--costs`` measures the cost of an additional token in a step, in steps: the constant of the break-even rule.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean, median, quantiles
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen import LLM, EngineOptions, GenerationResult
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.model.loading import open_runner
from edgegen.speculation.adaptive_length import TOKEN_COST
from edgegen.speculation.ngram_proposer import NGramProposer
from edgegen.tokenizer import Tokenizer

Clock = Callable[[], float]

PROMPT, ANSWER, PROPOSAL = 200, 160, 10
"""Tokens of a passage to be repeated, of an answer, and of a proposal."""

SIZES, LENGTHS, PASSAGES = (2, 3, 4, 5, 6), (5, 10, 20), 25
"""For ``--replay``: largest n-grams, longest proposals, and the number of passages."""

PAST, TOKENS, ROUNDS = 256, (2, 4, 8, 16), 15
"""For ``--costs``: tokens in the KV cache, tokens in a step, and measurements of each."""


@dataclass(frozen=True)
class Case:
    """A dictated answer, or None for the model's own."""

    name: str
    prompt: list[int]
    answer: list[int] | None


@dataclass(frozen=True)
class Measurement:
    """The result of all pairs; ``speedup`` is the median of their ratios, ``low`` and ``high`` the quartiles."""

    case: str
    kv: str
    same_ids: bool
    proposed: int
    accepted: int
    ms_per_token_without: float
    speedup: float
    low: float
    high: float


class Dictation:
    """Raises the logit of the next token of a text above all others."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids

    def __call__(self, ids: NDArray[np.int64], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        logits[self._ids[len(ids)]] = logits.max() + 1
        return logits


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description="Speedup of speculative decoding with prompt lookup.")
    parser.add_argument("--model", default="stories", help="a bundle's name or path (%(default)s)")
    parser.add_argument("--text", type=Path, help="a text file to take passages from")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json to read it with (the model's)")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of answers per case (%(default)s)")
    parser.add_argument("--threads", type=int, help="threads to compute with (physical cores)")
    parser.add_argument("--kv", default="float32,int8", help="dtypes of the KV cache (%(default)s)")
    parser.add_argument("--cpu-time", action="store_true", help="on a busy machine: CPU time, best with --threads 1")
    parser.add_argument("--replay", action="store_true", help="count steps for several sizes, without a model")
    parser.add_argument("--costs", action="store_true", help="measure the cost of an additional token in a step")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    options = parser.parse_args(arguments)
    engines = [EngineOptions(kv=kv, threads=options.threads) for kv in options.kv.split(",")]
    if options.costs:
        print("| KV cache | " + " | ".join(f"{n} tokens" for n in TOKENS) + " |")
        print("|---|" + "---:|" * len(TOKENS))
        for engine in engines:
            print(f"| {engine.kv} | " + " | ".join(f"{cost:.2f}" for cost in costs(options.model, engine)) + " |")
        return
    if options.text is None:
        parser.error("--text is missing")
    if options.replay:
        print_replay(options)
        return
    results = (result for engine in engines for result in measure_all(options, engine))
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=1))
        return
    print("| | KV cache | proposed | accepted | ms per token without | speedup | quartiles | same ids |")
    print("|---|---|---:|---:|---:|---:|---|---|")
    for r in results:
        print(
            f"| {r.case} | {r.kv} | {r.proposed} | {r.accepted} | {r.ms_per_token_without:.2f} | {r.speedup:.2f} | "
            f"{r.low:.2f}-{r.high:.2f} | {'yes' if r.same_ids else 'no'} |",
            flush=True,
        )


def measure_all(options: Any, engine: EngineOptions) -> Iterator[Measurement]:
    """All cases with one KV cache dtype."""
    llm = LLM.load(options.model, options=engine)
    ids = read(options)
    for case in (*cases(ids), Case("greedy, the model's own", ids[:20], None)):
        yield measure(llm, str(engine.kv), case, options.rounds, process_time if options.cpu_time else perf_counter)


def read(options: Any) -> list[int]:
    """The ids of the text."""
    bundle = Bundle.open(BundleStore().resolve(options.model))
    tokenizer = Tokenizer.from_file(options.tokenizer or bundle.file(bundle.manifest.tokenizer or "tokenizer.json"))
    return tokenizer.encode(options.text.read_text("utf-8"), add_special_tokens=False)


def cases(ids: list[int], begin: int = 0) -> Iterator[Case]:
    """A passage of ``ids``, from ``begin`` on: repeated in several degrees, and not."""
    random = np.random.default_rng(begin)
    passage, other = ids[begin : begin + PROMPT], ids[begin + PROMPT : begin + PROMPT + ANSWER]
    yield Case("copied", passage, passage[:ANSWER])
    edited = list(passage)
    for at in range(15, PROMPT, 40):
        edited[at] = int(random.choice(other))
    yield Case("one token in 40 changed", passage, edited[:ANSWER])
    yield Case("quotations of 12 tokens, 6 between", passage, quoting(passage, other, random))
    yield Case("another passage", passage, other)
    yield Case("another passage, drawn words", passage, random.permutation(ids[:20000])[:ANSWER].tolist())


def quoting(passage: list[int], other: list[int], random: np.random.Generator) -> list[int]:
    """Pieces of both in turn."""
    answer = list[int]()
    while len(answer) < ANSWER:
        begin, new = (int(random.integers(len(source) - 12)) for source in (passage, other))
        answer += passage[begin : begin + 12] + other[new : new + 6]
    return answer[:ANSWER]


def measure(llm: LLM, kv: str, case: Case, rounds: int, clock: Clock) -> Measurement:
    """Alternating answers with and without proposals."""
    pairs = [(answer(llm, case, PROPOSAL, clock), answer(llm, case, None, clock)) for _ in range(rounds + 1)]
    (speculative, _), (single, _) = pairs[0]
    times = [(a, b) for (_, a), (_, b) in pairs[1:]]  # the first warms up
    ratios = [without / with_guesses for with_guesses, without in times]
    low, _, high = quantiles(ratios, n=4)
    return Measurement(
        case=case.name,
        kv=kv,
        same_ids=speculative.token_ids == single.token_ids,
        proposed=speculative.speculation.proposed,
        accepted=speculative.speculation.accepted,
        ms_per_token_without=median(without for _, without in times) / (len(single.token_ids) - 1) * 1e3,
        speedup=median(ratios),
        low=low,
        high=high,
    )


def answer(llm: LLM, case: Case, proposal: int | None, clock: Clock) -> tuple[GenerationResult, float]:
    """One answer, whose length is always the same, and seconds from its first token to its last."""
    dictated = [] if case.answer is None else [Dictation([*case.prompt, *case.answer])]
    with llm.stream(
        case.prompt,
        do_sample=False,
        max_new_tokens=ANSWER,
        eos_token_id=(),
        logits_processor=dictated,
        prompt_lookup_num_tokens=proposal,
    ) as stream:
        next(stream)
        begin = clock()
        result = stream.wait()
        return result, clock() - begin


def print_replay(options: Any) -> None:
    """A table of means over passages, and the least of all."""
    ids = read(options)
    starts = range(0, len(ids) - PROMPT - ANSWER, max(1, (len(ids) - PROMPT - ANSWER) // PASSAGES))
    passages = [list(cases(ids, start)) for start in starts]
    print("| n-grams of 2 to | proposal | " + " | ".join(case.name for case in passages[0]) + " |")
    print("|---:|---:|" + "---|" * len(passages[0]))
    for size, longest in product(SIZES, LENGTHS):
        found = [[replay(case, size, longest) for case in same] for same in zip(*passages, strict=True)]
        columns = " | ".join(f"{mean(speedups):.2f} ({min(speedups):.3f})" for speedups in found)
        print(f"| {size} | {longest} | {columns} |", flush=True)


def replay(case: Case, size: int, longest: int) -> float:
    """The speedup of an answer by proposals, computed without a model."""
    proposer, answer = NGramProposer(longest, size), case.answer or []
    done, cost = 0, 0.0
    while done < len(answer):
        proposal = proposer.propose([*case.prompt, *answer[:done]])[: len(answer) - done - 1]
        right = next((n for n, token in enumerate(proposal) if token != answer[done + n]), len(proposal))
        if proposal:
            proposer.verified(len(proposal), right)
        cost += 1 + TOKEN_COST * len(proposal)
        done += right + 1
    return len(answer) / cost


def costs(model: str, options: EngineOptions) -> list[float]:
    """For each of ``TOKENS``: the additional cost per token of such a step, in steps of one token."""
    runner = open_runner(Bundle.open(BundleStore().resolve(model)), options)
    cache, random = runner.new_cache(), np.random.default_rng(0)
    cache.reserve(1, PAST + max(TOKENS))
    runner.prefill(cache, 0, random.integers(0, runner.vocab_size, PAST).tolist())

    def step(tokens: int) -> float:
        cache.truncate(0, PAST)
        ids = random.integers(0, runner.vocab_size, (1, tokens))
        begin = perf_counter()
        runner.decode(cache, ids)
        return perf_counter() - begin

    ratios: dict[int, list[float]] = {tokens: [] for tokens in TOKENS}
    for _ in range(ROUNDS):
        for tokens, found in ratios.items():
            step(1)
            one, several = step(1), step(tokens)  # includes the cost of changing the shape
            found.append((several / one - 1) / (tokens - 1))
    return [median(found) for found in ratios.values()]


if __name__ == "__main__":
    main()
