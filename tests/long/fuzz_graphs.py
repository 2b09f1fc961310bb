"""Mutated graphs: refused by the check, or loaded and run by ONNX Runtime, in limited memory, without a crash.

    python -m tests.long.fuzz_graphs [--count 100000] [--seed 0]

Those that pass the check are loaded in child processes of a few at a time, each with an address space of a few
gigabytes; a child that a signal ends is a crash, and its graphs are kept in ``build/fuzz``.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from edgegen import LLM, EdgegenError, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.graph_check import graph_problems
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from tests.runtime.bundle.mutations import mutated

ADDRESS_SPACE = 4 << 30
TOGETHER = 50
_BEGINS = "begins "


def load_all(folders: list[str]) -> None:
    """Load each bundle, and generate a token: a child's work. It says how each ended."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    options = EngineOptions(threads=1, verify="never")
    for folder in folders:
        print(_BEGINS + folder, flush=True)
        with suppress(EdgegenError), LLM.load(folder, options=options) as llm:
            llm.generate("Once", max_new_tokens=2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutate graphs, and load those that pass.")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load is not None:
        load_all(args.load)
        return
    source = Bundle.open(BundleStore().resolve(DEFAULT_MODEL))
    graph, sizes = source.variant.prefill, {"weights.data": source.weights_size}
    whole, chance, ends = source.file(graph).read_bytes(), random.Random(args.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as root:
        waiting = list[str]()
        for n in range(args.count):
            changed = mutated(whole, chance)
            if graph_problems(changed, sizes):
                ends["refused by the check"] += 1
                continue
            ends["passed the check"] += 1
            waiting.append(_bundle(source, Path(root, str(n)), graph, changed))
            if len(waiting) == TOGETHER or n == args.count - 1:
                _load(waiting, ends)
                waiting = []
        if waiting:
            _load(waiting, ends)
    print(json.dumps(ends, indent=1))
    sys.exit(any(end.startswith("crashed") for end in ends))


def _bundle(source: Bundle, folder: Path, graph: str, content: bytes) -> str:
    """The bundle with another graph; its other files are links to those of ``source``."""
    inside = folder / source.manifest.folder
    inside.mkdir(parents=True)
    (folder / "edgegen.json").symlink_to(source.path / "edgegen.json")
    for name in source.manifest.files:
        if name != graph:
            (inside / name).hardlink_to(source.file(name))
    (inside / graph).write_bytes(content)
    return str(folder)


def _load(folders: list[str], ends: Counter[str]) -> None:
    """In a child, and what comes after a crash in another."""
    while folders:
        done = subprocess.run(
            [sys.executable, "-m", "tests.long.fuzz_graphs", "--load", *folders],
            capture_output=True,
            text=True,
        )
        lines = done.stdout.splitlines()
        begun = [line.removeprefix(_BEGINS) for line in lines if line.startswith(_BEGINS)]
        if done.returncode == 0:
            ends["loaded, or refused with an error of edgegen's"] += len(begun)
            return
        ends[f"crashed: {done.returncode}"] += 1
        kept = Path("build", "fuzz")
        kept.mkdir(parents=True, exist_ok=True)
        (kept / f"{Path(begun[-1]).name}.onnx").write_bytes(next(Path(begun[-1]).glob("*/prefill*.onnx")).read_bytes())
        print(f"crash ({done.returncode}): {begun[-1]}\n{done.stderr[-2000:]}", file=sys.stderr)
        folders = folders[len(begun) :]


if __name__ == "__main__":
    main()
