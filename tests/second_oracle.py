"""A second oracle: transformers 5, in a process and an environment of its own, beside the tests' transformers 4.

`make check` makes the environment, `.venv-transformers5`; EDGEGEN_TRANSFORMERS5 names another. Tests skip without it.
"""

import atexit
import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pytest

from tests import oracle
from tests.oracle import Ids, Logits, Oracle
from tests.root import ROOT

ENVIRONMENT = "EDGEGEN_TRANSFORMERS5"

FIRST, SECOND = 4, 5
"""The oracles, by the version of transformers."""


class Judge(Protocol):
    """The causal language model of a checkpoint folder, as an oracle computes it."""

    def logits(self, ids: Ids) -> Logits:
        """ids [b, t] → logits [b, t, vocab]."""
        ...

    def hidden_states(self, ids: Ids) -> Logits:
        """ids [b, t] → what the head takes, [b, t, size]."""
        ...

    def greedy(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        """The ``count`` most likely next ids of each prompt, one after the other."""
        ...


class SecondOracle:
    """A process of the other environment; ``ask`` waits for its answer."""

    def __init__(self, python: Path) -> None:
        self._said = os.memfd_create("second-oracle")
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", "-m", "tests.second_oracle_worker"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
        )
        atexit.register(self._process.kill)

    def ask(self, what: str, **request: Any) -> Any:
        """Send a request to the process of the second oracle, and return its answer.

        Raises:
            RuntimeError: the process has ended, or raised what this says.
        """
        process = self._process
        assert process.stdin
        assert process.stdout
        line = ""
        if process.poll() is None:
            process.stdin.write(json.dumps({"what": what, **request}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line:
            said = os.pread(self._said, 1 << 16, 0).decode(errors="replace")
            raise RuntimeError(f"the second oracle has ended: {said}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"the second oracle failed: {answer['error']}")
        return answer["answer"]


class RemoteOracle:
    """The causal language model of a checkpoint folder, which the second oracle computes."""

    def __init__(self, folder: Path) -> None:
        self._second, self._folder = second_oracle(), str(folder)

    def logits(self, ids: Ids) -> Logits:
        """ids [b, t] → logits [b, t, vocab]."""
        return self._array("logits", ids)

    def hidden_states(self, ids: Ids) -> Logits:
        """ids [b, t] → what the head takes, [b, t, size]."""
        return self._array("hidden_states", ids)

    def _array(self, what: str, ids: Ids) -> Logits:
        return _decoded(self._second.ask(what, folder=self._folder, ids=ids.tolist()))

    def proposed(self, assistant: Path, ids: list[int], count: int) -> tuple[list[int], Logits]:
        """``oracle.Oracle.proposed``."""
        request = {"folder": self._folder, "assistant": str(assistant), "ids": ids, "count": count}
        found = self._second.ask("proposed", **request)
        return found["ids"], _decoded(found)

    def greedy(self, prompts: list[list[int]], count: int) -> list[list[int]]:
        return self._second.ask("greedy", folder=self._folder, prompts=prompts, count=count)


def _decoded(found: Mapping[str, Any]) -> Logits:
    return np.frombuffer(base64.b64decode(found["data"]), "<f4").reshape(found["shape"])


def second_oracle() -> SecondOracle:
    """The running process; the calling test skips where there is no environment for it."""
    if reason := missing(SECOND):
        pytest.skip(reason)
    return _started(_second_python())


def missing(version: int) -> str | None:
    """Why this oracle cannot be asked here; None where it can."""
    if version == FIRST:
        absent = [name for name in ("torch", "transformers") if find_spec(name) is None]
        return f"{absent[0]} is the oracle here, and it is not installed" if absent else None
    python = _second_python()
    if python.exists():
        return None
    return f"transformers 5 is the oracle here, and {python.parents[1]} is not there: `make check` makes it"


T = TypeVar("T")


def judged(params: Iterable[T], oracle: Callable[[T], int | None], name: Callable[[T], str] = str) -> list[Any]:
    """``params`` of tests that the version ``oracle`` judges, if one does; ``name`` is a parameter's.

    Where an oracle is missing, one parameter that is skipped stands for all that it judges: thousands would take long.
    """
    found, left = list[Any](), dict[str, T]()
    for param in params:
        version = oracle(param)
        if version is not None and (reason := missing(version)):
            left.setdefault(reason, param)
        else:
            found.append(pytest.param(param, id=name(param)))
    return [
        *found,
        *(pytest.param(one, id="the others", marks=pytest.mark.skip(reason)) for reason, one in left.items()),
    ]


def _second_python() -> Path:
    return ROOT / os.environ.get(ENVIRONMENT, ".venv-transformers5") / "bin" / "python"


@cache
def _started(python: Path) -> SecondOracle:
    return SecondOracle(python)


def open_oracle(folder: Path, version: int = FIRST) -> Judge:
    return Oracle(folder) if version == FIRST else RemoteOracle(folder)


def write_random(
    folder: Path, model_type: str, config: Mapping[str, Any], *, seed: int, version: int = FIRST, quiet: str = ""
) -> Path:
    """``oracle.write_random`` of either."""
    if version == FIRST:
        return oracle.write_random(folder, model_type, config, seed=seed, quiet=quiet)
    request = {"model_type": model_type, "config": dict(config), "seed": seed, "quiet": quiet}
    second_oracle().ask("write", folder=str(folder), **request)
    return folder


def config_json(model_type: str, config: Mapping[str, Any], *, use_diff: bool, version: int = FIRST) -> dict[str, Any]:
    """``oracle.config_json`` of either."""
    if version == FIRST:
        return oracle.config_json(model_type, config, use_diff=use_diff)
    return second_oracle().ask("config", model_type=model_type, config=dict(config), use_diff=use_diff)
