"""lm-evaluation-harness itself: its command with edgegen, its own ``hf`` model and ``edgegen eval`` say the same.

The harness runs as people run it, on tasks over local files; the model is exported in float32.
"""

import json
import math
import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from edgegen.evaluation.items import read_pairs, read_questions
from edgegen.evaluation.tasks import Evaluation, MinimalPairs, MultipleChoice, Reading
from edgegen.llm import LLM
from tests.export.bundles import export_to
from tests.root import ROOT

MISSING = [name for name in ("lm_eval", "torch", "transformers", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (lm_eval[hf] is the oracle here)"),
]

CHECKPOINTS = ("gpt2-stories-0.9m", "stories260K")
FIELDS: dict[str, dict[str, Any]] = {
    "choices": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{ctx}}",
        "doc_to_target": "{{label}}",
        "doc_to_choice": "endings",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "pairs": {
        "output_type": "multiple_choice",
        "doc_to_text": "",
        "doc_to_target": 0,
        "doc_to_choice": "{{[sentence_good, sentence_bad]}}",
        "metric_list": [{"metric": "acc"}],
    },
    "text": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "bits_per_byte"}],
    },
    "answers": {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 40, "do_sample": False, "temperature": 0.0},
        "metric_list": [{"metric": "exact_match"}],
    },
}


class Ran:
    """What a run of the harness left behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (results,) = folder.rglob("results_*.json")
        self._results = json.loads(results.read_text())["results"]

    def figure(self, task: str, name: str) -> tuple[float, float]:
        """A figure of a task, and its standard error."""
        results = self._results[f"local_{task}"]
        error = results[f"{name}_stderr,none"]
        return results[f"{name},none"], error if isinstance(error, float) else math.nan

    def answers(self, task: str) -> list[Any]:
        """What the model answered to each request of a task, in order."""
        (samples,) = self._folder.rglob(f"samples_local_{task}_*.jsonl")
        records = [json.loads(line) for line in samples.read_text().splitlines()]
        return [answer for record in sorted(records, key=lambda one: one["doc_id"]) for (answer,) in record["resps"]]


@pytest.fixture(scope="module")
def texts(test_data: Path) -> list[str]:
    """Held-out stories: one of a sentence or two, and one longer than the context of either model."""
    corpus = (test_data / "corpora" / "tinystories_4MB.txt").read_text("utf-8")
    return [corpus[-250:], corpus[-4000:-500]]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """A folder of tasks, each over a file of its name."""
    folder, dice = tmp_path_factory.mktemp("tasks"), random.Random(0)
    sentences = [one.strip() for one in texts[1].replace("\n", " ").split(".") if len(one.split()) > 5]
    halves = [(" ".join(words[:3]), " ".join(words[3:])) for words in (one.split() for one in sentences)]
    questions, pairs = list[dict[str, Any]](), list[dict[str, Any]]()
    for context, right in halves:
        endings = [right, *dice.sample([ending for _, ending in halves if ending != right], 3)]
        dice.shuffle(endings)
        questions.append({"ctx": context, "endings": endings, "label": str(endings.index(right))})
        swapped = f"{context} {right}".split()
        at = dice.randrange(len(swapped) - 1)
        swapped[at : at + 2] = swapped[at : at + 2][::-1]
        pairs.append({"sentence_good": f"{context} {right}", "sentence_bad": " ".join(swapped)})
    stories = [{"text": text} for text in texts]
    prompts = [{"text": text} for text in ("once upon a time", "lily saw a dog and", "the little boy was")]
    for name, records in {"choices": questions, "pairs": pairs, "text": stories, "answers": prompts}.items():
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(json.dumps({"task": f"local_{name}", **data, **FIELDS[name]}))
    return folder


def harness(folder: Path, tasks: Path, model: str, arguments: str) -> Ran:
    """``python -m edgegen.evaluation.lm_eval`` in a process of its own."""
    command = [sys.executable, "-m", "edgegen.evaluation.lm_eval", "--model", model, "--model_args", arguments]
    command += ["--tasks", ",".join(f"local_{name}" for name in FIELDS), "--include_path", str(tasks)]
    command += ["--output_path", str(folder), "--log_samples", "--device", "cpu"]
    caches = {"HF_HOME": str(folder / "hf"), "HF_DATASETS_CACHE": str(folder / "datasets"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Ran(folder)


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
    questions = read_questions((tasks / "choices.jsonl").read_text(), "choices").whole()
    pairs = read_pairs((tasks / "pairs.jsonl").read_text(), "pairs").whole()
    evaluations: list[Evaluation] = [MultipleChoice(questions), MinimalPairs(pairs)]
    for evaluation in evaluations:
        for figure in evaluation.run(llm):
            found = figure.estimate
            assert found.count > 20
            assert 0 < found.mean < 1
            assert (found.mean, found.error) == pytest.approx(ran.figure(evaluation.name, figure.name))


def test_perplexity_is_of_the_harness_log_probability(ran: Ran, llm: LLM, texts: list[str]) -> None:
    """Of a text that one window holds, behind the token that the harness begins every text with."""
    text, begin = texts[0], llm.encode("")
    if llm.encode(text)[0] != begin[0]:
        assert llm.tokenizer is not None
        text = llm.tokenizer.decode(begin, skip_special_tokens=False) + text
    perplexity, bits = Reading(text).run(llm)
    nats = -float(ran.answers("text")[0])
    assert perplexity.estimate.mean == pytest.approx(math.exp(nats / sum(perplexity.weights)), rel=1e-4)
    assert bits.estimate.mean == pytest.approx(nats / math.log(2) / len(text.encode()), rel=1e-4)
