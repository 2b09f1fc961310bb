"""The second oracle's process: answers requests, one a line on stdin, with one a line on stdout, both JSON.

An environment of its own runs it, which has transformers 5: tests/second_oracle.py starts it.
"""

import base64
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tests.oracle import Logits, Oracle, config_json, import_transformers, write_random, write_wrapped
from tests.published import making


class Worker:
    """The last model that was asked for stays open."""

    def __init__(self) -> None:
        self._transformers = import_transformers()
        self._transformers.logging.set_verbosity_error()
        self._transformers.logging.disable_progress_bar()
        self._open: tuple[tuple[str, int], Oracle] | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        """Compute the answer to one request.

        Raises:
            ValueError: the request has no name of one.
        """
        match request.pop("what"):
            case "version":
                return self._transformers.__version__
            case "causal types":
                return list(self._transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
            case "config":
                return config_json(**request)
            case "write":
                write_random(Path(request.pop("folder")), **request)
                return None
            case "write wrapped":
                write_wrapped(Path(request.pop("folder")), **request)
                return None
            case "published":
                making.make(request["name"], Path(request["folder"]))
                return None
            case "logits" | "hidden_states" as method:
                found = getattr(self._oracle(request["folder"]), method)(np.array(request["ids"]))
                return _encoded(found)
            case "proposed":
                oracle = self._oracle(request["folder"])
                ids, logits = oracle.proposed(Path(request["assistant"]), request["ids"], request["count"])
                return {"ids": ids, **_encoded(logits)}
            case "greedy":
                return self._oracle(request["folder"]).greedy(request["prompts"], request["count"])
            case what:
                raise ValueError(f"no such request: {what}")

    def _oracle(self, folder: str) -> Oracle:
        """Opened again when its config has changed."""
        key = folder, (Path(folder) / "config.json").stat().st_mtime_ns
        if self._open is None or self._open[0] != key:
            self._open = key, Oracle(Path(folder))
        return self._open[1]


def _encoded(found: Logits) -> dict[str, Any]:
    data = np.ascontiguousarray(found, "<f4").tobytes()
    return {"shape": found.shape, "data": base64.b64encode(data).decode()}


def main() -> None:
    warnings.simplefilter("ignore")
    # What transformers prints must not come between the answers.
    answers: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        try:
            answer = {"answer": worker.answer(json.loads(line))}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
