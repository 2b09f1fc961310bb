"""Which files of a checkpoint hold the weights, by name alone: one rule for a folder and a hub repository."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import cast

from edgegen.errors import CheckpointError, one_or_list

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_PICKLE = "adapter_model.bin"


def find_weights(names: Collection[str]) -> str | None:
    """The safetensors file, or the index of the shards, among the names of a folder; else None."""
    for name in (WEIGHTS, WEIGHTS_INDEX):
        if name in names:
            return name
    others = safetensors_names(names)
    return others[0] if len(others) == 1 else None


def safetensors_names(names: Collection[str]) -> list[str]:
    """The names that may be whole weights: safetensors files at the top, adapters apart."""
    return sorted(
        name for name in names if name.endswith(".safetensors") and "/" not in name and name != ADAPTER_WEIGHTS
    )


def read_index(path: Path) -> dict[str, str]:
    """The weight map of an index file: tensor name → shard name.

    Raises ``CheckpointError``, listing every fault, when it is not JSON of that form or a shard is no plain
    path inside the folder.
    """
    index = read_json_object(path)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: there is no weight_map that names the shards")
    placed = cast(dict[str, object], weight_map)
    faults = [
        f"{shard!r} is not the name of a shard in the folder"
        for shard in sorted({s if isinstance(s, str) else repr(s) for s in placed.values() if not _is_inside(s)})
    ]
    if faults:
        raise CheckpointError(f"{path}: {one_or_list(faults)}")
    return cast(dict[str, str], placed)


def _is_inside(shard: object) -> bool:
    if not isinstance(shard, str) or not shard.endswith(".safetensors") or "\\" in shard or "\0" in shard:
        return False
    path = PurePosixPath(shard)
    return not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0]


def read_json_object(path: Path) -> dict[str, object]:
    """The object in a JSON file. Raises ``CheckpointError`` with the position of what is malformed."""
    try:
        value: object = json.loads(path.read_bytes().decode())
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: a JSON object is expected, not {type(value).__name__}")
    return cast(dict[str, object], value)


def listed(names: Sequence[str], limit: int = 6) -> str:
    """Names for a message, the first few."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
