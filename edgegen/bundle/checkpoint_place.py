"""Checkpoints on this machine, told by names alone: a GGUF file, all parts of a split one, or a folder."""

import re
from contextlib import suppress
from pathlib import Path

from edgegen.system import expand_user

GGUF = ".gguf"
_CONFIGS = ("config.json", "adapter_config.json")
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_OF_PART = re.compile(r"-\d{5}-of-\d{5}\Z")
_MOST_PARTS = 10_000


def gguf_parts(name: str) -> list[str]:
    """All names of the split GGUF file that ``name`` is a part of, in order; ``name`` alone if it is not split."""
    match = _PART.fullmatch(name)
    count = int(match["count"]) if match else 0
    if match is None or not 1 <= int(match["number"]) <= count <= _MOST_PARTS:
        return [name]
    return [f"{match['stem']}-{i:05}-of-{count:05}{name[-5:]}" for i in range(1, count + 1)]


def without_part(stem: str) -> str:
    """The stem of a GGUF file's name without the number of a part."""
    return _OF_PART.sub("", stem)


def checkpoint_at(reference: str | Path) -> Path | None:
    """The GGUF file, of a split one the first part, or the folder that holds a checkpoint; None for anything else."""
    path = expand_user(Path(reference))
    with suppress(OSError, ValueError):
        if path.is_file() and path.suffix.lower() == GGUF:
            first = path.with_name(gguf_parts(path.name)[0])
            return first if first.is_file() else path
        if path.is_dir() and (
            any((path / name).is_file() for name in _CONFIGS)
            or any(one.suffix.lower() == GGUF for one in path.iterdir())
        ):
            return path
    return None
