"""Tasks over local files for lm-evaluation-harness, a run of its command, and what that leaves behind."""

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgegen.evaluation.items import read_pairs, read_questions
from edgegen.evaluation.tasks import Evaluation, MinimalPairs, MultipleChoice
from edgegen.llm import LLM
from tests.root import ROOT

PROMPTS = ("once upon a time", "lily saw a dog and", "the little boy was")
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
    """Files that a run of the harness left."""

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
        """Return the model's answers to each request of a task, in order."""
        (samples,) = self._folder.rglob(f"samples_local_{task}_*.jsonl")
        records = [json.loads(line) for line in samples.read_text().splitlines()]
        return [answer for record in sorted(records, key=lambda one: one["doc_id"]) for (answer,) in record["resps"]]


def held_out_texts(test_data: Path) -> list[str]:
    """Held-out stories: one of a sentence or two, and one longer than the context of either model."""
    corpus = (test_data / "corpora" / "tinystories_4MB.txt").read_text("utf-8")
    return [corpus[-250:], corpus[-4000:-500]]


def write_tasks(folder: Path, texts: list[str]) -> None:
    """Tasks, each over a file of its name: multiple choice, minimal pairs, rolling text, answers."""
    dice = random.Random(0)
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
    prompts = [{"text": text} for text in PROMPTS]
    for name, records in {"choices": questions, "pairs": pairs, "text": stories, "answers": prompts}.items():
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(json.dumps({"task": f"local_{name}", **data, **FIELDS[name]}))


def harness(folder: Path, tasks: Path, model: str, arguments: str) -> Ran:
    """``python -m edgegen.evaluation.lm_eval`` in a process of its own."""
    command = [sys.executable, "-m", "edgegen.evaluation.lm_eval", "--model", model, "--model_args", arguments]
    command += ["--tasks", ",".join(f"local_{name}" for name in FIELDS), "--include_path", str(tasks)]
    command += ["--output_path", str(folder), "--log_samples", "--device", "cpu"]
    caches = {"HF_HOME": str(folder / "hf"), "HF_DATASETS_CACHE": str(folder / "datasets"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Ran(folder)


def check_figures(ran: Ran, llm: LLM, tasks: Path) -> None:
    """``edgegen eval`` finds what the harness has found."""
    questions = read_questions((tasks / "choices.jsonl").read_text(), "choices").whole()
    pairs = read_pairs((tasks / "pairs.jsonl").read_text(), "pairs").whole()
    evaluations: list[Evaluation] = [MultipleChoice(questions), MinimalPairs(pairs)]
    for evaluation in evaluations:
        for figure in evaluation.run(llm):
            found = figure.estimate
            assert found.count > 20
            assert 0 < found.mean < 1
            assert (found.mean, found.error) == pytest.approx(ran.figure(evaluation.name, figure.name))
