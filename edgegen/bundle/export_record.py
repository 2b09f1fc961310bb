"""Records of which checkpoint on this machine a bundle of the store was exported from, so that it is found again.

A checkpoint is known again by the sizes and times of its files at their place, which costs nothing; moved, copied or
touched, by the hash of its contents. Records lie below ``EDGEGEN_HOME``, one for each bundle, and hold only as long as
the bundle is the one that was exported.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.checkpoint_place import GGUF, gguf_parts
from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.bundle.store_folders import store_root
from edgegen.errors import BundleError
from edgegen.strict_json import decode
from edgegen.system import home_folder, open_regular, read_regular_text, replace_text

_READ = frozenset({".safetensors", ".json", ".jinja", ".model", ".txt", ".tiktoken", GGUF})
"""Suffixes of the files that an export reads."""

_BELOW = ("additional_chat_templates", "1_Pooling")
"""Folders of a checkpoint's folder that it reads too."""

_LARGEST = 1_000_000
"""Bytes of a record that is read."""


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """A bundle of the store and its checkpoint.

    ``digest``: the bundle's. ``place``: the checkpoint's path then; ``files``: its files' sizes and times of change in
    nanoseconds, by name; ``content``: the hash of what is in them.
    """

    bundle: str
    digest: str
    scheme: str
    place: str
    files: dict[str, tuple[int, ...]]
    content: str

    @property
    def sizes(self) -> list[int]:
        """The files' sizes, in the order of their names."""
        return [self.files[name][0] for name in sorted(self.files)]


class CheckpointFiles:
    """The files of the checkpoint at ``place`` as they are now."""

    def __init__(self, place: Path) -> None:
        """Raises ``OSError`` when they cannot be read."""
        self.place = place.resolve()
        self._paths = dict(_files_of(self.place))
        self.stamps = {name: _stamp(path) for name, path in self._paths.items()}

    @property
    def sizes(self) -> list[int]:
        return [self.stamps[name][0] for name in sorted(self.stamps)]

    @property
    def unchanged(self) -> bool:
        """Whether they are still as they were when they were listed."""
        with suppress(OSError):
            return {name: _stamp(path) for name, path in _files_of(self.place)} == self.stamps
        return False

    @cached_property
    def content(self) -> str:
        """The hash of all their bytes; of a folder, of their names too."""
        digest = hashlib.sha256()
        for name in sorted(self._paths):
            with open_regular(self._paths[name]) as file:
                digest.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return digest.hexdigest()

    def exports(self) -> Iterator[ExportRecord]:
        """The records of bundles that are there and were exported from what is in these files.

        The record of a checkpoint that was moved or touched is brought up to date.
        """
        found = [record for record in _records() if record.sizes == self.sizes]
        same = [one for one in found if one.place == str(self.place) and one.files == self.stamps]
        for record in same or found:
            if same or record.content == self.content:
                if not same:
                    with suppress(OSError):
                        _write(replace(record, place=str(self.place), files=self.stamps))
                yield record

    def remember(self, bundle: Bundle, scheme: str) -> None:
        """Record that ``bundle``, of the store, was exported from these files, unless they have changed meanwhile.

        A home that cannot be written costs another export, no more.
        """
        with suppress(OSError):
            record = ExportRecord(bundle.path.name, bundle.digest, scheme, str(self.place), self.stamps, self.content)
            if self.unchanged:
                _write(record)


def exported_at(place: Path, scheme: str) -> str | None:
    """The bundle that was exported in ``scheme`` from what lay at ``place`` then, whatever lies there now."""
    found = (record for record in _records() if record.place == str(place.resolve()) and record.scheme == scheme)
    return next((record.bundle for record in found), None)


def _files_of(place: Path) -> Iterator[tuple[str, Path]]:
    """The files by name; those of a GGUF file, which may be called something else elsewhere, by number."""
    if not place.is_dir():
        yield from ((str(n), place.with_name(part)) for n, part in enumerate(gguf_parts(place.name)))
        return
    for folder in (place, *(place / name for name in _BELOW)):
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if path.suffix.lower() in _READ and path.is_file():
                    yield path.relative_to(place).as_posix(), path


def _stamp(path: Path) -> tuple[int, ...]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _folder() -> Path:
    return home_folder() / "exported"


def _records() -> Iterator[ExportRecord]:
    """All that can be read and whose bundle is still the one that was exported."""
    folder = _folder()
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        with suppress(OSError, ValueError, BundleError):
            if path.stat().st_size > _LARGEST:
                continue
            problems = list[str]()
            raw: Any = json.loads(read_regular_text(path))
            record: ExportRecord = decode(ExportRecord, raw, path.name, problems)
            there = store_root() / path.stem
            known = not problems and record.bundle == path.stem and (there / MANIFEST_NAME).is_file()
            if known and Bundle.open(there).digest == record.digest:
                yield record


def _write(record: ExportRecord) -> None:
    content: Mapping[str, object] = asdict(record)
    replace_text(_folder() / f"{record.bundle}.json", json.dumps(content))
