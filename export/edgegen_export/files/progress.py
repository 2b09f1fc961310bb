"""ExportProgress: what an export reports while it runs: stages, how far each is, and warnings."""

from collections.abc import Mapping
from typing import Protocol

FINGERPRINT = "looking at the weights"
SAMPLING = "sampling text to calibrate on"
SMOOTHING = "smoothing"
QUANTIZING = "quantizing"
KV_SCALES = "calibrating the int8 KV cache"
COMPARING = "comparing with the checkpoint"


def writing(scheme: str) -> str:
    """The stage in which the weights are written."""
    return f"writing {scheme} weights"


class ExportProgress(Protocol):
    """Hears how an export goes on; does nothing of itself."""

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Announce the expected seconds of the stages to come, in their order. Not called where they are not known."""

    def stage(self, text: str) -> None:
        """A new stage begins."""

    def advance(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` of the stage is done: parameters written, positions compared."""

    def downloaded(self, file: str, sha256: str, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` bytes of a large file being downloaded are there. Called by another
        thread."""

    def note(self, text: str) -> None:
        """Something good to know: what a long export will take, where an interrupted one continues."""

    def warn(self, text: str) -> None:
        """Something the user should know."""


class Silent(ExportProgress):
    """No progress."""
