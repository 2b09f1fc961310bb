"""Checkpoint: a model's folder, opened: config parsed, tensors described, nothing read."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from edgegen.bundle.manifest import Source
from edgegen.errors import CheckpointError, UsageError, did_you_mean, one_or_list, quoted, refuse_any
from edgegen_export.checkpoint import hub
from edgegen_export.checkpoint.gguf import open_gguf, original_tensors, read_original
from edgegen_export.checkpoint.listing import Listing, ReadListing
from edgegen_export.checkpoint.quantization_config import MODELOPT_FILE, with_modelopt_settings
from edgegen_export.checkpoint.refusal import adapter_refusal, weights_refusal
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.checkpoint.weight_files import (
    ADAPTER_CONFIG,
    find_gguf,
    find_weights,
    gguf_parts,
    ignored_weights,
    read_index,
    read_json_object,
)
from edgegen_export.tensors.lazy import LazyTensor

_GGUF_SUFFIX = ".gguf"
_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A model in a local folder (fetched there, when it came from the hub), or in one GGUF file.

    ``listing``: the folder; or the GGUF file and no names, where nothing else belongs to it. ``gguf``: the name of the
    GGUF file that holds the weights; ``metadata``: what it says, as plain Python values by key; config and tensors are
    the original's. ``stand_ins``: files that take the place of those of the same name in the folder; None hides one.
    ``unread_head``: why the file's multi-token prediction head is not among the tensors, where it is not.
    """

    listing: Listing = field(repr=False)
    source: Source
    config: dict[str, Any]
    tensors: Mapping[str, LazyTensor] = field(repr=False)
    gguf: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    stand_ins: Mapping[str, Path | None] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    unread_head: str = ""

    @classmethod
    def open(
        cls,
        source: str,
        *,
        revision: str | None = None,
        gguf_file: str | None = None,
        progress: Callable[[str], None] = lambda _: None,
        check_config: Callable[[Mapping[str, Any]], object] = lambda _: None,
        check_download: hub.CheckDownload = lambda _folder, _nbytes: None,
        on_download: hub.OnDownload = lambda _file, _sha256, _done, _total: None,
        read_listing: ReadListing = Listing.read,
    ) -> "Checkpoint":
        """Open a local folder or GGUF file, or a hub id (``gpt2``, ``org/name``) at a revision; what exists wins.

        ``gguf_file`` names the GGUF file of a folder or repository that is wanted; without it, the only one is taken
        where there are no safetensors. Nothing beside a GGUF file that is itself the source belongs to it.
        ``progress`` is told in a few words what is being fetched. ``check_config`` sees the config before any weight
        is fetched or opened; what it raises ends the opening. So does ``check_download``, which hears the hub's cache
        folder and how many bytes of weights are to be downloaded into it. ``on_download`` hears how
        many bytes of a large file are there. ``read_listing`` lists a local folder, once.
        Raises ``CheckpointError`` (``HubError`` when the hub is the reason) unless there is a config and weights that
        belong together, and ``UsageError`` for the revision of a folder.
        """
        path = existing_place(source)
        if path is None:
            snapshot = hub.fetch(source, revision, gguf_file, progress, check_config, check_download, on_download)
            origin = Source("hub", source, snapshot.revision)
            return cls._in(snapshot.listing, snapshot.gguf, origin, check_config)
        if revision is not None:
            raise UsageError(f"{source} is local and has no revision {revision!r}: leave --revision out")
        origin = Source("folder", path.resolve().name)
        if path.is_file():
            if gguf_file is not None:
                raise UsageError(f"{source} is a GGUF file itself: leave --gguf-file out")
            return cls._in(Listing(path), "", origin, check_config)
        listing = read_listing(path)
        parts = {part for part in gguf_parts(gguf_file or "") if "/" in part and listing.file(part)}
        return cls._in(listing, find_gguf(listing.names | parts, gguf_file, str(path)), origin, check_config)

    @classmethod
    def _in(
        cls,
        listing: Listing,
        gguf_file: str | None,
        source: Source,
        check_config: Callable[[Mapping[str, Any]], object],
    ) -> "Checkpoint":
        """``gguf_file``: the file's name below the folder, empty where it is the source itself; None where the weights
        are safetensors."""
        if gguf_file is None:
            return cls._of_safetensors(listing, source, check_config)
        gguf = open_gguf(listing.folder / gguf_file)
        original = read_original(gguf)
        check_config(original.config)
        tensors = MappingProxyType(original_tensors(gguf, original))
        return cls(
            listing,
            source,
            original.config,
            tensors,
            gguf.path.name,
            MappingProxyType(gguf.metadata),
            unread_head=original.left_out,
        )

    @classmethod
    def _of_safetensors(
        cls, listing: Listing, source: Source, check_config: Callable[[Mapping[str, Any]], object]
    ) -> "Checkpoint":
        folder, names = listing.folder, listing.names
        if refusal := adapter_refusal(names, str(folder), folder / ADAPTER_CONFIG):
            raise CheckpointError(refusal)
        weights = find_weights(names)
        config = cast(dict[str, Any], read_json_object(folder / "config.json")) if "config.json" in names else None
        if config is not None:
            config = with_modelopt_settings(config, listing.file(MODELOPT_FILE))
            check_config(config)  # a model that cannot be exported needs no weights
        problems = [] if config is not None else [f"{folder} has no config.json"]
        if weights is None:
            problems.append(weights_refusal(names, str(folder), hub=False))
        if config is None or weights is None:
            raise CheckpointError(one_or_list(problems))
        is_index = weights.endswith(".json")
        tensors = _open_shards(listing, weights) if is_index else open_safetensors(folder / weights)
        return cls(listing, source, config, MappingProxyType(tensors))

    @property
    def path(self) -> Path:
        """The folder, or the GGUF file."""
        return self.listing.folder

    def file(self, name: str) -> Path | None:
        """The file of that name in the folder, or what stands in for it, or None."""
        return self.stand_ins[name] if name in self.stand_ins else self.listing.file(name)

    def files_below(self, folder: str, suffix: str) -> dict[str, Path]:
        """The files with this suffix in a folder of the folder, or what stands in for them, by their paths in it."""
        names = {*self.listing.below(folder, suffix), *(n for n in self.stand_ins if n.startswith(f"{folder}/"))}
        return {name: path for name in sorted(names) if (path := self.file(name))}

    @property
    def ignored_weights(self) -> str | None:
        """A sentence about weights beside those that are read, or None."""
        return None if self.gguf else ignored_weights(self.listing.names)


def _open_shards(listing: Listing, index: str) -> dict[str, LazyTensor]:
    """Every tensor of the shards that the index names; index and shards must say the same."""
    folder = listing.folder
    weight_map = read_index(folder / index)
    tensors: dict[str, LazyTensor] = {}
    problems: list[str] = []
    for shard in sorted(set(weight_map.values())):
        if listing.file(shard) is None:
            problems.append(f"shard {shard} is missing")
            continue
        try:
            found = open_safetensors(folder / shard)
        except CheckpointError as error:
            problems.append(str(error))
            continue
        expected = {name for name, place in weight_map.items() if place == shard}
        problems += [
            f"tensor {name!r} is not in {shard}, where the index has it" for name in sorted(expected - set(found))
        ]
        for name in sorted(set(found) - expected):
            place = weight_map.get(name)
            said = f"the index has it in {place}" if place else "the index does not name it"
            problems.append(f"tensor {name!r} is in {shard}, but {said}")
        tensors |= found
    refuse_any(problems, CheckpointError, f"{folder / index}: ")
    return tensors


def existing_place(source: str) -> Path | None:
    """The local folder or GGUF file that ``source`` names, or None when it reads as a hub id.

    Raises ``CheckpointError`` when it can be none of them.
    """
    try:
        path = Path(source).expanduser() if source.startswith("~") else Path(source)
        if source and path.is_dir():
            return path
        is_file = path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL, a home that is not known
        said = error.strerror if isinstance(error, OSError) else error  # its text has the path, and repeats it
        raise CheckpointError(f"{quoted(source)} is neither a folder nor a hub id: {said}") from error
    is_gguf = source.lower().endswith(_GGUF_SUFFIX)
    if is_file and source:
        if is_gguf:
            return path
        raise CheckpointError(f"{source} is a file: give the folder that it lies in, {path.parent}")
    could_be_id = "/" in source or not is_gguf
    if could_be_id and _HUB_ID.fullmatch(source) and len(source) <= 96 and "--" not in source and ".." not in source:
        return None
    if is_gguf:
        near = did_you_mean(path.name, _beside(path, files=True))
        raise CheckpointError(f"there is no GGUF file {quoted(source)}{near}")
    near = did_you_mean(path.name, _beside(path, files=False))
    raise CheckpointError(f"there is no folder {quoted(source)}{near}, and a hub id would be a name or org/name")


def _beside(path: Path, *, files: bool) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(path.parent) if entry.is_file() == files]
    except OSError:
        return []
