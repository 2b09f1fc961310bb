"""Multi-token prediction: speedup at a given acceptance rate, in pairs of answers with and without it.

    python -m bench.studies.mtp BUNDLE [--rates .5 .7 .9] [--sequences N] [--threads N] [--rounds N] [--tokens N]
    python -m bench.studies.mtp BUNDLE --text FILE [--sampled] [--cost STEPS]
    python -m bench.studies.mtp --write CHECKPOINT

No trained model of a size that matters was at hand, and the head of one with random weights is never right. So the head
computes what it would, and then its choice is replaced: by the model's own token with a probability, by another one
else. Hence the time is the head's and the model's own, and the acceptance rate is given.

With ``--text`` nothing is replaced: prompts are taken from the end of the text that ``mtp_training`` holds out, and the
rate is the head's own; ``--sampled`` draws the answers. There ``--cost`` gives the head the cost of another model's, in
steps, by which it chooses how many tokens it proposes. ``--write`` makes a checkpoint of Qwen3.5-0.8B's shape, with a
head and random weights, to be exported. ``--sequences`` runs several prompts at once. ``--cpu-time`` counts that of the
process, for machines with other work; with one thread, then.
"""

import argparse
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Literal

import numpy as np

from bench.compare.checkpoints import write_checkpoint
from bench.compare.shapes import SHAPES, Qwen35Shape
from bench.studies.mtp_training import split
from edgegen import LLM, EngineOptions, GenerationOptions, GenerationResult
from edgegen.bundle.bundle import Bundle
from edgegen.model.kv_cache import KVCache
from edgegen.model.loading import open_model
from edgegen.speculation.mtp_head import Hidden, Logits, MTPHead, open_mtp_head
from edgegen.speculation.stats import Speculation

PROMPT, PROMPTS = 64, 12

CERTAIN = 1000.0
"""The logit of a dictated choice, the others being 0: sampling takes it, too."""


class DictatedHead(MTPHead):
    """A head whose choice is an answer's next token with the probability ``rate``, and another one else.

    ``answers``: each with its prompt before it. The cache of a sequence that begins with its prompt has one entry for
    each token but the first, so the first ones tell which it is.
    """

    def __init__(self, head: MTPHead, answers: Sequence[Sequence[int]], rate: float) -> None:
        self.cost, self.chunk = head.cost, head.chunk
        self._head, self._answers, self._rate = head, answers, rate
        self._of = dict[int, Sequence[int]]()

    def new_cache(self) -> KVCache:
        return self._head.new_cache()

    def close(self) -> None:
        self._head.close()

    def run(self, cache: KVCache, ids: list[int], hidden: Hidden) -> tuple[Logits, Hidden]:
        if not cache.lengths[0]:
            self._of[id(cache)] = next((one for one in self._answers if [*one[1 : 1 + len(ids)]] == ids), ())
        logits, hidden = self._head.run(cache, ids, hidden)
        place, answer = int(cache.lengths[0]) + 1, self._of[id(cache)]
        right = answer[place] if place < len(answer) else 0
        accepted = random.Random(place).random() < self._rate
        chosen = np.zeros_like(logits)
        chosen[right if accepted else (right + 1) % len(logits)] = CERTAIN
        return chosen, hidden


@contextmanager
def opened(
    bundle: Bundle,
    options: EngineOptions,
    answers: Sequence[Sequence[int]],
    rate: float | None,
    cost: float | None = None,
) -> Generator[LLM]:
    """The model with its head, whose choices are dictated unless the ``rate`` is None; ``cost``: as of another's."""
    runner, tokenizer = open_model(bundle, options, lambda progress: None)
    head = None if options.speculate == "off" else open_mtp_head(bundle, options, runner)
    if head is not None and cost is not None:
        head.cost = cost
    if isinstance(head, MTPHead) and rate is not None:
        head = DictatedHead(head, answers, rate)
    with LLM(bundle, tokenizer, runner, options, head=head) as llm:
        yield llm


def timed(
    llm: LLM,
    prompts: list[list[int]],
    tokens: int,
    most: int | None,
    clock: Callable[[], float] = perf_counter,
    *,
    sampled: bool = False,
) -> tuple[float, list[GenerationResult]]:
    """Seconds for each token of the answers, and these; their prompts are left out."""
    seed = 0 if sampled else None
    options = GenerationOptions(num_assistant_tokens=most, eos_token_id=(), do_sample=sampled, seed=seed)

    def answered(count: int) -> tuple[float, list[GenerationResult]]:
        begin = clock()
        streams = [llm.stream(prompt, options, max_new_tokens=count) for prompt in prompts]
        for stream in streams:
            for _ in stream:
                pass
        return clock() - begin, [stream.result for stream in streams]

    answered(4)
    of_prompts, (seconds, results) = answered(1)[0], answered(tokens)
    return (seconds - of_prompts) / (tokens - 1) / len(prompts), results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, nargs="?")
    parser.add_argument("--write", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0, 0.5, 0.7, 0.9])
    parser.add_argument("--most", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kv", choices=["float32", "int8"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="measure that of the process")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--sampled", action="store_true")
    parser.add_argument("--cost", type=float, metavar="STEPS")
    arguments = parser.parse_args()
    if arguments.write is not None:
        shape = SHAPES["Q35"].sizes
        assert isinstance(shape, Qwen35Shape)
        write_checkpoint(arguments.write, replace(shape, with_head=True))
        return
    bundle = Bundle.open(arguments.bundle)
    kv: Literal["float32", "int8"] | None = arguments.kv
    on = EngineOptions(threads=arguments.threads, kv=kv, speculate="mtp", verify="never", prefix_cache=0)
    off = replace(on, speculate="off")
    clock = process_time if arguments.cpu_time else perf_counter
    if arguments.text is not None:
        with opened(bundle, off, (), None) as plain, opened(bundle, on, (), None, arguments.cost) as speculating:
            of_text(plain, speculating, arguments.text, arguments.tokens, clock, sampled=arguments.sampled)
        return
    clock, vocabulary = process_time if arguments.cpu_time else perf_counter, bundle.manifest.model.vocab_size
    ids = np.random.default_rng(0).integers(0, vocabulary, (arguments.sequences, PROMPT))
    prompts: list[list[int]] = ids.tolist()
    with opened(bundle, off, (), None) as llm:
        found = [llm.generate(one, max_new_tokens=arguments.tokens, eos_token_id=()).token_ids for one in prompts]
    answers = [[*prompt, *answer] for prompt, answer in zip(prompts, found, strict=True)]
    print("rate  most  speedup  tokens per step  ms per token")
    for rate in arguments.rates:
        for most in arguments.most:
            ratios, times, steps = list[float](), list[float](), 0.0
            for _ in range(arguments.rounds):
                with opened(bundle, off, answers, rate) as llm:
                    plain, _ = timed(llm, prompts, arguments.tokens, None, clock)
                with opened(bundle, on, answers, rate) as llm:
                    sooner, results = timed(llm, prompts, arguments.tokens, most, clock)
                texts = [[*prompt, *one.token_ids] for prompt, one in zip(prompts, results, strict=True)]
                assert texts == answers, "a text is not the model's own"
                ratios.append(plain / sooner)
                times.append(1000 * sooner)
                accepted = sum(one.speculation.accepted for one in results) / len(results)
                steps = arguments.tokens / (arguments.tokens - accepted)
            print(f"{rate:4.2f}  {most:4}  {median(ratios):7.2f}  {steps:15.2f}  {median(times):12.2f}", flush=True)


def of_text(
    plain: LLM, speculating: LLM, text: Path, tokens: int, clock: Callable[[], float], *, sampled: bool
) -> None:
    """The head's own acceptance rate and speedup, on prompts of the part of a text that is held out."""
    assert plain.tokenizer, "the bundle has a tokenizer"
    _, ids = split(plain.tokenizer.encode(text.read_text("utf-8")))
    prompts = [ids[at : at + PROMPT] for at in np.linspace(0, len(ids) - PROMPT, PROMPTS).astype(int)]
    times, counts = list[tuple[float, float]](), list[Speculation]()
    for prompt in prompts:
        (before, (expected,)), (after, (found,)) = (
            timed(llm, [prompt], tokens, None, clock, sampled=sampled) for llm in (plain, speculating)
        )
        assert found.token_ids == expected.token_ids, "a text is not the model's own"
        times.append((before, after))
        counts.append(found.speculation)
    accepted, proposed, verified = (
        sum(numbers) for numbers in zip(*((one.accepted, one.proposed, one.runs) for one in counts), strict=True)
    )
    steps = len(prompts) * tokens - accepted
    before, after = (1 / median(one) for one in zip(*times, strict=True))
    print(f"accepted {accepted} of {proposed} ({accepted / max(1, proposed):.0%}) in {verified} of {steps} steps")
    print(f"tokens per step {len(prompts) * tokens / steps:.2f}, tokens/s {after:.0f}, without {before:.0f}", end=", ")
    print(f"speedup {median(before / after for before, after in times):.2f}")


if __name__ == "__main__":
    main()
