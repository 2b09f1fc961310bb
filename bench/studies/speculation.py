"""What guesses by prompt lookup save, or cost, in pairs of answers with and without them.

    python -m bench.studies.speculation --text FILE [--model BUNDLE] [--tokenizer FILE]
    python -m bench.studies.speculation --text FILE [--model BUNDLE] [--tokenizer FILE] --replay
    python -m bench.studies.speculation --costs [--model BUNDLE]

No model that fits a benchmark edits texts well, so the answers are dictated: a logits processor has the model say
passages of a text, token by token, with and without guesses. How much repeats is thereby known, and the time is that of
the model's own steps. ``--tokenizer`` takes the ids of another tokenizer, for a checkpoint of random weights whose own
is none for real texts. One case is not dictated: what the model says by itself.

``--replay`` runs no model: it counts the steps that passages from all over the text would take with n-grams and guesses
of several sizes, a guessed token at the price that break-even is computed with. The options' defaults come from there.

``--costs`` measures what one more token in a step costs, in steps: the figure that break-even is computed with.
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

PROMPT, ANSWER, GUESS = 200, 160, 10
"""Tokens of a passage to be repeated, of an answer, and of a guess."""

SIZES, LENGTHS, PASSAGES = (2, 3, 4, 5, 6), (5, 10, 20), 25
"""Of ``--replay``: largest n-grams, longest guesses, and how many passages are taken."""

PAST, TOKENS, ROUNDS = 256, (2, 4, 8, 16), 15
"""Of ``--costs``: tokens in the cache, in a step, and how often each is measured."""


@dataclass(frozen=True)
class Case:
    """An answer that is dictated, or None for the model's own."""

    name: str
    prompt: list[int]
    answer: list[int] | None


@dataclass(frozen=True)
class Measurement:
    """Of all pairs; ``speedup`` is the median of their ratios, between quartiles."""

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
    parser = argparse.ArgumentParser(description="What guesses by prompt lookup save, or cost.")
    parser.add_argument("--model", default="stories", help="a bundle's name or path (%(default)s)")
    parser.add_argument("--text", type=Path, help="a text file to take passages from")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json to read it with (the model's)")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of answers per case (%(default)s)")
    parser.add_argument("--threads", type=int, help="threads to compute with (physical cores)")
    parser.add_argument("--kv", default="float32,int8", help="how keys and values are kept (%(default)s)")
    parser.add_argument("--cpu-time", action="store_true", help="on a busy machine: CPU time, best with --threads 1")
    parser.add_argument("--replay", action="store_true", help="count steps for several sizes, without a model")
    parser.add_argument("--costs", action="store_true", help="measure what one more token in a step costs")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    options = parser.parse_args(arguments)
    engines = [EngineOptions(kv=kv, threads=options.threads) for kv in options.kv.split(",")]
    if options.costs:
        print("| keys and values | " + " | ".join(f"{n} tokens" for n in TOKENS) + " |")
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
    print("| | keys and values | guessed | came true | ms per token without | speedup | quartiles | same ids |")
    print("|---|---|---:|---:|---:|---:|---|---|")
    for r in results:
        print(
            f"| {r.case} | {r.kv} | {r.proposed} | {r.accepted} | {r.ms_per_token_without:.2f} | {r.speedup:.2f} | "
            f"{r.low:.2f}-{r.high:.2f} | {'yes' if r.same_ids else 'no'} |",
            flush=True,
        )


def measure_all(options: Any, engine: EngineOptions) -> Iterator[Measurement]:
    """Every case with one kind of keys and values."""
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
    """Answers with and without guesses, in turns."""
    pairs = [(answer(llm, case, GUESS, clock), answer(llm, case, None, clock)) for _ in range(rounds + 1)]
    (guessed, _), (single, _) = pairs[0]
    times = [(a, b) for (_, a), (_, b) in pairs[1:]]  # the first warms up
    ratios = [without / with_guesses for with_guesses, without in times]
    low, _, high = quantiles(ratios, n=4)
    return Measurement(
        case=case.name,
        kv=kv,
        same_ids=guessed.token_ids == single.token_ids,
        proposed=guessed.speculation.proposed,
        accepted=guessed.speculation.accepted,
        ms_per_token_without=median(without for _, without in times) / (len(single.token_ids) - 1) * 1e3,
        speedup=median(ratios),
        low=low,
        high=high,
    )


def answer(llm: LLM, case: Case, guess: int | None, clock: Clock) -> tuple[GenerationResult, float]:
    """One answer, whose length is always the same, and seconds from its first token to its last."""
    dictated = [] if case.answer is None else [Dictation([*case.prompt, *case.answer])]
    with llm.stream(
        case.prompt,
        do_sample=False,
        max_new_tokens=ANSWER,
        eos_token_id=(),
        logits_processor=dictated,
        prompt_lookup_num_tokens=guess,
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
    print("| n-grams of 2 to | guess | " + " | ".join(case.name for case in passages[0]) + " |")
    print("|---:|---:|" + "---|" * len(passages[0]))
    for size, longest in product(SIZES, LENGTHS):
        found = [[replay(case, size, longest) for case in same] for same in zip(*passages, strict=True)]
        columns = " | ".join(f"{mean(speedups):.2f} ({min(speedups):.3f})" for speedups in found)
        print(f"| {size} | {longest} | {columns} |", flush=True)


def replay(case: Case, size: int, longest: int) -> float:
    """How many times as long an answer would take without guesses."""
    proposer, answer = NGramProposer(longest, size), case.answer or []
    done, cost = 0, 0.0
    while done < len(answer):
        guess = proposer.propose([*case.prompt, *answer[:done]])[: len(answer) - done - 1]
        right = next((n for n, token in enumerate(guess) if token != answer[done + n]), len(guess))
        if guess:
            proposer.verified(len(guess), right)
        cost += 1 + TOKEN_COST * len(guess)
        done += right + 1
    return len(answer) / cost


def costs(model: str, options: EngineOptions) -> list[float]:
    """Of each of ``TOKENS``: what a step of so many costs beyond a step of one, per token, in steps of one."""
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
            one, several = step(1), step(tokens)  # with what it takes to change the shape
            found.append((several / one - 1) / (tokens - 1))
    return [median(found) for found in ratios.values()]


if __name__ == "__main__":
    main()
