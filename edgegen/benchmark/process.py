"""run_round(): runs a round in a process of its own, so that loading is cold and all its memory is the model's."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import edgegen.errors
from edgegen.benchmark.options import BenchmarkOptions
from edgegen.benchmark.round import Round
from edgegen.errors import BundleError, EdgegenError, one_or_list
from edgegen.strict_json import decode
from edgegen.system import child_environment, creation_flags


def run_round(path: Path, options: BenchmarkOptions, on_part: Callable[[], object] = lambda: None) -> Round:
    """Measure the bundle at ``path`` once; ``on_part`` is called after each of the plan's parts.

    Raises:
        BundleError: the bundle cannot be used, or the process ended unexpectedly.
        UsageError: the bundle has no variant as ``options`` ask for.
        LogitsError: the model's logits are NaN or infinite.
    """
    command = [sys.executable, "-P", "-m", "edgegen.benchmark", str(path.absolute()), json.dumps(asdict(options))]
    begin = time.perf_counter()
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=child_environment(),
            creationflags=creation_flags(),
        ) as process,
    ):
        assert process.stdout is not None
        try:
            found = _listen(process.stdout, begin, on_part)
        except BaseException:
            process.kill()  # Ctrl-C may have reached this process only
            raise
        if found is not None:
            return found
        code = process.wait()
        complaints.seek(0)
        last = complaints.read().decode(errors="replace").strip().rpartition("\n")[2]
        said = f" and said: {last}" if last else " without a word"
        raise BundleError(f"the process that measured {path} ended with code {code}{said}.")


def read_options(text: str) -> BenchmarkOptions:
    """Read the options that :func:`run_round` passes to its process."""
    return _decoded(BenchmarkOptions, json.loads(text))


def _listen(lines: IO[bytes], begin: float, on_part: Callable[[], object]) -> Round | None:
    """Read the lines of the process as it writes them, and return its round; None if it ends without one."""
    first_token = None
    for line in lines:
        if not line.startswith(b'{"event"'):
            continue  # a program may print what it likes while it starts
        match json.loads(line):
            case {"event": "part"}:
                on_part()
            case {"event": "first token"}:
                first_token = time.perf_counter() - begin
            case {"event": "round", "round": found}:
                return replace(_decoded(Round, found), first_token_seconds=first_token)
            case {"event": "error", "kind": kind, "message": message}:
                error: type[EdgegenError] = getattr(edgegen.errors, kind)
                raise error(message)
            case _:
                raise AssertionError(line)
    return None


def _decoded(kind: type[Any], value: Any) -> Any:
    problems = list[str]()
    decoded = decode(kind, value, "", problems)
    assert not problems, one_or_list(problems)  # this package speaks to itself
    return decoded
