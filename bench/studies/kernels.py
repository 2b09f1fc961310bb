"""Kernels beside ONNX Runtime's operators: one bundle run by both, in processes of their own, round by round.

    python -m bench.studies.kernels BUNDLE --threads 2 --rounds 3

Loading, memory after loading (over the process before it, no KV cache yet), a prompt of 512 tokens in chunks of 128,
single tokens after 32 and 900 tokens, and a step of eight sequences: medians of all rounds, and the ratio of the two
within a round. The machine should have nothing else to do.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from bench.compare.memory import memory
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.model.interfaces import Runner
from edgegen.model.kv_cache import KVCache

PROMPT, CHUNK, NEAR, FAR, ROWS = 512, 128, 32, 900, 8
FIGURES = {
    "load, ms": "load",
    "private after load, MB": "private",
    f"prefill {PROMPT}, ms": "prefill",
    f"token @{NEAR}, ms": "near",
    f"token @{FAR}, ms": "far",
    f"step of {ROWS}, ms": "batch",
}


def measure(path: Path, kernels: Literal["auto", "stock"], threads: int) -> dict[str, float]:
    """One round in this process, which has loaded nothing yet."""
    from edgegen.model.loading import open_runner
    from edgegen.options.engine import EngineOptions

    bundle = Bundle.open(path)
    before, began = memory(), time.perf_counter()
    runner = open_runner(bundle, EngineOptions(threads=threads, kernels=kernels))
    found = {"load": (time.perf_counter() - began) * 1e3}
    after = memory()
    if before is not None and after is not None:
        found["private"] = (after.private - before.private) / 1e6
    ids = np.random.default_rng(0).integers(0, bundle.manifest.model.vocab_size, FAR + CHUNK)
    cache, wide = runner.new_cache(), runner.new_cache()
    cache.reserve(1, FAR + 64, CHUNK)
    wide.reserve(ROWS, NEAR + 64, 1)
    for length in (PROMPT, PROMPT):  # the first is not counted
        cache.truncate(0, 0)
        found["prefill"] = timed(lambda length=length: prefill(runner, cache, ids[:length]))
    wide.lengths[:] = NEAR
    cache.truncate(0, NEAR)
    found["near"] = steps(lambda i: runner.decode(cache, ids[None, i : i + 1]), 40)
    found["batch"] = steps(lambda i: runner.decode(wide, ids[i : i + ROWS, None]), 20)
    prefill(runner, cache, ids[int(cache.lengths[0]) : FAR])
    found["far"] = steps(lambda i: runner.decode(cache, ids[None, i : i + 1]), 40)
    return found


def prefill(runner: Runner[KVCache], cache: KVCache, ids: np.ndarray) -> None:
    for start in range(0, len(ids), CHUNK):
        runner.prefill(cache, 0, ids[start : start + CHUNK].tolist())


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def steps(step: Callable[[int], object], count: int) -> float:
    """The median of ``count`` steps, the first few left out, in milliseconds."""
    return statistics.median([timed(lambda i=i: step(i)) for i in range(count)][4:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", help="a name in the store, or a path")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=("auto", "stock"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    path = BundleStore().resolve(arguments.bundle)
    if arguments.one:
        print(json.dumps(measure(path, arguments.one, arguments.threads)))
        return
    command = [sys.executable, "-m", "bench.studies.kernels", str(path), "--threads", str(arguments.threads), "--one"]
    rounds = [
        {way: json.loads(subprocess.check_output([*command, way])) for way in ("auto", "stock")}
        for _ in range(arguments.rounds)
    ]
    print("| | kernels | stock | times as good |\n|---|---:|---:|---:|")
    for label, key in FIGURES.items():
        if not all(key in way for one in rounds for way in one.values()):
            continue
        ours, stock = (statistics.median(one[way][key] for one in rounds) for way in ("auto", "stock"))
        ratio = statistics.median(one["stock"][key] / max(one["auto"][key], 1e-3) for one in rounds)
        print(f"| {label} | {ours:.1f} | {stock:.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
