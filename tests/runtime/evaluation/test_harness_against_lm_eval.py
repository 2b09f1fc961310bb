"""lm-evaluation-harness itself: its command with edgegen, its own ``hf`` model and ``edgegen eval`` say the same.

The harness runs as people run it, on tasks over local files; the model is exported in float32.
"""

import math
from importlib.util import find_spec
from pathlib import Path

import pytest

from edgegen.evaluation.tasks import Reading
from edgegen.llm import LLM
from tests.export.bundles import export_to
from tests.runtime.evaluation.lm_eval_material import Ran, check_figures, harness, held_out_texts, write_tasks

MISSING = [name for name in ("lm_eval", "torch", "transformers", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.parity,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (lm_eval[hf] is the oracle here)"),
]

CHECKPOINTS = ("gpt2-stories-0.9m", "stories260K")


@pytest.fixture(scope="module")
def texts(test_data: Path) -> list[str]:
    return held_out_texts(test_data)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    write_tasks(folder, texts)
    return folder


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request: pytest.FixtureRequest, test_data: Path) -> Path:
    return test_data / "models" / request.param


@pytest.fixture(scope="module")
def llm(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM.load(export_to(checkpoint, tmp_path_factory.mktemp("evaluated") / "fp32").path)


@pytest.fixture(scope="module")
def ran(llm: LLM, tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return harness(tmp_path_factory.mktemp("edgegen"), tasks, "edgegen", f"model={llm.bundle.path}")


@pytest.fixture(scope="module")
def hf(checkpoint: Path, tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return harness(tmp_path_factory.mktemp("hf"), tasks, "hf", f"pretrained={checkpoint},dtype=float32")


def test_the_harness_finds_with_edgegen_what_it_finds_with_its_own_model(ran: Ran, hf: Ran, llm: LLM) -> None:
    for task, name in (("choices", "acc"), ("choices", "acc_norm"), ("pairs", "acc")):
        assert ran.figure(task, name) == pytest.approx(hf.figure(task, name))
        for (logprob, greedy), (expected, known) in zip(ran.answers(task), hf.answers(task), strict=True):
            assert float(logprob) == pytest.approx(float(expected), abs=2e-3)
            assert greedy == known
    # ``hf`` decodes an answer by itself, and SentencePiece then drops the space between it and the prompt.
    assert [text.lstrip() for text in ran.answers("answers")] == [text.lstrip() for text in hf.answers("answers")]
    if llm.encode("a")[0] != llm.encode("")[0]:  # or ``hf`` also predicts the token that the tokenizer begins with
        for found, expected in zip(ran.answers("text"), hf.answers("text"), strict=True):
            assert float(found) == pytest.approx(float(expected), abs=1e-2)


def test_edgegen_eval_finds_what_the_harness_finds(ran: Ran, llm: LLM, tasks: Path) -> None:
    check_figures(ran, llm, tasks)


def test_perplexity_is_of_the_harness_log_probability(ran: Ran, llm: LLM, texts: list[str]) -> None:
    """Of a text that one window holds, after the token that the harness begins every text with."""
    text, begin = texts[0], llm.encode("")
    if llm.encode(text)[0] != begin[0]:
        assert llm.tokenizer is not None
        text = llm.tokenizer.decode(begin, skip_special_tokens=False) + text
    perplexity, bits = Reading(text).run(llm)
    nats = -float(ran.answers("text")[0])
    assert perplexity.estimate.mean == pytest.approx(math.exp(nats / sum(perplexity.weights)), rel=1e-4)
    assert bits.estimate.mean == pytest.approx(nats / math.log(2) / len(text.encode()), rel=1e-4)
