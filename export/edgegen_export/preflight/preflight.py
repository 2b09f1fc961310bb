"""Preflight: before an export begins, what it will take is said, and disk and memory are checked for room."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegen.errors import ExportError
from edgegen.system import installed_memory, memory_limit
from edgegen_export.files.disk import DiskNeed, amount, refuse_download, refuse_full_disk
from edgegen_export.files.progress import ExportProgress
from edgegen_export.output.resume import kept_bytes
from edgegen_export.preflight.estimate import CONTEXT, Estimate, estimate, measure_gflops
from edgegen_export.quantize.recipe import CALIBRATED, Scheme
from edgegen_export.source.model_source import SourceLoader

LONG_S = 60.0
"""From this expected time on, an export is announced."""

_TARGET_REMEDY = "give -o a folder on another disk"


@dataclass(slots=True)
class Preflight:
    """``measure``: returns the speed of matrix products on this machine, in GFLOPS. ``memory``: bytes of memory of the
    machine that is to make and run the bundle; None where that is not checked."""

    loader: SourceLoader
    target: Path
    scheme: Scheme
    fast: bool
    progress: ExportProgress
    measure: Callable[[], float] = measure_gflops
    memory: int | None = None
    estimate: Estimate | None = None

    def check_config(self, config: Mapping[str, Any]) -> None:
        """Refuse the model by its config, or say what its export will take, once. No weights are read for it.

        Raises:
            EdgegenError: what the loader's own ``check`` raises.
            ExportError: the machine's memory is too small to make the bundle or to run it.
        """
        self.loader.check(config)
        decoder = self.loader.decoder(config)
        if decoder is None or self.estimate is not None:
            return
        gflops, head = self.measure(), self.loader.draft_decoder(config)
        self.estimate = estimate(decoder, self.scheme, fast=self.fast, gflops=gflops, head=head)
        self._refuse_small_memory(self.estimate)
        self.progress.expect(self.estimate.seconds)
        if self.estimate.total_seconds >= LONG_S:
            plain = estimate(decoder, self.scheme, fast=True, gflops=gflops, head=head)
            offered = not self.fast and CALIBRATED[self.scheme].calibrates
            self.progress.note(announcement(self.estimate, plain if offered else None))

    def check_download(self, cache: Path, nbytes: int) -> None:
        """Refuse when the disk has no room for ``nbytes`` in the hub's cache, and for the bundle besides.

        Raises:
            ExportError: see :func:`refuse_full_disk`.
        """
        refuse_download(cache, nbytes, self._of_bundle())

    def check_target(self) -> None:
        """Refuse when the disk has no room for the bundle and temporary files.

        Raises:
            ExportError: see :func:`refuse_full_disk`.
        """
        refuse_full_disk(self._of_bundle())

    def _refuse_small_memory(self, estimate: Estimate) -> None:
        if self.memory is None or max(estimate.memory, estimate.running) <= self.memory:
            return
        runs = f"{amount(estimate.running)} to run with {CONTEXT} tokens and {amount(estimate.memory)} to be made"
        smaller = "a smaller one" if self.scheme == "int4" else "a smaller one or fewer bits (--int4)"
        raise ExportError(
            f"the model is too large for this machine: in {self.scheme} it takes about {runs}, and the machine has "
            f"{amount(self.memory)} of memory; choose {smaller}."
        )

    def _of_bundle(self) -> list[DiskNeed]:
        if self.estimate is None:
            return []
        nbytes = self.estimate.disk - kept_bytes(self.target)
        return [DiskNeed(self.target, nbytes, "the bundle and temporary files", _TARGET_REMEDY)]


def memory_here() -> int | None:
    """Bytes of memory that this machine has, or that its container may take; None where the system does not tell."""
    return min((n for n in (installed_memory(), memory_limit()) if n is not None), default=None)


def announcement(estimate: Estimate, plain: Estimate | None) -> str:
    """One line for an export that takes long; ``plain``: what it takes with ``--fast``, where that can be chosen."""
    taken = f"this export takes about {needs(estimate)} of disk"
    return f"{taken}; with --fast, about {needs(plain)}" if plain else taken


def needs(estimate: Estimate) -> str:
    """Time, memory and disk of an export, in words."""
    return f"{duration(estimate.total_seconds)}, {amount(estimate.memory)} of memory and {amount(estimate.disk)}"


def duration(seconds: float) -> str:
    """Seconds for a message, roughly."""
    if seconds >= 90 * 60:
        return f"{seconds / 3600:.1f} hours"
    count, unit = (round(seconds / 60), "minute") if seconds >= 59.5 else (max(1, round(seconds)), "second")
    return f"{count} {unit}{'s' if count > 1 else ''}"
