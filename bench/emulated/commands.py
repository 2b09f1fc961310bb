"""Runs commands of `edgegen` one after the other in one process; the part of the tests that an emulator runs.

It reads a JSON array of commands, each an array of words, from standard input, and writes one of results to standard
output: exit code, standard output and standard error.
"""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout

from edgegen.cli import main as edgegen


def run(words: list[str]) -> dict[str, object]:
    """One command; its streams are pipes to it."""
    pipes = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(pipe, encoding="utf-8", write_through=True) for pipe in pipes)
    code: object = None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            edgegen(words)
        except SystemExit as left:
            code = left.code
    said, told = (pipe.getvalue().decode() for pipe in pipes)
    return {"code": code or 0, "stdout": said, "stderr": told}


def main() -> None:
    sys.executable = os.environ.get("EDGEGEN_EMULATED_PYTHON", sys.executable)
    json.dump([run(words) for words in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
