"""The protocol of adapters: their commands, the measurements, and the output format.

An adapter is a module with one `Peer`, run as

    python -m bench.compare.peers.NAME check                    # are its packages here? versions, or what is missing
    python -m bench.compare.peers.NAME footprint                # bytes of the packages that running a model needs
    python -m bench.compare.peers.NAME prepare CHECKPOINT OUT   # convert and quantize
    python -m bench.compare.peers.NAME logits OUT PROMPTS NPZ   # logits and greedy next ids of prompts, into NPZ
    python -m bench.compare.peers.NAME measure OUT …            # one process, one load: the measurements

and needs the standard library, NumPy and the peer's own packages; those it imports inside its methods, as
importing is measured.
"""

import argparse
import importlib.util
import json
import os
import subprocess
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

from bench.compare.footprint import installed_bytes
from bench.compare.memory import memory, peak_bytes

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]

MISSING = 3
"""Exit code of `check` when packages are missing."""

SLACK = 0.1
"""Seconds by which a peer's own times may miss the clock's, beside what it does before and after a generation."""


@dataclass(frozen=True)
class Generation:
    """The ids that a model generated, with times.

    Attributes:
        ids: int64 [rows, tokens].
        seconds: the duration of each token of a row, the first with its prefill.
    """

    ids: Ids
    seconds: list[float]


class Model(ABC):
    """A loaded model."""

    batches = True
    """Whether it takes batches of prompts."""

    loaded_kv_bytes = 0
    """Bytes of KV cache that loading has filled; a runtime that allocates its cache with the first prompt has none."""

    @abstractmethod
    def generate(self, prompts: Ids, tokens: int) -> Generation:
        """Reset, prefill prompts [rows, length], generate `tokens` greedy ids for each; EOS does not stop."""

    @abstractmethod
    def logits(self, ids: Ids) -> Logits:
        """Logits after the last of `ids`, [vocab]."""


class SteppedModel(Model):
    """A model that is called for every token."""

    @abstractmethod
    def start(self, prompts: Ids) -> Ids:
        """Reset, prefill prompts [rows, length], return the greedy next ids, [rows]."""

    @abstractmethod
    def step(self) -> Ids:
        """Feed the ids returned last, return the greedy next ids, [rows]."""

    def generate(self, prompts: Ids, tokens: int) -> Generation:
        watch = Stopwatch()
        columns = [self.start(prompts)]
        watch.lap()
        for _ in range(tokens - 1):
            columns.append(self.step())
            watch.lap()
        return Generation(np.stack(columns, axis=1), watch.laps)


class Stopwatch:
    """Seconds between laps, the first from the making of the watch on."""

    def __init__(self) -> None:
        self.laps: list[float] = []
        self._last = time.perf_counter()

    def lap(self) -> None:
        now = time.perf_counter()
        self.laps.append(now - self._last)
        self._last = now


@dataclass(frozen=True)
class Peer(ABC):
    """A runtime under test. `variant` is the adapter's own word for one of several ways to use it."""

    modules: dict[str, str] = field(default_factory=dict[str, str])
    """Import names it needs, and the distributions they come from."""
    runtime: tuple[str, ...] = ()
    """The distributions that running a converted model needs; they and what they require are its footprint."""

    @abstractmethod
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        """Convert a Hugging Face checkpoint folder into the peer's own format in the empty folder `out`."""

    @abstractmethod
    def imports(self) -> None:
        """Import what `load` needs; timed apart."""

    @abstractmethod
    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        """Load what `prepare` wrote, ready to take a prompt, tokenizer included: text is where a user starts."""


@dataclass(frozen=True)
class Protocol:
    """The parameters of the measurements. `started`: seconds since the epoch; `variant` is the only one that differs by
    peer."""

    variant: str
    threads: int
    vocab: int
    context: int
    contexts: tuple[int, ...]
    prefill: int
    repeats: int
    steps: int
    rows: int
    started: float


def measure(peer: Peer, folder: Path, protocol: Protocol) -> Iterator[dict[str, Any]]:
    """Measure import, load, prefill, decode and a batch in this process, in this order, and memory in between."""
    yield from _memory("bare")
    start = time.perf_counter()
    peer.imports()
    imported = time.perf_counter()
    model = peer.load(folder, protocol.variant, protocol.threads, protocol.context)
    loaded = time.perf_counter()
    yield {"metric": "import_s", "value": imported - start}
    yield {"metric": "load_s", "value": loaded - imported}
    yield from _memory("loaded")
    yield {"metric": "loaded_kv_bytes", "value": model.loaded_kv_bytes}

    rng = np.random.default_rng(0)

    def run(rows: int, length: int, tokens: int) -> list[float]:
        # Prompts never repeat, so that prefix caching does not help. The last id is EOS.
        prompts = rng.integers(0, protocol.vocab - 1, (rows, length))
        begin = time.perf_counter()
        generation = model.generate(prompts, tokens)
        passed, told = time.perf_counter() - begin, sum(generation.seconds)
        if generation.ids.shape != (rows, tokens) or len(generation.seconds) != tokens:
            raise RuntimeError(f"{tokens} tokens for {rows} prompts wanted, {generation.ids.shape} came")
        if not 0.5 * passed - SLACK <= told <= passed + SLACK:
            raise RuntimeError(f"{passed:.3g} s have passed, of which its own times make {told:.3g}")
        return generation.seconds

    run(1, min(protocol.contexts), 1)
    yield {"metric": "cold_s", "value": time.time() - protocol.started}

    run(1, protocol.prefill, 1)
    prefills = [run(1, protocol.prefill, 1)[0] for _ in range(protocol.repeats)]
    yield {"metric": "prefill_s", "value": median(prefills), "all": prefills}

    for context in protocol.contexts:
        prompt, *steps = run(1, context, protocol.steps + 1)
        yield {"metric": f"prompt_s@{context}", "value": prompt}
        yield {"metric": f"decode_s@{context}", "value": median(steps), "all": steps}

    yield {"metric": "peak_bytes", "value": peak_bytes()}
    yield from _memory("used")

    if model.batches and protocol.rows > 1:
        _, *steps = run(protocol.rows, min(protocol.contexts), protocol.steps + 1)
        yield {"metric": "batch_s", "value": median(steps), "all": steps}


def _memory(moment: str) -> Iterator[dict[str, Any]]:
    """Bytes in memory now, by kind, where the system tells them."""
    if (now := memory()) is not None:
        yield {"metric": f"{moment}_private_bytes", "value": now.private}
        yield {"metric": f"{moment}_mapped_bytes", "value": now.mapped}


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
    elif args.verb == "footprint":
        print(json.dumps({"bytes": installed_bytes(peer.runtime)}), file=out)
    elif args.verb == "prepare":
        peer.prepare(args.checkpoint, args.folder, args.variant)
    elif args.verb == "logits":
        peer.imports()
        model = peer.load(args.folder, args.variant, args.threads, args.context)
        with np.load(args.prompts) as prompts:
            answers = {name: model.logits(prompts[name]) for name in prompts.files}
            # Separate, since a peer may generate in another way than it computes logits.
            answers |= {f"{name}-next": model.generate(prompts[name][None], 1).ids[0] for name in prompts.files}
        np.savez(args.npz, allow_pickle=False, **answers)
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
            args.rows,
            args.started,
        )
        for line in measure(peer, args.folder, protocol):
            print(json.dumps(line), file=out, flush=True)


def run_tool(command: list[str]) -> None:
    """Run a converter; when it fails, end this process with the converter's last line."""
    returncode = subprocess.run(command).returncode
    if returncode:
        sys.exit(returncode)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check")
    verbs.add_parser("footprint")

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
    measured.add_argument("--contexts", type=int, nargs="+", required=True)
    for name in ("vocab", "prefill", "repeats", "steps", "rows"):
        measured.add_argument(f"--{name}", type=int, required=True)
    measured.add_argument("--started", type=float, required=True)
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
