"""Runs greedy prompts on one bundle and measures them; the part of `bench.emulated` that an emulator runs.

It reads one JSON object from standard input and writes one to standard output. Beside edgegen's runtime it needs NumPy
and ONNX Runtime alone, which an emulated system has.
"""

import hashlib
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from edgegen.bundle.bundle import Bundle
from edgegen.model.interfaces import Runner
from edgegen.model.kernels import describe_kernels
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions


def greedy(runner: Runner[Any], prompt: list[int], tokens: int) -> dict[str, Any]:
    """The ids after ``prompt``, the gap between the two largest logits at each, a digest of all logits, and seconds."""
    cache = runner.new_cache()
    cache.reserve(1, len(prompt) + tokens)
    began = process_time()
    logits = runner.prefill(cache, 0, prompt)
    found: dict[str, Any] = {"prompt": process_time() - began, "ids": [], "gaps": [], "steps": []}
    digest = hashlib.sha256()
    for _ in range(tokens):
        digest.update(logits.tobytes())
        second, best = np.partition(logits, -2)[-2:].tolist()
        found["ids"].append(int(logits.argmax()))
        found["gaps"].append(best - second)
        began = process_time()
        logits = runner.decode(cache, np.array([found["ids"][-1:]], np.int64))[0, 0]
        found["steps"].append(process_time() - began)
    return found | {"digest": digest.hexdigest()}


def middle(repeat: int, work: Callable[[], float]) -> float:
    """The median of several; an emulator translates code when it first meets it, so the first is left out."""
    return statistics.median([work() for _ in range(repeat + 1)][1:])


def main() -> None:
    task = json.load(sys.stdin)
    bundle = Bundle.open(Path(task["bundle"]))
    options = EngineOptions(kv=task["kv"], kernels=task["kernels"], threads=1)
    runner = open_runner(bundle, options)
    longest = (task["prompts"][0] * task["length"])[: task["length"]]
    answers = [greedy(runner, prompt, task["tokens"]) for prompt in task["prompts"]]
    result = {
        "kernels": describe_kernels(wanted=task["kernels"] == "auto"),
        "answers": [{name: answer[name] for name in ("ids", "gaps", "digest")} for answer in answers],
        "step": statistics.median(seconds for answer in answers for seconds in answer["steps"][2:]),
        "prompt": middle(task["repeats"], lambda: greedy(runner, longest, 0)["prompt"]),
    }
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
