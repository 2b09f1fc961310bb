"""refuse_full_disk(): free disk space, checked before an export downloads or writes anything."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgegen.errors import ExportError

_CACHE_REMEDY = "set HF_HOME to a folder on another disk"


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """``nbytes`` that will be written into ``folder``, which need not exist yet, for ``purpose``; ``remedy``: how to
    have them written elsewhere."""

    folder: Path
    nbytes: int
    purpose: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system: ``key`` tells it from others; ``free`` bytes that this user may write."""

    key: int
    free: int


def disk_of(folder: Path) -> Disk | None:
    """The file system that ``folder`` lies on, or will lie on; None where the system does not tell."""
    place = folder.absolute()
    try:
        while not place.exists():
            place = place.parent
        return Disk(place.stat().st_dev, shutil.disk_usage(place).free)
    except OSError:
        return None


def refuse_full_disk(needs: Sequence[DiskNeed], disk_of: Callable[[Path], Disk | None] = disk_of) -> None:
    """Sum up ``needs`` by file system, and compare with what is free.

    Raises:
        ExportError: a file system has less room than is needed there; all of them are listed.
    """
    disks = dict[int, Disk]()
    by_disk = dict[int, list[DiskNeed]]()
    for need in needs:
        if need.nbytes > 0 and (disk := disk_of(need.folder)):
            disks[disk.key] = disk
            by_disk.setdefault(disk.key, []).append(need)
    short = [(disks[key], of_disk) for key, of_disk in by_disk.items() if _total(of_disk) > disks[key].free]
    if short:
        raise ExportError("\n".join(_refusal(*one) for one in short))


def refuse_download(cache: Path, nbytes: int, besides: Sequence[DiskNeed] = ()) -> None:
    """:func:`refuse_full_disk` for ``nbytes`` in the hub's cache, and ``besides``.

    Raises:
        ExportError: see there.
    """
    refuse_full_disk([DiskNeed(cache, nbytes, "the download", _CACHE_REMEDY), *besides])


def _refusal(disk: Disk, needs: Sequence[DiskNeed]) -> str:
    parts = " and ".join(f"{amount(need.nbytes)} for {need.purpose} in {need.folder}" for need in needs)
    remedies = ", or ".join(dict.fromkeys(need.remedy for need in needs))
    return (
        f"the disk is too full: the export needs {parts}, and {amount(disk.free)} are free. "
        f"Free {amount(_total(needs) - disk.free)} more, or {remedies}."
    )


def _total(needs: Sequence[DiskNeed]) -> int:
    return sum(need.nbytes for need in needs)


def amount(nbytes: int) -> str:
    """Bytes for a message, with two or three digits."""
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{max(1, round(nbytes / 1e6))} MB"
