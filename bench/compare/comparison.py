"""edgegen next to its peers on random-weight checkpoints of three shapes, and the tables of it.

    python -m bench.compare --work /tmp/bench
    python -m bench.compare --work /tmp/bench --reuse --shapes G --peers edgegen,llama.cpp --rounds 3

Every peer gets a virtual environment of its own and converts the same checkpoint, proves by its logits that it did so
faithfully, and is then measured in rounds (A B C A B C …), each time in a fresh process. What the numbers mean:
bench/README.md.
"""

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.bandwidth import read_bandwidth
from bench.checkpoints import write_checkpoint
from bench.contestants import CONTESTANTS, DEFAULT, Contestant, NotInstalledError, PeerError, Process, chosen
from bench.environments import Environment, InstallError
from bench.reference import Reference
from bench.report import Agreement, Report, Result, Settings, ShapeReport, rewrite
from bench.shapes import SHAPES, Named

PROMPT_LENGTHS = (1, 5, 16, 33, 64, 100, 128, 200)

FARTHEST = {4: 0.6, 8: 0.25, 32: 0.01}
"""The relative error of logits, by bits, beyond which a peer does not run the same model; unrelated ones have 1.4."""


@dataclass(frozen=True)
class Workshop:
    """The folder of a comparison: `venvs/`, and for each shape its checkpoint and what each peer made of it.

    Attributes:
        reuse: keep what an earlier run has left there.
        pythons: those that are given, by environment.
    """

    folder: Path
    reuse: bool
    pythons: Mapping[str, Path]

    def python(self, environment: Environment) -> Path:
        """That runs the adapters of `environment`, which is made if need be; `InstallError` when that fails."""
        if environment.name in self.pythons:
            return self.pythons[environment.name]
        folder = self.folder / "venvs" / environment.name
        if not (self.reuse and environment.installed(folder)):
            say(f"installing {environment.name}")
            environment.install(folder)
        return environment.python(folder)

    def checkpoint(self, name: str, shape: Named) -> Path:
        folder = self.folder / name / "checkpoint"
        if not (self.reuse and folder.exists()):
            say(f"writing the random checkpoint {name}")
            partial = self._fresh(folder.with_name("checkpoint.partial"))
            write_checkpoint(partial, shape.sizes)
            _replace(partial, folder)
        return folder

    def conversion(self, name: str, process: Process, checkpoint: Path, *, kept: bool) -> Path:
        """What the contestant's own means make of the checkpoint; `PeerError` when they cannot."""
        contestant = process.contestant
        folder = self.folder / name / (contestant.converted_as or contestant.name)
        if not (folder.exists() and (kept or self.reuse)):
            say(f"{name}: converting for {contestant.label}")
            partial = self._fresh(folder.with_name(f"{folder.name}.partial"))
            process.prepare(checkpoint, partial)
            _replace(partial, folder)
        return folder

    def _fresh(self, folder: Path) -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


@dataclass
class Entry:
    """A contestant that is ready to be measured."""

    process: Process
    folder: Path
    result: Result
    installed_bytes: int | None


class Comparison:
    """All contestants on the checkpoint of one shape."""

    def __init__(self, name: str, workshop: Workshop, settings: Settings) -> None:
        self._name = name
        self._shape = SHAPES[name]
        self._workshop = workshop
        self._settings = settings
        self._entries: list[Entry] = []

    def run(self, pythons: Mapping[str, Path | InstallError], contestants: list[Contestant]) -> ShapeReport:
        sizes = self._shape.sizes
        report = ShapeReport(self._name, self._shape.title, sizes.weights_per_token, self._settings)
        checkpoint = self._workshop.checkpoint(self._name, self._shape)
        for contestant in contestants:
            result = Result(contestant)
            report.results.append(result)
            try:
                self._prepare(result, pythons[contestant.environment.name], checkpoint)
            except (InstallError, NotInstalledError, PeerError, OSError) as error:
                result.failure = str(error)
        self._agree(checkpoint)
        for i in range(self._settings.rounds):
            report.bandwidth.append(read_bandwidth(self._settings.threads))
            for entry in self._ready():
                say(f"{self._name}: round {i + 1} of {self._settings.rounds}: {entry.result.contestant.label}")
                self._measure(entry)
        return report

    def _prepare(self, result: Result, python: Path | InstallError, checkpoint: Path) -> None:
        if isinstance(python, InstallError):
            raise python
        process = Process(result.contestant, python)
        try:
            result.versions = process.check()
        except NotInstalledError as error:
            raise PeerError(f"{python} lacks {error}: {result.contestant.install}") from None
        made = [entry.folder.name for entry in self._entries]
        kept = result.contestant.converted_as in made
        folder = self._workshop.conversion(self._name, process, checkpoint, kept=kept)
        self._entries.append(Entry(process, folder, result, process.footprint()))

    def _agree(self, checkpoint: Path) -> None:
        """Hold every peer's logits against the float32 reference: speed counts for the same function only."""
        vocab, rng = self._shape.sizes.vocab, np.random.default_rng(1)
        prompts = {str(n): rng.integers(0, vocab - 1, n) for n in PROMPT_LENGTHS}
        reference = Reference.of(checkpoint)
        expected = {name: reference.logits(ids) for name, ids in prompts.items()}
        del reference
        file = checkpoint.parent / "prompts.npz"
        np.savez(file, allow_pickle=False, **prompts)
        for entry in self._ready():
            contestant = entry.result.contestant
            say(f"{self._name}: logits of {contestant.label}")
            npz = checkpoint.parent / f"{contestant.name}-logits.npz"
            try:
                entry.process.logits(entry.folder, self._settings.threads, self._settings.room, file, npz)
            except PeerError as error:
                entry.result.failure = str(error)
                continue
            with np.load(npz) as actual:
                found = agreement(expected, {name: actual[name] for name in actual.files})
            entry.result.agreement = found
            if found.error > FARTHEST[contestant.bits]:
                entry.result.failure = f"its logits are {found.error:.0%} off: not the same model"

    def _measure(self, entry: Entry) -> None:
        arguments = [
            *("--threads", str(self._settings.threads)),
            *("--context", str(self._settings.room)),
            *("--vocab", str(self._shape.sizes.vocab)),
            *("--contexts", *map(str, self._settings.contexts)),
            *("--prefill", str(self._settings.prefill)),
            *("--repeats", str(self._settings.repeats)),
            *("--steps", str(self._settings.steps)),
            *("--rows", str(self._settings.rows)),
        ]
        sizes = {"disk_bytes": _bytes(entry.folder), "installed_bytes": entry.installed_bytes}
        try:
            entry.result.rounds.append(entry.process.measure(entry.folder, arguments) | sizes)
        except PeerError as error:
            entry.result.failure = str(error)

    def _ready(self) -> list[Entry]:
        return [entry for entry in self._entries if entry.result.failure is None]


def agreement(expected: Mapping[str, NDArray[np.float32]], actual: Mapping[str, NDArray[Any]]) -> Agreement:
    """Of logits by prompt; the first choice is what the contestant generates: `NAME-next` in `actual`."""
    errors = [np.linalg.norm(actual[n] - e) / np.linalg.norm(e) for n, e in expected.items()]
    same = [int(actual[f"{n}-next"][0]) == int(e.argmax()) for n, e in expected.items()]
    return Agreement(float(np.median(errors)), sum(same), len(same))


def machine() -> dict[str, Any]:
    """What it is: for the notes and the JSON."""
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


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _replace(partial: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compare edgegen with its peers on random-weight checkpoints.")
    parser.add_argument("--work", type=Path, required=True, help="folder for environments, checkpoints, conversions")
    parser.add_argument("--shapes", default=",".join(SHAPES), help=f"of {','.join(SHAPES)}")
    parser.add_argument("--peers", default=",".join(DEFAULT), help=f"of {','.join(CONTESTANTS)}")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help="a peer's own Python")
    parser.add_argument("--reuse", action="store_true", help="keep what an earlier run left in WORK")
    parser.add_argument("--threads", type=int, help="default: the physical cores")
    parser.add_argument("--contexts", type=int, nargs="+", default=list(Settings.contexts))
    for name in ("prefill", "repeats", "steps", "rows", "rounds"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Settings, name))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables between the markers of this page")
    parser.add_argument("--json", type=Path, help="write every single measurement here")
    return parser


def _settings(args: argparse.Namespace) -> Settings:
    return Settings(
        threads=args.threads or physical_cores(),
        contexts=tuple(args.contexts),
        prefill=args.prefill,
        room=max(Settings.room, args.prefill + 1, max(args.contexts) + args.steps + 1),
        repeats=args.repeats,
        steps=args.steps,
        rows=args.rows,
        rounds=args.rounds,
    )


def _pythons(workshop: Workshop, contestants: list[Contestant]) -> dict[str, Path | InstallError]:
    """By environment: the Python, or why there is none."""
    found: dict[str, Path | InstallError] = {}
    for environment in (contestant.environment for contestant in contestants):
        if environment.name not in found:
            try:
                found[environment.name] = workshop.python(environment)
            except InstallError as error:
                found[environment.name] = InstallError(f"{environment.command}: {error}")
    return found


def main() -> None:
    args = _parser().parse_args()
    contestants = chosen(args.peers.split(","))
    shapes = args.shapes.split(",")
    if unknown := sorted({*shapes} - SHAPES.keys()):
        raise SystemExit(f"no such shape: {', '.join(unknown)} (there are {', '.join(SHAPES)})")
    given = {name: Path(path) for name, _, path in (text.partition("=") for text in args.python)}
    environments = {contestant.environment.name for contestant in CONTESTANTS.values()}
    if unknown := sorted(given.keys() - environments):
        raise SystemExit(f"no such environment: {', '.join(unknown)} (there are {', '.join(sorted(environments))})")

    settings = _settings(args)
    workshop = Workshop(args.work.resolve(), args.reuse, given)
    pythons = _pythons(workshop, contestants)
    command = f"python -m bench.compare --shapes {args.shapes} --rounds {settings.rounds}"
    report = Report(command, machine(), settings)
    for name in shapes:
        report.shapes.append(Comparison(name, workshop, settings).run(pythons, contestants))
        if args.json:
            args.json.write_text(json.dumps(report.as_json(), indent=1) + "\n", encoding="utf-8")
    print(report.markdown())
    if args.write:
        rewrite(args.write, report.markdown())
    results = [result for shape in report.shapes for result in shape.results]
    sys.exit(any(result.failure for result in results if not result.contestant.is_peer))


if __name__ == "__main__":
    main()
