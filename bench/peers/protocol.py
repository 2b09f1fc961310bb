"""What every peer does in the same way: the command of an adapter, the measurements, their lines on stdout.

An adapter is a module with one `Peer`, run as

    python -m bench.peers.NAME check                    # are its packages here? versions, or what is missing
    python -m bench.peers.NAME prepare CHECKPOINT OUT   # convert and quantize
    python -m bench.peers.NAME logits OUT NPZ           # last-position logits of given prompts, into NPZ
    python -m bench.peers.NAME measure OUT …            # one process, one load: the measurements

and needs the standard library, NumPy and the peer's own packages; those it imports inside its methods, as
importing is measured.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]

MISSING = 3
"""Exit code of `check` when packages are missing."""


class Model(ABC):
    """A loaded model with room for one sequence."""

    @abstractmethod
    def start(self, ids: Ids) -> int:
        """Forget everything, process `ids` as one prompt, return the greedy next id."""

    @abstractmethod
    def step(self) -> int:
        """Feed the id returned last, return the greedy next id."""

    @abstractmethod
    def logits(self, ids: Ids) -> Logits:
        """Logits after the last of `ids`, [vocab]."""


@dataclass(frozen=True)
class Peer(ABC):
    """A runtime under test. `variant` is the adapter's own word for one of several ways to use it."""

    modules: dict[str, str] = field(default_factory=dict[str, str])
    """Import names it needs, and the distributions they come from."""

    @abstractmethod
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        """Convert a Hugging Face checkpoint folder into the peer's own format in the empty folder `out`."""

    @abstractmethod
    def imports(self) -> None:
        """Import what `load` needs; timed apart."""

    @abstractmethod
    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        """What `prepare` wrote, ready to take a prompt, tokenizer included: text is where a user starts."""


@dataclass(frozen=True)
class Protocol:
    """What is measured; the same for every peer but for its variant."""

    variant: str
    threads: int
    vocab: int
    context: int
    contexts: tuple[int, ...]
    prefill: int
    repeats: int
    steps: int


def measure(peer: Peer, folder: Path, protocol: Protocol) -> Iterator[dict[str, Any]]:
    """Import, load, prefill, decode, memory, in this order, in this process."""
    start = time.perf_counter()
    peer.imports()
    imported = time.perf_counter()
    model = peer.load(folder, protocol.variant, protocol.threads, protocol.context)
    loaded = time.perf_counter()
    yield {"metric": "import_s", "value": imported - start}
    yield {"metric": "load_s", "value": loaded - imported}

    rng = np.random.default_rng(0)

    def prompt(length: int) -> Ids:
        # Never the same prompt twice: no peer may answer from a prefix cache. The last id ends the text.
        return rng.integers(0, protocol.vocab - 1, length)

    first, *rest = [_timed_start(model, prompt(protocol.prefill)) for _ in range(protocol.repeats + 1)]
    yield {"metric": "first_prefill_s", "value": first}
    yield {"metric": "prefill_s", "value": median(rest), "all": rest}

    for context in protocol.contexts:
        model.start(prompt(context))
        times: list[float] = []
        for _ in range(protocol.steps):
            begin = time.perf_counter()
            model.step()
            times.append(time.perf_counter() - begin)
        yield {"metric": f"decode_s@{context}", "value": median(times), "all": times}

    yield from _memory()


def _timed_start(model: Model, ids: Ids) -> float:
    begin = time.perf_counter()
    model.start(ids)
    return time.perf_counter() - begin


def _memory() -> Iterator[dict[str, Any]]:
    """Bytes: the peak of the resident set; where the kernel tells it, this process's own share now.

    Not `ru_maxrss` on Linux: it survives `exec`, so it would report the parent's peak.
    """
    status = Path("/proc/self/status")
    if status.exists():
        yield {"metric": "peak_bytes", "value": _kilobytes(status, "VmHWM:")}
        rollup = Path("/proc/self/smaps_rollup")
        yield {"metric": "pss_bytes", "value": _kilobytes(rollup, "Pss:")}
        yield {"metric": "anonymous_bytes", "value": _kilobytes(rollup, "Anonymous:")}
    elif sys.platform == "win32":
        psutil = importlib.import_module("psutil")
        yield {"metric": "peak_bytes", "value": psutil.Process().memory_info().peak_wset}
    else:
        resource = importlib.import_module("resource")
        unit = 1 if sys.platform == "darwin" else 1024
        yield {"metric": "peak_bytes", "value": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def _kilobytes(path: Path, key: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{path} has no {key}")


def run(peer: Peer) -> None:
    """The command line of an adapter."""
    out = _lines_only()
    args = _parser().parse_args()
    if args.verb == "check":
        missing = [name for name in peer.modules if not _found(name)]
        if missing:
            print(json.dumps({"missing": missing}), file=out)
            sys.exit(MISSING)
        versions = {dist: _version(dist) for dist in peer.modules.values()}
        print(json.dumps({"versions": versions}), file=out)
    elif args.verb == "prepare":
        peer.prepare(args.checkpoint, args.folder, args.variant)
    elif args.verb == "logits":
        peer.imports()
        model = peer.load(args.folder, args.variant, args.threads, args.context)
        with np.load(args.prompts) as prompts:
            logits = {name: model.logits(prompts[name]) for name in prompts.files}
        np.savez(args.npz, allow_pickle=False, **logits)
    else:
        protocol = Protocol(
            args.variant,
            args.threads,
            args.vocab,
            args.context,
            tuple(args.contexts),
            args.prefill,
            args.repeats,
            args.steps,
        )
        for line in measure(peer, args.folder, protocol):
            print(json.dumps(line), file=out, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check")

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--variant", default="")

    prepare = verbs.add_parser("prepare", parents=[common])
    prepare.add_argument("checkpoint", type=Path)
    prepare.add_argument("folder", type=Path)

    loading = argparse.ArgumentParser(add_help=False, parents=[common])
    loading.add_argument("folder", type=Path)
    loading.add_argument("--threads", type=int, required=True)
    loading.add_argument("--context", type=int, required=True)

    logits = verbs.add_parser("logits", parents=[loading])
    logits.add_argument("prompts", type=Path)
    logits.add_argument("npz", type=Path)

    measured = verbs.add_parser("measure", parents=[loading])
    measured.add_argument("--vocab", type=int, required=True)
    measured.add_argument("--contexts", type=int, nargs="+", required=True)
    measured.add_argument("--prefill", type=int, required=True)
    measured.add_argument("--repeats", type=int, required=True)
    measured.add_argument("--steps", type=int, required=True)
    return parser


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a missing parent
        return False


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # run from a checkout
        return "unreleased"


def _lines_only() -> TextIO:
    """Standard output for our lines alone: whatever a library prints, in C++ too, goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out
