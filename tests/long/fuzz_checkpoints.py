"""Mutated checkpoints: refused in a sentence, or exported, in limited memory and time, without a crash.

    python -m tests.long.fuzz_checkpoints [--count 20000] [--seed 0]

Files of tiny checkpoints are changed: ``config.json``, ``tokenizer.json`` and the header of safetensors value by value
and byte by byte, the files of a LoRA adapter, GGUF files byte by byte. Each checkpoint is exported in a child process
of many, with an address space of a few gigabytes. A signal, an error that is not edgegen's, more than the time, and
more than the memory count as failures; such checkpoints are kept in ``build/fuzz``.
"""

import argparse
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from edgegen.errors import EdgegenError
from edgegen_export.pipeline import export
from edgegen_export.progress import Silent
from tests.export.checkpoint.hostile import changed_copy, export_arguments, write_sources
from tests.root import ROOT

ADDRESS_SPACE, SECONDS, TOGETHER = 6 << 30, 60, 40
LONGEST = 20_000
"""Characters of an error: all problems are listed, and long values are cut."""
_BEGINS, _ENDS = "begins ", "ends "


def too_long(*_: object) -> None:
    raise TimeoutError


def export_all(folders: list[str]) -> None:
    """Export each checkpoint: a child's work. It says how each ended."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, too_long)
    warnings.simplefilter("ignore")
    for folder in folders:
        print(_BEGINS + folder, flush=True)
        with tempfile.TemporaryDirectory() as target:
            signal.alarm(SECONDS)
            try:
                source, adapter = export_arguments(Path(folder))
                export(source, Path(target, "b"), scheme="int8", fast=True, adapter=adapter, progress=Silent())
                end = "exported"
            except EdgegenError as error:
                end = "refused" if 0 < len(str(error)) < LONGEST else f"failed: {len(str(error))} characters: {error!r}"
            except BaseException as error:
                end = f"failed: {type(error).__name__}: {error}"
            finally:
                signal.alarm(0)
        print(_ENDS + json.dumps(end), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutate checkpoints, and export them.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--export", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.export is not None:
        export_all(args.export)
        return
    chance, ends, failures = random.Random(args.seed), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sources = write_sources(root)
        for first in range(0, args.count, TOGETHER):
            made = list[str]()
            for n in range(first, min(first + TOGETHER, args.count)):
                made.append(str(changed_copy(sources, root / f"{n}", chance)))
            _export(made, ends, failures)
            for path in made:
                shutil.rmtree(path)
            if first // TOGETHER % 25 == 0:
                print(f"{first}: {dict(ends)}", file=sys.stderr, flush=True)
    print(json.dumps(ends, indent=1))
    sys.exit(bool(failures))


def _export(folders: list[str], ends: Counter[str], failures: list[str]) -> None:
    """Export them in a child, and those behind one that crashes in another."""
    while folders:
        command = [sys.executable, "-W", "ignore", "-m", "tests.long.fuzz_checkpoints", "--export", *folders]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
        lines = done.stdout.splitlines()
        begun = [line.removeprefix(_BEGINS) for line in lines if line.startswith(_BEGINS)]
        told = [json.loads(line.removeprefix(_ENDS)) for line in lines if line.startswith(_ENDS)]
        told += [f"failed: exit code {done.returncode}"] * (len(begun) - len(told))
        for path, end in zip(begun, told, strict=True):
            ends[end.partition(":")[0]] += 1
            if end.startswith("failed"):
                failures.append(end)
                kept = ROOT / "build" / "fuzz" / f"{Path(path).name}"
                shutil.copytree(path, kept, dirs_exist_ok=True)
                print(f"{kept}: {end[:600]}", file=sys.stderr, flush=True)
        if not begun:
            raise RuntimeError(f"no checkpoint was begun: exit code {done.returncode}")
        folders = folders[len(begun) :]


if __name__ == "__main__":
    main()
