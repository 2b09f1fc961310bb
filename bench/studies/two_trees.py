"""Two working trees of edgegen, before and after a change: a token and a prompt of 512, in turns.

    git worktree add ../before HEAD~1 && (cd ../before && python kernels/build.py)
    python -m bench.studies.two_trees ../before . BUNDLE… [--turns N] [--processes N]

Each tree has a process with the bundle loaded, and one waits while the other works. The machine's clock changes, and so
does where a process's memory lies: so ratios are of two turns that follow one another, and processes are new now and
then. A figure is the median of the ratios, with their quartiles.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import IO, cast

TOKENS = 50
LENGTH = 512
KINDS = ("token", "prompt")


def serve(bundle: Path, threads: int) -> None:
    """Measure whatever is asked for, a line of a kind each; one number is the answer. The tree is this process's."""
    import numpy as np

    from edgegen import LLM, EngineOptions

    rng = np.random.default_rng(0)
    with LLM.load(bundle, options=EngineOptions(threads=threads)) as llm:
        size = llm.bundle.manifest.model.vocab_size
        print("ready", flush=True)
        for line in sys.stdin:
            begin, times = time.perf_counter(), list[float]()
            prompt = rng.integers(0, size - 1, LENGTH if line.strip() == "prompt" else 4).tolist()
            new = 1 if line.strip() == "prompt" else TOKENS
            for _ in llm.stream(prompt, max_new_tokens=new, do_sample=False, eos_token_id=()):
                times.append(time.perf_counter())
            steps = [b - a for a, b in pairwise(times)]
            print(json.dumps(median(steps) if steps else times[0] - begin), flush=True)


class Tree:
    """A process that measures with the edgegen of ``tree``."""

    def __init__(self, tree: Path, bundle: Path, threads: int) -> None:
        paths = os.pathsep.join([str(tree), str(tree / "export")])
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(bundle), "--threads", str(threads)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": paths},
        )
        self._answer()

    def measure(self, kind: str) -> float:
        """Seconds."""
        into = cast("IO[str]", self._process.stdin)
        into.write(f"{kind}\n")
        into.flush()
        return float(self._answer())

    def close(self) -> None:
        cast("IO[str]", self._process.stdin).close()
        self._process.wait()

    def _answer(self) -> str:
        line = cast("IO[str]", self._process.stdout).readline()
        if not line:
            raise SystemExit("a tree's process has ended: its error is above")
        return line


def compare(trees: list[Path], bundle: Path, args: argparse.Namespace) -> None:
    found = {kind: list[list[float]]() for kind in KINDS}
    for _ in range(args.processes):
        both = [Tree(tree, bundle, args.threads) for tree in trees]
        for one in both:
            one.measure("token")
        for kind, turns in zip(KINDS, (args.turns, max(2, args.turns // 4)), strict=True):
            for turn in range(turns):
                order = (0, 1) if turn % 2 else (1, 0)
                taken = {at: both[at].measure(kind) for at in order}
                found[kind].append([taken[0], taken[1]])
        for one in both:
            one.close()
    for kind, pairs in found.items():
        before, after = (median(column) * 1e3 for column in zip(*pairs, strict=True))
        ratios = [a / b for a, b in pairs]
        low, _, high = quantiles(ratios, n=4)
        print(
            f"{bundle.name}: {kind} {before:.2f} and {after:.2f} ms, the second {median(ratios):.3f} times as good "
            f"({low:.3f} to {high:.3f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare two working trees of edgegen.")
    parser.add_argument("trees", nargs="*", type=Path, metavar="TREE TREE BUNDLE…")
    parser.add_argument("--turns", type=int, default=8, help="of tokens in each process; a quarter as many of prompts")
    parser.add_argument("--processes", type=int, default=3, help="pairs of new processes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.threads)
        return
    if len(args.trees) < 3:
        parser.error("two trees and a bundle are needed")
    first, second, *bundles = [path.resolve() for path in args.trees]
    for bundle in bundles:
        compare([first, second], bundle, args)


if __name__ == "__main__":
    main()
