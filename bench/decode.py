"""Decode speed, prefill and load time and peak memory of edgegen next to its peers, on one random GPT-2.

    python -m bench.decode --work /tmp/bench --threads 2

Every peer converts the same checkpoint, proves by its logits that it did so faithfully, and is then measured
in rounds (A B C A B C …), each time in a fresh process. What the numbers mean: bench/README.md.
"""

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.bandwidth import read_bandwidth
from bench.checkpoints import Shape, write_checkpoint
from bench.contestants import CONTESTANTS, NotInstalledError, PeerError, Process, processes
from bench.reference import Reference
from bench.report import Agreement, Report, Result

PROMPT_LENGTHS = (1, 5, 16, 33, 64, 100, 128, 200)


@dataclass(frozen=True)
class Settings:
    """What is measured, and how often."""

    threads: int
    contexts: tuple[int, ...] = (32, 900)
    prefill: int = 512
    repeats: int = 5
    steps: int = 48
    rounds: int = 5

    def arguments(self, shape: Shape) -> list[str]:
        values = asdict(self) | {"vocab": shape.vocab, "context": shape.context}
        names = ("threads", "vocab", "context", "prefill", "repeats", "steps")
        single = [text for name in names for text in (f"--{name}", str(values[name]))]
        return [*single, "--contexts", *map(str, self.contexts)]


@dataclass
class Benchmark:
    """One run: what is ready to be measured, and what is known so far."""

    settings: Settings
    checkpoint: Path
    work: Path
    reuse: bool = False
    ready: list[tuple[Process, Path, Result]] = field(default_factory=list[tuple[Process, Path, Result]])

    def run(self, peers: list[Process]) -> Report:
        shape = Shape.read(self.checkpoint)
        report = Report(machine(), asdict(self.settings), shape)
        self._prepare(peers, report)
        self._agree(shape)
        for i in range(self.settings.rounds):
            say(f"round {i + 1} of {self.settings.rounds}")
            report.bandwidth.append(read_bandwidth(self.settings.threads))
            for process, folder, result in self.ready:
                if result.failure is None:
                    try:
                        result.rounds.append(process.measure(folder, self.settings.arguments(shape)))
                    except PeerError as error:
                        result.failure = str(error)
        return report

    def _prepare(self, peers: list[Process], report: Report) -> None:
        for process in peers:
            contestant = process.contestant
            folder = self.work / contestant.name
            try:
                versions = process.check()
            except NotInstalledError:
                report.absent[contestant.label] = contestant.install
                continue
            except (PeerError, OSError) as error:
                report.results.append(Result(contestant, {}, failure=str(error)))
                continue
            result = Result(contestant, versions)
            report.results.append(result)
            if not (self.reuse and folder.exists()):
                say(f"converting for {contestant.label}")
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                try:
                    process.prepare(self.checkpoint, folder)
                except PeerError as error:
                    result.failure = str(error)
                    shutil.rmtree(folder)
                    continue
            self.ready.append((process, folder, result))

    def _agree(self, shape: Shape) -> None:
        """Hold every peer's logits against the float32 reference: speed counts for the same function only."""
        rng = np.random.default_rng(1)
        lengths = [n for n in PROMPT_LENGTHS if n <= shape.context]
        prompts = {str(n): rng.integers(0, shape.vocab - 1, n) for n in lengths}
        reference = Reference(self.checkpoint)
        expected = {name: reference.logits(ids) for name, ids in prompts.items()}
        del reference
        prompts_file = self.work / "prompts.npz"
        np.savez(prompts_file, allow_pickle=False, **prompts)
        for process, folder, result in self.ready:
            say(f"logits of {result.contestant.label}")
            npz = self.work / f"{process.contestant.name}-logits.npz"
            try:
                process.logits(folder, self.settings.threads, shape.context, prompts_file, npz)
            except PeerError as error:
                result.failure = str(error)
                continue
            with np.load(npz) as actual:
                result.agreement = agreement(expected, {name: actual[name] for name in actual.files})
            if result.agreement.error > 0.25:
                result.failure = f"its logits are {result.agreement.error:.0%} off: not the same model"


def agreement(expected: Mapping[str, NDArray[np.float32]], actual: Mapping[str, NDArray[np.float32]]) -> Agreement:
    errors = [np.linalg.norm(actual[n] - e) / np.linalg.norm(e) for n, e in expected.items()]
    same = [int(actual[n].argmax()) == int(e.argmax()) for n, e in expected.items()]
    return Agreement(float(np.median(errors)), sum(same), len(same))


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def physical_cores() -> int:
    try:
        import psutil
    except ImportError:
        raise SystemExit("give --threads (the number of physical cores), or pip install psutil") from None
    return psutil.cpu_count(logical=False) or os.cpu_count() or 1


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare edgegen with its peers on a random-weight GPT-2 small.")
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints and conversions (2 GB)")
    parser.add_argument("--checkpoint", type=Path, help="a GPT-2 checkpoint folder; default: a random one in WORK")
    parser.add_argument("--tokenizer", type=Path, help="folder whose tokenizer.json the random checkpoint takes")
    parser.add_argument("--threads", type=int, help="default: the physical cores")
    parser.add_argument("--contexts", type=int, nargs="+", default=list(Settings.contexts))
    for name in ("prefill", "repeats", "steps", "rounds"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Settings, name))
    parser.add_argument("--peers", default="edgegen,llama.cpp,optimum", help=f"of {','.join(CONTESTANTS)}")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help="a peer's own Python")
    parser.add_argument("--reuse", action="store_true", help="keep the conversions that an earlier run left in WORK")
    parser.add_argument("--json", type=Path, help="write every single measurement here")
    args = parser.parse_args()

    pythons = {name: Path(path) for name, _, path in (text.partition("=") for text in args.python)}
    peers = processes(args.peers.split(","), pythons)
    work: Path = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    checkpoint: Path = (args.checkpoint or work / "checkpoint").resolve()
    if args.checkpoint is None and not (args.reuse and checkpoint.exists()):
        say("writing the random checkpoint")
        write_checkpoint(checkpoint, tokenizer=args.tokenizer)

    settings = Settings(
        threads=args.threads or physical_cores(),
        contexts=tuple(args.contexts),
        prefill=args.prefill,
        repeats=args.repeats,
        steps=args.steps,
        rounds=args.rounds,
    )
    report = Benchmark(settings, checkpoint, work, args.reuse).run(peers)
    print(report.markdown())
    if args.json:
        args.json.write_text(json.dumps(report.as_json(), indent=1) + "\n", encoding="utf-8")
    sys.exit(any(result.failure for result in report.results))


if __name__ == "__main__":
    main()
