"""Folders that a run of the tests makes once, whichever test needs one first: named by the hash of its inputs."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_folder: list[Path] = []


def keep_in(folder: Path) -> None:
    """Keep from now on what is made in ``folder``, which the workers of a run share."""
    folder.mkdir(exist_ok=True)
    _folder[:] = [folder]


def made_once(inputs: Any, target: Path, make: Callable[[Path], object]) -> Path:
    """Copy to ``target`` the folder that ``make`` writes, which ``inputs`` alone decide: JSON, or mappings.

    Two workers may both make the same: the first one's stays. Nothing is kept outside a run.
    """
    if not _folder:
        make(target)
        return target
    name = hashlib.sha256(json.dumps(inputs, sort_keys=True, default=dict).encode()).hexdigest()[:32]
    kept = _folder[0] / name
    if not kept.is_dir():
        begun = Path(tempfile.mkdtemp(dir=_folder[0]))
        make(begun)
        try:
            begun.rename(kept)
        except OSError:  # another worker was faster
            shutil.rmtree(begun)
    target.mkdir(parents=True, exist_ok=True)
    for file in os.scandir(kept):
        shutil.copyfile(file.path, target / file.name)
    return target
