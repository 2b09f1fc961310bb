"""Weight files of a checkpoint, found by name alone: one rule for a folder and a hub repository."""

import codecs
import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import cast

from edgegen.bundle.checkpoint_place import GGUF, gguf_parts, without_part
from edgegen.errors import CheckpointError, did_you_mean, quoted, refuse_any
from edgegen.system import is_portable, name_clashes, read_regular

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_PICKLE = "adapter_model.bin"
PREFERRED = "Q4_K_M"
"""The quantization that is taken of a repository with several GGUF files, as llama.cpp and ollama do."""
_GGUF = re.compile(r"(?!.*mmproj)[^/]*\.gguf", re.IGNORECASE)  # mmproj: the part of a model that sees pictures


def find_weights(names: Collection[str]) -> str | None:
    """The safetensors file, or the index of the shards, among the names of a folder; else None."""
    for name in (WEIGHTS, WEIGHTS_INDEX):
        if name in names:
            return name
    others = safetensors_names(names)
    return others[0] if len(others) == 1 else None


def ignored_weights(names: Collection[str]) -> str | None:
    """Say what :func:`find_weights` passes over, and why that may be wrong; None if it passes over nothing."""
    if not {WEIGHTS, WEIGHTS_INDEX} <= set(names):
        return None
    return (
        f"the weights are read from {WEIGHTS}, and {WEIGHTS_INDEX} and its shards are left out: "
        f"if {WEIGHTS} is a stray file, take it away"
    )


def safetensors_names(names: Collection[str]) -> list[str]:
    """The names that may be whole weights: safetensors files at the top, adapters apart."""
    return sorted(
        name for name in names if name.endswith(".safetensors") and "/" not in name and name != ADAPTER_WEIGHTS
    )


def find_gguf(names: Collection[str], wanted: str | None, where: str, *, preferred: str | None = None) -> str | None:
    """The GGUF file to read among ``names``: the wanted one, else the only one, where safetensors do not serve.

    ``wanted``: its name, or its quantization, such as Q4_K_M; ``preferred``: the quantization to take of several, where
    none is wanted. Of a split file it is the first part. Raises ``CheckpointError`` when the wanted one is not there,
    or when there are several to choose from.
    """
    if wanted is None and (find_weights(names) or safetensors_names(names)):
        return None
    found = sorted({gguf_parts(name)[0] for name in names if _GGUF.fullmatch(name.rpartition("/")[2])})
    if wanted is None:
        if len(found) > 1 and preferred and len(fitting := _of_quantization(found, preferred)) == 1:
            return fitting[0]
        if len(found) > 1:
            raise CheckpointError(
                f"{where} holds {len(found)} GGUF files, choose one with --gguf-file: {listed(found, len(found))}"
            )
        return found[0] if found else None
    if wanted not in names and not is_gguf_name(wanted):
        return _one_of_quantization(found, wanted, where)
    missing = [part for part in gguf_parts(wanted) if part not in names]
    if missing == [wanted]:
        held = f"; it holds {listed(found)}" if found else " and no other GGUF file"
        raise CheckpointError(f"{where} has no file {quoted(wanted)}{did_you_mean(wanted, found)}{held}")
    if missing:
        raise CheckpointError(f"{where} lacks parts of {wanted}: {listed(missing)}")
    return gguf_parts(wanted)[0]


def is_gguf_name(wanted: str) -> bool:
    """Whether this is the name of a GGUF file, and not of a quantization."""
    return wanted.lower().endswith(GGUF)


def _one_of_quantization(found: Sequence[str], wanted: str, where: str) -> str:
    """The one file of that quantization.

    Raises ``CheckpointError`` when there is none, or several.
    """
    if not found:
        raise CheckpointError(f"{where} has no GGUF file, so none in {quoted(wanted)}: leave that out")
    fitting = _of_quantization(found, wanted)
    if not fitting:
        held = f"it holds {listed(found, len(found))}"
        raise CheckpointError(f"{where} has no GGUF file in {quoted(wanted)}; {held}")
    if len(fitting) > 1:
        raise CheckpointError(f"{where} has {len(fitting)} GGUF files in {wanted}, give a name: {listed(fitting)}")
    return fitting[0]


def _of_quantization(found: Sequence[str], wanted: str) -> list[str]:
    """The files that have the quantization as a part of their names."""
    part = re.compile(rf"(?:^|[-._/]){re.escape(wanted)}(?=$|[-./])", re.IGNORECASE)
    return [name for name in found if part.search(without_part(name[: -len(GGUF)]))]


def read_index(path: Path) -> dict[str, str]:
    """The weight map of an index file: tensor name → shard name.

    Raises ``CheckpointError``, listing every problem, when it is not JSON of that form, or when a shard is no plain
    path inside the folder or two of them are one file on some systems.
    """
    index = read_json_object(path)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: there is no weight_map that names the shards")
    placed = cast(dict[str, object], weight_map)
    problems = [
        f"{shard!r} is not the name of a shard in the folder"
        for shard in sorted({s if isinstance(s, str) else repr(s) for s in placed.values() if not _is_inside(s)})
    ]
    if not problems:
        names = name_clashes(cast(dict[str, str], placed).values())
        problems = [f"{first!r} and {second!r} are one file where case makes no difference" for first, second in names]
    refuse_any(problems, CheckpointError, f"{path}: ")
    return cast(dict[str, str], placed)


def _is_inside(shard: object) -> bool:
    if not isinstance(shard, str) or not shard.endswith(".safetensors"):
        return False
    return is_portable(str(PurePosixPath(shard)))


def read_json_object(path: Path) -> dict[str, object]:
    """The object in a JSON file. Raises ``CheckpointError`` with the position of what is malformed."""
    try:
        value: object = json.loads(without_mark(read_regular(path), str(path)).decode())
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


_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # before UTF-16's, which it begins with
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def without_mark(data: bytes, name: str) -> bytes:
    """The contents of a text file without a byte order mark.

    Raises:
        CheckpointError: the file is UTF-16 or UTF-32.
    """
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)
    if encoding is None and b"\0" in data[:2]:  # what follows an ASCII character, or precedes it, in UTF-16
        encoding = "UTF-16"
    if encoding is not None:
        raise CheckpointError(f"{name} is {encoding}: save it as UTF-8")
    return data.removeprefix(codecs.BOM_UTF8)
