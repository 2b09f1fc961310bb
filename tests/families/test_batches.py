"""Continuous batching through the public API: transformers' greedy ids alone and in a batch."""

from pathlib import Path

import pytest

from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from tests.families.cases import cases_also
from tests.families.harness import checkpoint_of, export_case, oracle_of, tokens

pytestmark = pytest.mark.parity

UNEQUAL = {case.family: case for case in cases_also("batches")}
"""Windows in some layers and in all, ALiBi, experts, scans, and latents: what a batch of unequal rows might mix up."""

NEW = 40


@pytest.mark.parametrize("family", UNEQUAL)
def test_rows_far_past_their_windows_get_the_ids_of_transformers(family: str, tmp_path: Path) -> None:
    case = UNEQUAL[family]
    checkpoint = checkpoint_of(case, tmp_path / "checkpoint")
    llm = LLM.load(export_case(case, checkpoint, tmp_path / "bundle").path, options=EngineOptions(prefill_chunk=16))
    prompts = [tokens(case, count, seed=count) for count in (50, 3, 17, 1, 29)]
    expected = oracle_of(case, checkpoint).greedy(prompts, NEW)
    streams = [llm.stream(prompt, max_new_tokens=NEW, do_sample=False, eos_token_id=[]) for prompt in prompts]
    assert [[i for chunk in stream for i in chunk.token_ids] for stream in streams] == expected
    alone = llm.generate(prompts[0], max_new_tokens=8, do_sample=False, eos_token_id=[])
    assert list(alone.token_ids) == expected[0][:8]
