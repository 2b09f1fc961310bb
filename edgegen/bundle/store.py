"""BundleStore: finds, lists and removes bundles by name, under ``EDGEGEN_HOME`` and in the package itself."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.checkpoint_place import GGUF, checkpoint_at
from edgegen.bundle.hub_name import is_hub_address
from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.bundle.store_folders import DEFAULT_MODEL, EMBEDDED, store_root
from edgegen.errors import BundleError, BundleNotFoundError, UsageError, did_you_mean, quoted
from edgegen.system import (
    expand_user,
    is_frozen,
    is_portable,
    path_too_long,
    remove_folder,
    retry_in_use,
)

_REMOVED = re.compile(r"\..+\.removed-\d+(?:-\d+)?")
"""Name of the remains of a bundle whose files were in use when it was removed."""


class Listed(NamedTuple):
    """An entry of the store: its bundle, or why it cannot be read."""

    name: str
    path: Path
    bundle: Bundle | None
    problem: str | None = None


class BundleStore:
    """Names → folders. A name is a folder of ``root``; the embedded bundle's name is always known."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or store_root()

    def __repr__(self) -> str:
        return f"BundleStore({str(self.root)!r})"

    def path(self, name: str) -> Path:
        """The folder of the bundle ``name``, existing or not.

        Raises:
            UsageError: not a name.
        """
        if not is_portable(name) or "/" in name or name.startswith("."):
            raise UsageError(f"{quoted(name)} cannot be a bundle's name: give a plain name or a path.")
        return self.root / name

    def resolve(self, reference: str | Path) -> Path:
        """The folder that a name or a path means; a path wins where both exist.

        Raises:
            BundleNotFoundError: neither; the nearest name is suggested.
        """
        folder = expand_user(Path(reference))
        if (folder / MANIFEST_NAME).is_file():
            return folder
        name = str(reference)
        if is_portable(name) and (self.root / name / MANIFEST_NAME).is_file():
            return self.root / name
        if name == DEFAULT_MODEL and EMBEDDED.is_dir():
            return EMBEDDED
        if problem := _no_bundle(folder, reference):
            raise BundleNotFoundError(problem)
        if name == DEFAULT_MODEL and is_frozen():
            raise BundleNotFoundError(
                "this app was frozen without the embedded model: add `--collect-data edgegen` to PyInstaller's "
                "command, or load a bundle that the app carries by its path."
            )
        if problem := path_too_long(folder / MANIFEST_NAME):
            raise BundleNotFoundError(f"{problem}.")
        known = [entry.name for entry in self]
        raise BundleNotFoundError(
            f"no bundle named or at {quoted(name)}{did_you_mean(name, known)}; `edgegen list` shows the names, "
            "`edgegen pull NAME` or `edgegen export CHECKPOINT` makes one."
        )

    def __iter__(self) -> Iterator[Listed]:
        """Every entry by name, unreadable ones included, the embedded one first.

        What was in use when its bundle was removed is removed now, if it can be.
        """
        self._sweep()
        if EMBEDDED.is_dir():
            yield _listed(DEFAULT_MODEL, EMBEDDED)
        if self.root.is_dir():
            for path in sorted(self.root.iterdir()):
                if not path.name.startswith(".") and (path / MANIFEST_NAME).is_file():  # remains of a removal
                    yield _listed(path.name, path)

    def require(self, name: str) -> Path:
        """The folder of the bundle ``name`` of the store; a path, or the embedded one, is refused.

        Raises:
            BundleNotFoundError: no such name in the store.
        """
        path = self.path(name)
        if not (path / MANIFEST_NAME).is_file():
            embedded = " (the embedded one cannot be removed)" if name == DEFAULT_MODEL else ""
            known = [entry.name for entry in self if entry.path != EMBEDDED]
            raise BundleNotFoundError(f"no bundle named {name!r} in {self.root}{embedded}{did_you_mean(name, known)}.")
        return path

    def remove(self, name: str) -> Path:
        """Delete the bundle ``name`` of the store, and return where it was.

        Raises:
            BundleNotFoundError: no such name in the store.
            BundleError: it is still in use (Windows): it is whole, or it is gone and files that are in use remain,
                until the next removal or listing finds them free.
        """
        self._sweep()
        path = self.require(name)
        try:
            if path.is_symlink():
                path.unlink()  # what it leads to is not the store's
                return path
            removed = self._unused(f".{name}.removed-{os.getpid()}")
            retry_in_use(lambda: path.rename(removed))  # from here on there is no such bundle, whatever happens
        except OSError as error:
            raise BundleError(
                f"{path} cannot be removed: {error.strerror or error}; if it is still in use, end what runs it, and "
                "try again."
            ) from error
        with suppress(OSError):
            (removed / MANIFEST_NAME).unlink()
        if error := remove_folder(removed, at_exit=True):
            raise BundleError(
                f"{name} is removed, but files of it stay in {removed}: {error.strerror or error}; if they are still "
                "in use, end what runs it, and `edgegen list` removes them too."
            ) from error
        return path

    def _sweep(self) -> None:
        """Delete what remains of removed bundles, but for what is still in use."""
        with suppress(OSError):
            for path in self.root.iterdir():
                if _REMOVED.fullmatch(path.name):
                    remove_folder(path, ())

    def _unused(self, name: str) -> Path:
        """A path of this name, or with a number after it, where there is nothing."""
        path, number = self.root / name, 0
        while os.path.lexists(path):
            number += 1
            path = self.root / f"{name}-{number}"
        return path


def _no_bundle(path: Path, reference: str | Path) -> str | None:
    """Why what a reference names is no bundle, and what to do; None where it names nothing that is known."""
    if is_hub_address(str(reference)):
        return f"{reference} is a model of the hub: run `edgegen pull {reference}`, and give the name that it makes."
    if checkpoint_at(path) is not None:
        kind = "a folder, but no bundle: it looks like a checkpoint" if path.is_dir() else "a GGUF file, not a bundle"
        return (
            f"{path} is {kind}: run `edgegen export {reference}` first, and give the bundle's name, or `edgegen run "
            f"{reference}`."
        )
    try:
        if path.is_dir():
            return f"{path} is a folder, but no bundle: it has no {MANIFEST_NAME}."
        if path.is_file():
            folder = path.parent
            there = f", {folder}, with `edgegen export {folder}`" if checkpoint_at(folder) else ""
            return (
                f"{path} is a file that edgegen does not run: give a GGUF file, or the folder of a checkpoint{there}."
            )
        if path.suffix.lower() == GGUF:
            beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
            return f"there is no file {quoted(str(reference))}{did_you_mean(path.name, beside)}."
    except (OSError, ValueError):
        pass
    return None


def _listed(name: str, path: Path) -> Listed:
    try:
        return Listed(name, path, Bundle.open(path))
    except BundleError as error:
        return Listed(name, path, None, str(error))
