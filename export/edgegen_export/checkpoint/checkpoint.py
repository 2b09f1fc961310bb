"""Checkpoint: a model's folder, opened: config parsed, tensors described, nothing read."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from edgegen.errors import CheckpointError, UsageError, did_you_mean, one_or_list
from edgegen.manifest import Source
from edgegen_export.checkpoint import hub
from edgegen_export.checkpoint.lazy import LazyTensor
from edgegen_export.checkpoint.refusal import adapter_refusal, weights_refusal
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.checkpoint.weight_files import find_weights, read_index, read_json_object

_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A model in a local folder (fetched there, when it came from the hub).

    ``metadata``: what a GGUF file says of itself, empty for other checkpoints.
    """

    path: Path
    source: Source
    config: dict[str, Any]
    tensors: Mapping[str, LazyTensor] = field(repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def open(
        cls,
        source: str,
        *,
        revision: str | None = None,
        progress: Callable[[str], None] | None = None,
        check_config: Callable[[Mapping[str, Any]], object] | None = None,
    ) -> "Checkpoint":
        """Open a local folder, or a hub id (``gpt2``, ``org/name``) at a revision; an existing folder wins.

        ``progress`` is told in a few words what is being fetched. ``check_config`` sees the config before any weight
        is fetched or opened; what it raises ends the opening. Raises ``CheckpointError`` (``HubError``
        when the hub is the reason) unless there is a config and safetensors weights that hold together, and
        ``UsageError`` for the revision of a folder.
        """
        folder = _existing_folder(source)
        check = check_config or _accept
        if folder is None:
            snapshot = hub.fetch(source, revision, progress or _silent, check)
            return cls._in(snapshot.path, Source("hub", source, snapshot.revision), check)
        if revision is not None:
            raise UsageError(f"{source} is a local folder and has no revision {revision!r}: leave --revision out")
        return cls._in(folder, Source("folder", folder.resolve().name), check)

    @classmethod
    def _in(cls, folder: Path, source: Source, check_config: Callable[[Mapping[str, Any]], object]) -> "Checkpoint":
        try:
            names = {entry.name for entry in folder.iterdir()}
        except OSError as error:
            raise CheckpointError(f"{folder}: cannot be read: {error.strerror or error}") from error
        if refusal := adapter_refusal(names, str(folder)):
            raise CheckpointError(refusal)
        weights = find_weights(names)
        faults: list[str] = []
        if "config.json" not in names:
            faults.append(f"{folder} has no config.json")
        if weights is None:
            faults.append(weights_refusal(names, str(folder), hub=False))
        if weights is None or faults:
            raise CheckpointError(one_or_list(faults))
        config = cast(dict[str, Any], read_json_object(folder / "config.json"))
        check_config(config)
        is_index = weights.endswith(".json")
        tensors = _open_shards(folder, weights) if is_index else open_safetensors(folder / weights)
        return cls(folder, source, config, MappingProxyType(tensors))

    def file(self, name: str) -> Path | None:
        """The file of that name in the folder, or None."""
        path = self.path / name
        return path if path.is_file() else None


def _open_shards(folder: Path, index: str) -> dict[str, LazyTensor]:
    """Every tensor of the shards that the index names; index and shards must say the same."""
    weight_map = read_index(folder / index)
    tensors: dict[str, LazyTensor] = {}
    faults: list[str] = []
    for shard in sorted(set(weight_map.values())):
        if not (folder / shard).is_file():
            faults.append(f"shard {shard} is missing")
            continue
        try:
            found = open_safetensors(folder / shard)
        except CheckpointError as error:
            faults.append(str(error))
            continue
        expected = {name for name, place in weight_map.items() if place == shard}
        faults += [
            f"tensor {name!r} is not in {shard}, where the index has it" for name in sorted(expected - set(found))
        ]
        for name in sorted(set(found) - expected):
            place = weight_map.get(name)
            said = f"the index has it in {place}" if place else "the index does not name it"
            faults.append(f"tensor {name!r} is in {shard}, but {said}")
        tensors |= found
    if faults:
        raise CheckpointError(f"{folder / index}: {one_or_list(faults)}")
    return tensors


def _existing_folder(source: str) -> Path | None:
    """The local folder that ``source`` names, or None when it reads as a hub id; anything else is refused."""
    try:
        path = Path(source).expanduser() if source.startswith("~") else Path(source)
        if source and path.is_dir():
            return path
        is_file = path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL, a home that is not known
        raise CheckpointError(f"{source!r} is neither a folder nor a hub id: {error}") from error
    if is_file and source:
        raise CheckpointError(f"{source} is a file: give the folder that it lies in, {path.parent}")
    if _HUB_ID.fullmatch(source) and len(source) <= 96 and "--" not in source and ".." not in source:
        return None
    near = did_you_mean(path.name, _folders_beside(path))
    raise CheckpointError(f"there is no folder {source!r}{near}, and a hub id would be a name or org/name")


def _folders_beside(path: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(path.parent) if entry.is_dir()]
    except OSError:
        return []


def _silent(message: str) -> None:
    """No progress."""


def _accept(config: Mapping[str, Any]) -> None:
    """Any config will do."""
