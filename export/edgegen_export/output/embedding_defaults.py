"""embedding_defaults(): how a checkpoint makes embeddings, by files of sentence-transformers or metadata of GGUF."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.bundle.embedding_defaults import EmbeddingDefaults, Pooling
from edgegen.errors import CheckpointError, one_or_list
from edgegen.system import read_regular_text
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.checkpoint.companions import MODULES, PROMPTS, TRANSFORMER
from edgegen_export.checkpoint.weight_files import read_json_object

_MODES: Mapping[str, Pooling] = {"mean": "mean", "mean_tokens": "mean", "lasttoken": "last",
                                 "weightedmean": "weightedmean", "weightedmean_tokens": "weightedmean"}  # fmt: skip
"""Pooling modes of sentence-transformers that are known here; a config's keys have ``pooling_mode_`` before them."""
_GGUF: Mapping[int, Pooling] = {1: "mean", 3: "last"}
_GGUF_NAMES = {2: "of the first token (cls)", 4: "of a reranker"}
_NO_POOLING = 0
_PACKAGE = "sentence_transformers."
_LEAVE_OUT = "leave --with-hidden out to export it for text alone"


def embedding_defaults(checkpoint: Checkpoint, warn: Callable[[str], object]) -> EmbeddingDefaults | None:
    """Read the checkpoint's settings of embeddings; None where it has none.

    ``warn`` hears of a prompt that sentence-transformers would put before each text.

    Raises:
        CheckpointError: its embeddings are made in a way that edgegen does not have, or its files are malformed.
    """
    if checkpoint.gguf and (found := _of_gguf(checkpoint.metadata)) is not None:
        return found
    path = checkpoint.file(MODULES)
    if path is None:
        return None
    if (prompts := checkpoint.file(PROMPTS)) and (prompt := _default_prompt(prompts)):
        warn(f"{PROMPTS} has a prompt before each text, which is not put there: begin texts with {prompt!r} yourself")
    return _of_modules(checkpoint, path)


def _of_gguf(metadata: Mapping[str, Any]) -> EmbeddingDefaults | None:
    key = f"{metadata.get('general.architecture')}.pooling_type"
    kind: object = metadata.get(key)
    if kind is None or kind == _NO_POOLING:
        return None
    if not isinstance(kind, int):
        raise CheckpointError(f"{key} = {shortened(kind)}: the number of a pooling is expected")
    pooling = _GGUF.get(kind)
    if pooling is None:
        named = f", that {_GGUF_NAMES[kind]}," if kind in _GGUF_NAMES else ""
        raise CheckpointError(f"{key} = {kind}: this pooling{named} is not supported: {_LEAVE_OUT}")
    return EmbeddingDefaults(pooling)


def _of_modules(checkpoint: Checkpoint, path: Path) -> EmbeddingDefaults:
    """Reads the pipeline of ``modules.json``: a transformer, a pooling, and a normalization or none."""
    problems, poolings, normalize = list[str](), list[Pooling](), False
    for name, folder in _modules(path):
        kind = name.rpartition(".")[2] if name.startswith(_PACKAGE) else ""
        if kind == "Pooling":
            poolings += _pooling(checkpoint, folder, problems)
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            problems.append(f"the module {name} ({folder or 'no folder'}) is not supported")
    if (settings := checkpoint.file(TRANSFORMER)) and read_json_object(settings).get("do_lower_case") is True:
        problems.append(f"{TRANSFORMER} has do_lower_case, which is not supported")
    if len(poolings) > 1:
        problems.append(f"several poolings, {' and '.join(poolings)}, are not supported")
    if problems:
        raise CheckpointError(f"{path}: {one_or_list(problems)}: {_LEAVE_OUT}")
    return EmbeddingDefaults(*poolings, normalize=normalize)


def _modules(path: Path) -> list[tuple[str, str]]:
    """The type and the folder of each module, in order.

    Raises:
        CheckpointError: the file is no list of modules.
    """
    try:
        content: object = json.loads(read_regular_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    found = list[tuple[str, str]]()
    for module in cast(list[object], content) if isinstance(content, list) else [content]:
        fields = cast(dict[str, object], module) if isinstance(module, dict) else {}
        name, folder = fields.get("type"), fields.get("path")
        if not isinstance(name, str) or not isinstance(folder, str) or (folder and not re.fullmatch(r"[\w-]+", folder)):
            raise CheckpointError(f"{path}: a list of modules, each with a type and the name of a folder, is expected")
        found.append((name, folder))
    return found


def _pooling(checkpoint: Checkpoint, folder: str, problems: list[str]) -> list[Pooling]:
    """The poolings of a module, whose vectors would be put one after the other; those not known are problems."""
    name = f"{folder}/config.json"
    path = checkpoint.file(name)
    if path is None:
        problems.append(f"{name} is missing")
        return []
    config = read_json_object(path)
    said: object = config.get("pooling_mode")
    modes = [said] if isinstance(said, str) else cast(list[object], said) if isinstance(said, list) else []
    modes = [part for mode in modes for part in str(mode).split("+")]
    prefix = "pooling_mode_"
    modes = modes or [key.removeprefix(prefix) for key, on in config.items() if key.startswith(prefix) and on is True]
    problems += [f"the pooling {mode} of {name} is not supported" for mode in modes if mode not in _MODES]
    problems += [] if modes else [f"{name} has no pooling mode"]
    return [_MODES[mode] for mode in modes if mode in _MODES]


def _default_prompt(path: Path) -> str:
    config = read_json_object(path)
    prompts, name = config.get("prompts"), config.get("default_prompt_name")
    found = cast(dict[str, object], prompts).get(str(name)) if isinstance(prompts, dict) and name is not None else None
    return found if isinstance(found, str) else ""
