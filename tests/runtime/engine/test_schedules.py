"""Whatever else is in the batch, a request gets the ids it gets alone: random schedules over a real model.

With keys and values in int8 or int4 whatever is done; with float32 where ``deterministic`` leaves the short cuts out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.engine.engine import Engine
from edgegen.engine.sequence import Client
from edgegen.generation.prompt_encoder import PromptEncoder
from edgegen.generation.request import Request
from edgegen.generation.request_builder import RequestBuilder
from edgegen.model.interfaces import Runner
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions
from edgegen.tokenizer import Tokenizer

pytestmark = pytest.mark.slow

PREFIX = (
    "Once upon a time there was a little girl named Lily. She had a red ball and a small dog, and every morning "
    "they went to the park together. "
)

PROMPTS = (
    PREFIX + "One day the ball was gone.",
    PREFIX + "One day the dog",
    PREFIX + "One day the dog did not want to go to the park. It sat under the table and looked at Lily with sad eyes.",
    PREFIX,
    "Tom and Sue were friends.",
    "The",
)

OPTIONS = (
    GenerationOptions(max_new_tokens=16),
    GenerationOptions(max_new_tokens=20, do_sample=True, seed=7),
    GenerationOptions(max_new_tokens=11, temperature=0.8, top_k=40, top_p=0.9, repetition_penalty=1.2, seed=3),
    GenerationOptions(max_new_tokens=8, do_sample=True, num_return_sequences=3, seed=11),
    GenerationOptions(max_new_tokens=6, num_beams=3, num_return_sequences=2),
    GenerationOptions(max_new_tokens=7, guidance_scale=1.5, negative_prompt="Tom"),
    GenerationOptions(max_new_tokens=20, grammar='start: "The name of the little dog was " /[A-Z][a-z]{2,5}/'),
    GenerationOptions(max_new_tokens=9, do_sample=True, mirostat=2, seed=5),
    GenerationOptions(max_new_tokens=4),
)

Ids = list[tuple[int, ...]]


@dataclass(frozen=True)
class Model:
    """A runner and what it needs to answer texts."""

    bundle: Bundle
    kv: KVDtype

    def runner(self, threads: int) -> Runner[Any]:
        stock = self.kv == "float32"  # whose attention is not exact, which is what the engine is to cope with
        return open_runner(
            self.bundle, EngineOptions(kv=self.kv, threads=threads, kernels="stock" if stock else "auto")
        )

    def builder(self) -> RequestBuilder:
        tokenizer = Tokenizer.from_file(self.bundle.file(self.bundle.manifest.tokenizer or ""))
        model = self.bundle.manifest.model
        return RequestBuilder(PromptEncoder(tokenizer, model.vocab_size, 0), model.max_context, eos_token_ids=(0,))


def ids_of(request: Request) -> Ids:
    return [choice.token_ids for choice in request.result().choices]


def finish(engine: Engine) -> None:
    for _ in range(5000):
        if engine.idle:
            return
        engine.step()
    raise AssertionError("the engine does not come to an end")


@cache
def parts(kv: KVDtype, threads: int = 1) -> tuple[Runner[Any], RequestBuilder]:
    model = Model(Bundle.open(BundleStore().resolve(DEFAULT_MODEL)), kv)
    return model.runner(threads), model.builder()


@cache
def alone(kv: KVDtype, prompt: str, options: int) -> Ids:
    """On one thread, in an engine of its own that remembers nothing."""
    runner, builder = parts(kv)
    request = builder.build(prompt, OPTIONS[options])
    engine = Engine(runner, 128, deterministic=True)
    engine.add(request.group)
    finish(engine)
    return ids_of(request)


def schedule(random: Random) -> Iterator[tuple[str, int, int, int]]:
    """Prompt, options, priority, and how many steps later it comes."""
    for _ in range(random.randint(2, 5)):
        options = random.randrange(len(OPTIONS))
        yield random.choice(PROMPTS), options, random.choice([0, 0, 1]), random.choice([0, 0, 1, 3, 9])


def uneven_clock(seed: int) -> Callable[[], float]:
    """By which chunks of prompts take now long and now no time at all."""
    random, now = Random(f"clock {seed}"), [0.0]

    def clock() -> float:
        now[0] += random.choice([0.0, 0.001, 0.01, 0.1])
        return now[0]

    return clock


COUNT = 25
"""Schedules of one test: few, so that it ends in time beside any load."""


MODELS: tuple[tuple[KVDtype, int, int], ...] = (
    *(("int8", 1, 6), ("int8", 2, 2)),
    *(("int4", 1, 1), ("int4", 2, 1)),
    *(("float32", 1, 1), ("float32", 2, 1)),
)


@pytest.mark.usefixtures("all_cores")
@pytest.mark.parametrize(
    ("kv", "threads", "part"), [(kv, threads, part) for kv, threads, parts in MODELS for part in range(parts)]
)
def test_any_schedule_gives_every_request_its_own_ids(kv: KVDtype, threads: int, part: int) -> None:
    runner, builder = parts(kv, threads)
    first = 1000 * threads + part * COUNT
    reused = joint = 0
    for seed in range(first, first + COUNT):
        random = Random(seed)
        engine = Engine(
            runner,
            prefill_chunk=random.choice([2, 7, 16, 31, 64, 128]),
            max_batch_size=random.choice([1, 2, 4, 8]),
            prefix_budget=random.choice([0, None, 1 << 16, 1 << 28]),
            kv_budget=random.choice([None, {"int4": 1 << 19, "int8": 1 << 20, "float32": 1 << 22}[kv]]),
            deterministic=kv == "float32" or random.random() < 0.5,
            max_pause=random.choice([None, 0.0, 0.02]),
            clock=uneven_clock(seed),
        )
        requests = list[tuple[Request, Ids]]()
        cancelled, clients = set[Request](), [Client(), Client()]
        for prompt, options, priority, pause in schedule(random):
            request = builder.build(prompt, OPTIONS[options])
            request.group.priority = priority
            if random.random() < 0.5:
                request.group.client = random.choice(clients)
            engine.add(request.group)
            requests.append((request, alone(kv, prompt, options)))
            for _ in range(pause):
                joint += sum(bool(update.new_ids) for update in engine.step()) > 1
            if random.random() < 0.1:
                leaver = random.choice(requests)[0]
                if not leaver.finished:
                    engine.cancel(leaver.group)
                    leaver.end()
                    cancelled.add(leaver)
        finish(engine)
        for request, right in requests:
            reused += any(row.kv.reused for row in request.group)
            if request not in cancelled:
                assert ids_of(request) == right, f"schedule {seed}"
            elif request.group.choices[0].score is None:
                assert all(ids == full[: len(ids)] for ids, full in zip(ids_of(request), right, strict=True)), seed
    # The schedules are no formality.
    assert reused > COUNT / 4
    assert joint > COUNT
