"""The comparison of edgegen with other runtimes on one random-weight checkpoint: install, convert, check, measure."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.bandwidth import read_bandwidth
from bench.compare.checkpoints import write_checkpoint
from bench.compare.contestants import Contestant, NotInstalledError, PeerError, Process
from bench.compare.environments import Environment, InstallError
from bench.compare.numpy_model import NumpyModel
from bench.compare.report import Agreement, Result, Settings, ShapeReport
from bench.compare.shapes import SHAPES, Named
from edgegen.benchmark.bandwidth import megabytes_for
from edgegen.system import available_memory

PROMPT_LENGTHS = (1, 5, 16, 33, 64, 100, 128, 200)

FARTHEST = {4: 0.6, 8: 0.25, 32: 0.01}
"""The largest accepted relative error of logits, by bits per weight; unrelated models have 1.4."""


@dataclass(frozen=True)
class Workshop:
    """The folder of a comparison: `venvs/`, and for each shape its checkpoint and every peer's conversion of it.

    Attributes:
        reuse: keep environments, checkpoints and conversions of earlier runs.
        pythons: given interpreters, by environment.
    """

    folder: Path
    reuse: bool
    pythons: Mapping[str, Path]

    def python(self, environment: Environment) -> Path:
        """The interpreter of `environment`, which is installed if needed; `InstallError` when that fails."""
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
        """The checkpoint converted by the contestant's own tools; `PeerError` when they fail."""
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
        self._settings = settings.within(self._shape.sizes.context)
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
        block = megabytes_for(sizes.weights_per_token, available_memory())
        for i in range(self._settings.rounds):
            report.bandwidth.append(read_bandwidth(self._settings.threads, block))
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
        """Check every peer's logits against the float32 model: only speeds of the same function are comparable."""
        vocab, rng = self._shape.sizes.vocab, np.random.default_rng(1)
        prompts = {str(n): rng.integers(0, vocab - 1, n) for n in PROMPT_LENGTHS}
        reference = NumpyModel.of(checkpoint)
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
    """Compare logits by prompt; the contestant's greedy choice is `NAME-next` in `actual`."""
    errors = [np.linalg.norm(actual[n] - e) / np.linalg.norm(e) for n, e in expected.items()]
    same = [int(actual[f"{n}-next"][0]) == int(e.argmax()) for n, e in expected.items()]
    return Agreement(float(np.median(errors)), sum(same), len(same))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _replace(partial: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
