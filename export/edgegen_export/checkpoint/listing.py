"""Listing: the file names in a checkpoint's folder, read once and handed on to every step of an export."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgegen.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Listing:
    """``names``: every entry of ``folder``; ``files``: the entries that are files."""

    folder: Path
    names: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    @classmethod
    def read(cls, folder: Path) -> "Listing":
        """List the names in a folder, once.

        Raises:
            CheckpointError: the folder cannot be read.
        """
        try:
            is_file = {entry.name: entry.is_file() for entry in folder.iterdir()}
        except NotADirectoryError:
            raise CheckpointError(
                f"{folder} is neither a folder nor a regular file: name a model's folder or file"
            ) from None
        except OSError as error:
            raise CheckpointError(f"{folder}: cannot be read: {error.strerror or error}") from error
        return cls(folder, frozenset(is_file), frozenset(name for name in is_file if is_file[name]))

    @classmethod
    def read_tree(cls, folder: Path) -> "Listing":
        """The files of the folders below ``folder`` too, by their paths from there."""
        files = frozenset(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        return cls(folder, files, files)

    def file(self, name: str) -> Path | None:
        """The file of this name, or None; one in a folder further down is looked up by itself."""
        path = self.folder / name
        return path if name in self.files or ("/" in name and path.is_file()) else None

    def below(self, name: str, suffix: str) -> list[str]:
        """The files with this suffix in a folder of that name, by their paths from here."""
        return sorted(f"{name}/{path.name}" for path in (self.folder / name).glob(f"*{suffix}") if path.is_file())


ReadListing = Callable[[Path], Listing]
