"""Continuous batching and prefix caching: throughput, time to first token, and differing answers.

    python -m bench.studies.together [BUNDLE] [--threads N] [--rounds N]

Rounds alternate between sequential and concurrent requests, and between chats with and without prefix caching; the
figures are medians of the rounds' ratios. The last line counts answers that differ from those of the same request run
alone. With a float32 KV cache there are some; with ``deterministic`` or an int8 KV cache there must be none, or the
study fails.
"""

import argparse
import time
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np

from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.generation.results import GenerationResult
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions

PROMPT, NEW, TURNS, SAID, ANSWER = 32, 64, 10, 70, 30


def load(model: str, threads: int | None, kv: KVDtype, **options: Any) -> LLM:
    return LLM.load(model, options=EngineOptions(threads=threads, kv=kv, **options))


def random_prompts(llm: LLM, count: int, length: int, seed: int) -> list[list[int]]:
    size = llm.bundle.manifest.model.vocab_size
    return np.random.default_rng(seed).integers(0, size - 1, (count, length)).tolist()


def throughput(llm: LLM, count: int, seed: int, *, together: bool) -> float:
    """Throughput of ``count`` requests in tokens per second."""
    prompts = random_prompts(llm, count, PROMPT, seed)
    begin = time.perf_counter()
    options: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": ()}
    if together:
        streams = [llm.stream(prompt, **options) for prompt in prompts]
        for stream in streams:
            stream.wait()
    else:
        for prompt in prompts:
            llm.generate(prompt, **options)
    return count * NEW / (time.perf_counter() - begin)


def said_per_turn(llm: LLM) -> int:
    """New tokens in each turn: as many as the context allows, up to a limit."""
    return min(SAID, llm.max_context // TURNS - ANSWER)


def last_turn(llm: LLM, seed: int) -> float:
    """Time to first token of a chat's last turn, in seconds; each turn adds some new tokens and an answer."""
    text, result = list[int](), None
    for said in random_prompts(llm, TURNS, said_per_turn(llm), seed):
        text += said
        result = llm.generate(text, max_new_tokens=ANSWER, do_sample=False, eos_token_id=())
        text += result.token_ids
    assert result is not None
    return result.timings.prompt_seconds


def mixed_requests(llm: LLM, count: int) -> list[tuple[list[int], dict[str, Any]]]:
    """Requests whose prompts share prefixes; every other one samples, the others are greedy."""
    random, stems = Random(0), random_prompts(llm, 3, 60, 1)
    requests = list[tuple[list[int], dict[str, Any]]]()
    for n in range(count):
        prompt = random.choice(stems)[: random.randint(20, 60)] + random_prompts(llm, 1, random.randint(1, 20), n)[0]
        options: dict[str, Any] = {"max_new_tokens": 40, "eos_token_id": (), "do_sample": n % 2 == 0}
        requests.append((prompt, options | ({"seed": n} if n % 2 == 0 else {})))
    return requests


def flips(llm: LLM, alone: LLM, requests: list[tuple[list[int], dict[str, Any]]]) -> float:
    """Share of the answers that differ from those of the same request run alone."""
    streams = [llm.stream(prompt, **options) for prompt, options in requests]
    answers = [stream.wait() for stream in streams]
    # Each answer becomes part of a prompt, whose prefix was computed token by token.
    more = [
        ([*prompt, *answer.token_ids], options) for (prompt, options), answer in zip(requests, answers, strict=True)
    ]
    answers += [llm.generate(prompt, **options) for prompt, options in more]

    def by_itself(prompt: list[int], options: dict[str, Any]) -> GenerationResult:
        return alone.generate(prompt, **options)

    rights = [by_itself(prompt, options) for prompt, options in (*requests, *more)]
    return float(np.mean([a.token_ids != b.token_ids for a, b in zip(answers, rights, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", nargs="?", default=str(DEFAULT_MODEL), type=str)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    model = str(Path(options.bundle)) if Path(options.bundle).exists() else options.bundle
    kinds: tuple[KVDtype, ...] = ("float32", "int8")
    for kv in kinds:
        llm = load(model, options.threads, kv)
        for count in (4, 8):
            throughput(llm, count, 0, together=True)
            pairs = [
                tuple(throughput(llm, count, seed, together=together) for together in (False, True))
                for seed in range(1, 1 + options.rounds)
            ]
            print(
                f"{kv}: {count} requests: {median(b / a for a, b in pairs):.2f} times the throughput together "
                f"({median(b for _, b in pairs):.0f} tokens/s, one by one {median(a for a, _ in pairs):.0f})",
                flush=True,
            )
        fresh = load(model, options.threads, kv, prefix_cache=0)
        turns = [(last_turn(fresh, seed), last_turn(llm, seed)) for seed in range(options.rounds)]
        print(
            f"{kv}: turn {TURNS} of a chat, {TURNS * (said_per_turn(llm) + ANSWER) - ANSWER} tokens: first token after "
            f"{median(b / a for a, b in turns):.1%} of the time ({median(b for _, b in turns) * 1e3:.0f} ms, "
            f"computed anew {median(a for a, _ in turns) * 1e3:.0f} ms)",
            flush=True,
        )
        requests = mixed_requests(llm, 60)
        share = flips(llm, load(model, options.threads, kv, prefix_cache=0), requests)
        print(f"{kv}: {share:.1%} of {2 * len(requests)} answers differ from those of the same request run alone")
        if kv == "int8":
            assert share == 0
        else:
            exact = load(model, options.threads, kv, deterministic=True, prefix_cache=1 << 28)
            alone = load(model, options.threads, kv, deterministic=True, prefix_cache=0)
            share = flips(exact, alone, requests)
            print(f"{kv}, deterministic: {share:.1%}", flush=True)
            assert share == 0


if __name__ == "__main__":
    main()
