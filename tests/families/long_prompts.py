"""Answers of families that transformers does not have to prompts of many lengths, alone and together."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype

GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": (), "repetition_penalty": 1.0}
LENGTHS = (150, 3, 47)
PROMPTS: list[list[int]] = [np.random.default_rng(n).integers(3, 96, n).tolist() for n in LENGTHS]


def answers(
    bundle: Bundle, *batches: list[list[int]], count: int, chunk: int = 16, kv: KVDtype = "int8"
) -> list[list[tuple[int, ...]]]:
    """Return the answers to each batch of prompts that run together, one batch after another."""
    options = EngineOptions(threads=1, kv=kv, prefill_chunk=chunk, prefix_cache=0)
    with LLM.load(bundle.path, options=options) as llm:
        found = list[list[tuple[int, ...]]]()
        for prompts in batches:
            streams = [llm.stream(prompt, max_new_tokens=count, **GREEDY) for prompt in prompts]
            found.append([tuple(i for chunk in stream for i in chunk.token_ids) for stream in streams])
        return found


def assert_greedy_ids(bundle: Bundle, judge: Callable[[list[int]], NDArray[np.float32]]) -> None:
    """That a float32 bundle's are those of the judge's logits, [t, vocab] for ids [t]."""
    (together,) = answers(bundle, PROMPTS, count=40, kv="float32")
    for prompt, found in zip(PROMPTS, together, strict=True):
        expected = judge([*prompt, *found[:-1]])[len(prompt) - 1 :]
        assert found == tuple(expected.argmax(-1).tolist())


def assert_rows_are_as_if_alone(bundle: Bundle) -> None:
    """However their prompts are divided."""
    (together,) = answers(bundle, PROMPTS, count=30)
    for chunk in (7, 64):
        alone = answers(bundle, *([prompt] for prompt in PROMPTS), count=30, chunk=chunk)
        assert [found for (found,) in alone] == together


def assert_a_prefix_and_proposals_do_not_show(bundle: Bundle) -> None:
    first, _, _ = PROMPTS
    again = [*first[:100], *first[:30]]
    with LLM.load(bundle.path, options=EngineOptions(threads=1, kv="int8", prefill_chunk=16)) as llm:
        found = [llm.generate(prompt, max_new_tokens=20, **GREEDY) for prompt in (first, again, first)]
        guessed = llm.generate(first, max_new_tokens=20, prompt_lookup_num_tokens=4, **GREEDY)
    assert found[1].timings.cached_tokens > 0
    assert [[one.token_ids] for one in found[:2]] == answers(bundle, [first], [again], count=20)
    assert found[2].token_ids == found[0].token_ids == guessed.token_ids
