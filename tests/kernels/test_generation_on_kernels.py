"""The embedded model on the kernels: the same text however it is run, and less memory than on stock operators."""

import subprocess
import sys

import pytest

from edgegen import LLM, EngineOptions
from tests.kernels.material import instruction_set, instruction_sets, needs_library
from tests.systems import needs_proc

pytestmark = pytest.mark.slow

PROMPTS = [
    "Once upon a time",
    "The dragon",
    "One day, a little girl named Lily",
    "Tom had a ball.",
    "It was raining and",
    "The cat saw a bird in the tree. " * 12,
    "Mum said",
    "A small boat",
]
NEW_TOKENS = 24

MEMORY = """
import sys
from edgegen import LLM, EngineOptions
import edgegen.model.ort_session as sessions
if sys.argv[1] == "stock":
    sessions.kernel_library = lambda: None
llm = LLM.load(options=EngineOptions(threads=1))
fields = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
print(int(fields["Anonymous"].split()[0]))
"""


def answers(llm: LLM) -> list[list[int]]:
    """Greedy ids of each prompt by itself."""
    results = [llm.generate(prompt, do_sample=False, max_new_tokens=NEW_TOKENS) for prompt in PROMPTS]
    return [list(result.token_ids) for result in results]


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    needs_library()
    with LLM.load(options=EngineOptions(threads=1, prefix_cache=0)) as llm:
        return answers(llm)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("chunk", [16, 128, 512])
def test_threads_and_chunks_change_no_id(threads: int, chunk: int, expected: list[list[int]]) -> None:
    with LLM.load(options=EngineOptions(threads=threads, prefill_chunk=chunk, prefix_cache=0)) as llm:
        assert answers(llm) == expected


@pytest.mark.parametrize("batch", [2, 5, 8])
def test_batches_change_no_id(batch: int, expected: list[list[int]]) -> None:
    with LLM.load(options=EngineOptions(threads=2, max_batch_size=batch, prefix_cache=0)) as llm:
        results = llm.generate(PROMPTS, do_sample=False, max_new_tokens=NEW_TOKENS)
        assert [list(result.token_ids) for result in results] == expected


@pytest.mark.parametrize("isa", instruction_sets())
def test_instruction_sets_change_no_id(isa: str, expected: list[list[int]]) -> None:
    with instruction_set(isa), LLM.load(options=EngineOptions(threads=2, prefix_cache=0)) as llm:
        assert answers(llm) == expected


@needs_proc
def test_loading_takes_less_memory_than_with_stock_operators() -> None:
    """Stock operators pack a copy of the weights; the kernels read them where the file lies."""
    needs_library()
    kilobytes = {
        kernels: int(subprocess.check_output([sys.executable, "-c", MEMORY, kernels])) for kernels in ("own", "stock")
    }
    assert kilobytes["own"] < kilobytes["stock"] - 2000
