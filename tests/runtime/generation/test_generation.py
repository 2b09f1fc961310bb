"""LLM over real graphs: whatever may change how the work is cut, the ids stay the same."""

import gc
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.engine.engine import Engine
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams
from edgegen.llm import LLM
from edgegen.model.in_place_runner import Logits
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline
from edgegen.sampling.sampler import Sampler
from tests.runtime.models import random_ids
from tests.runtime.recomputed import recomputed

PROMPT = random_ids(75)
GREEDY: dict[str, Any] = {"max_new_tokens": 40, "eos_token_id": ()}
SAMPLED: dict[str, Any] = {**GREEDY, "temperature": 1.3, "top_k": 80, "top_p": 0.98, "seed": 7}
CHOICES = pytest.mark.parametrize("choice", [GREEDY, SAMPLED], ids=["greedy", "sampled"])


def ids(llm: LLM, choice: dict[str, Any], prompt: list[int] = PROMPT) -> tuple[int, ...]:
    return llm.generate(prompt, **choice).token_ids


@pytest.mark.parametrize("kv", ["float32", "int8"])
def test_each_step_has_the_logits_that_its_ids_give_without_a_cache(bundle: Bundle, kv: KVDtype) -> None:
    seen: list[Logits] = []

    def see(candidates: Candidates, context: LogitsContext) -> Candidates:
        seen.append(candidates.logits.copy())
        return candidates

    sampler = Sampler(seed=7, do_sample=True)
    one = Sequence(list(PROMPT), SequenceParams(len(PROMPT), 25, LogitsPipeline([see]), sampler, lambda ids: None))
    runner = open_runner(bundle, EngineOptions(threads=1, kv=kv))
    engine = Engine(runner, prefill_chunk=32)
    engine.add(SequenceGroup([one]))
    while one.finish is None:
        engine.step()
    assert len(set(one.generated)) > 15  # it says something
    anew = [recomputed(runner, one.ids[: len(PROMPT) + n], len(PROMPT), 32) for n in range(25)]
    np.testing.assert_array_equal(np.array(seen), np.array(anew))


@CHOICES
@pytest.mark.parametrize("chunk", [2, 37, 74])
def test_the_size_of_chunks_does_not_change_the_ids(bundle: Bundle, choice: dict[str, Any], chunk: int) -> None:
    whole, cut = (LLM.load(bundle.path, options=EngineOptions(threads=1, prefill_chunk=size)) for size in (128, chunk))
    assert ids(cut, choice) == ids(whole, choice)


def test_a_cache_that_grew_gives_the_ids_of_one_that_had_room(bundle: Bundle) -> None:
    grown, roomy = (LLM.load(bundle.path, options=EngineOptions(threads=1)) for _ in range(2))
    long = {**GREEDY, "max_new_tokens": 400}
    roomy.generate(random_ids(500), max_new_tokens=1)
    assert ids(grown, long) == ids(roomy, long)


@CHOICES
def test_int8_keys_and_values_go_on_alike_however_they_came_about(bundle: Bundle, choice: dict[str, Any]) -> None:
    options = [EngineOptions(threads=1, kv="int8", prefill_chunk=size) for size in (128, 2, 37)]
    first, *others = (LLM.load(bundle.path, options=option) for option in options)
    expected = ids(first, choice)
    assert [ids(llm, choice) for llm in others] == [expected] * 2


class TestSeeds:
    def test_the_same_seed_gives_the_same_text_streamed_or_not_now_or_later(self, llm: LLM) -> None:
        result = llm.generate(PROMPT, **SAMPLED)
        with llm.stream(PROMPT, **SAMPLED) as stream:
            text = "".join(chunk.text for chunk in stream)
        llm.generate(random_ids(20), temperature=2.0, max_new_tokens=5)
        again = llm.generate(PROMPT, **SAMPLED)
        assert stream.result.token_ids == result.token_ids == again.token_ids
        assert text == result.text == again.text

    def test_the_seed_of_a_result_gives_that_result_again(self, llm: LLM) -> None:
        drawn = llm.generate(PROMPT, temperature=1.5, max_new_tokens=30)
        assert llm.generate(PROMPT, temperature=1.5, max_new_tokens=30, seed=drawn.seed).token_ids == drawn.token_ids

    def test_other_seeds_give_other_texts(self, llm: LLM) -> None:
        assert len({ids(llm, {**SAMPLED, "seed": seed}) for seed in range(5)}) == 5


@contextmanager
def interrupted_after(seconds: float) -> Generator[None]:
    """Ctrl-C from a timer; it would be lost in a callback of the garbage collector, and Hypothesis has one."""
    timer = threading.Timer(seconds, signal.raise_signal, (signal.SIGINT,))
    gc.disable()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        gc.enable()


def test_ctrl_c_at_any_moment_leaves_the_model_as_good_as_new(int8_bundle: Bundle) -> None:
    options = EngineOptions(threads=1, prefill_chunk=16)
    llm = LLM.load(int8_bundle.path, options=options)
    expected = ids(LLM.load(int8_bundle.path, options=options), SAMPLED)
    begin = time.perf_counter()
    llm.generate(random_ids(300), max_new_tokens=200, eos_token_id=())
    takes = time.perf_counter() - begin
    interrupts = 0
    for n in range(12):
        try:
            with interrupted_after(takes * (n + 0.5) / 14):
                llm.generate(random_ids(300), max_new_tokens=200, eos_token_id=())
            takes /= 2  # the machine was busier when that was measured
        except KeyboardInterrupt:
            interrupts += 1
        assert ids(llm, SAMPLED) == expected
    assert interrupts >= 4


def test_a_real_model_goes_on_with_its_story(stories: Bundle) -> None:
    llm = LLM.load(stories.path)
    text = llm.generate("once upon a time", max_new_tokens=30).text
    assert text.startswith(", there was a little girl named lily.")
    cut = llm.generate("once upon a time", max_new_tokens=30, stop_strings="little girl")
    assert (cut.text, cut.matched) == (", there was a ", "little girl")
