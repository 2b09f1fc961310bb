"""Control groups (cgroups) of Linux, versions 1 and 2: the folders with the limits of this process's container."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from edgegen.system.source import Source

_ROOT = "/sys/fs/cgroup"


class Group(NamedTuple):
    """One control group: its folder, and which version's files it has."""

    source: Source
    folder: str
    version: Literal[1, 2]

    def read(self, name: str) -> str | None:
        """The text of one of its files; None where it is not there."""
        return self.source.read(f"{self.folder}/{name}")


def groups_of(source: Source, controller: Literal["cpu", "memory"]) -> Iterator[Group]:
    """This process's groups and all above them: limits of each hold.

    In a container, what it sees as the root is its own group, and the path that the kernel tells may lie outside of it:
    then only the root is found, which is right.
    """
    v1, v2 = list[str](), ["/"]
    for line in (source.read("/proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            v2.append(path)
        elif controller in controllers.split(","):
            v1.append(path)
    for folder in _with_parents(v2):
        yield Group(source, f"{_ROOT}{folder}", 2)
    for folder in _with_parents(v1 or ["/"]):
        yield Group(source, f"{_ROOT}/{controller}{folder}", 1)  # other mounts are linked under this name


def _with_parents(paths: list[str]) -> list[str]:
    """Each path and all above it, once, without the last slash; the root is empty."""
    folders = dict[str, None]()
    for path in paths:
        pure = PurePosixPath(path)
        if ".." in pure.parts:  # outside of what this process sees
            pure = PurePosixPath("/")
        folders.update(dict.fromkeys(str(one).rstrip("/") for one in (pure, *pure.parents) if str(one).startswith("/")))
    return [*folders]
