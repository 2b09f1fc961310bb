"""Tiny checkpoints with a file that was changed, value by value or byte by byte."""

import copy
import json
import random
import shutil
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, cast

from tests.export.checkpoint.adapters import factors, write_lora
from tests.export.checkpoint.gguf_bytes import write_whole_llama
from tests.export.checkpoint.layouts import write_gpt2, write_llama
from tests.root import ROOT
from tests.runtime.bundle.mutations import mutated

HOSTILE: list[Any] = [
    *(None, True, 0, -1, 1, 3, 2**31, 2**63, 10**400, -(10**400), 0.5, -0.5, 1e308, 1e-320),
    *("", "a", "x" * 10_000, "\0", "../../etc/passwd", "\u202e", [], [0], [[]] * 50, {}, {"a": {}}, [1e30] * 8),
]
BESIDE = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json")

Sources = Mapping[Path, list[str]]
"""Checkpoints, and of each the files that are changed."""


def nodes(value: object) -> Iterator[tuple[Any, Any]]:
    """Every place in parsed JSON: the container, and the key or number."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = [*cast(dict[str, Any], value)]
    elif isinstance(value, list):
        keys = [*range(len(cast(list[Any], value)))]
    for key in keys:
        yield value, key
        yield from nodes(cast(Any, value)[key])


def changed_json(text: bytes, chance: random.Random) -> bytes:
    """One to three values replaced, taken out, or given another's name."""
    value = json.loads(text)
    for _ in range(chance.randint(1, 3)):
        places = [*nodes(value)][:20_000]
        if not places:
            break
        container, key = chance.choice(places)
        match chance.randrange(4):
            case 0:
                del container[key]
            case 1 if isinstance(key, str):
                container[str(chance.choice(HOSTILE))[:50]] = container.pop(key)
            case _:
                container[key] = copy.deepcopy(chance.choice(HOSTILE))
    return json.dumps(value).encode()


def changed_safetensors(data: bytes, chance: random.Random) -> bytes:
    """Another header: of other JSON, or with other bytes."""
    size = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + size]
    if chance.random() < 0.3:
        return mutated(data[: 8 + size], chance) + data[8 + size :]
    header = changed_json(header, chance)
    length = len(header) if chance.random() < 0.9 else chance.choice((0, 1, 2**40, 2**63, len(header) - 1))
    return length.to_bytes(8, "little") + header + data[8 + size :]


def changed(name: str, data: bytes, chance: random.Random) -> bytes:
    if name.endswith(".json") and chance.random() < 0.8:
        return changed_json(data, chance)
    if name.endswith(".safetensors"):
        return changed_safetensors(data, chance)
    return mutated(data, chance) if len(data) > 200 else mutated(data * (400 // len(data)), chance)


def write_sources(root: Path) -> Sources:
    stories = ROOT / "models" / "stories"
    write_gpt2(root / "gpt2", layout="original")
    write_llama(root / "llama")
    for name, file in product(("gpt2", "llama"), BESIDE):
        shutil.copy(stories / file, root / name / file)
    (root / "gguf").mkdir()
    write_whole_llama(root / "gguf" / "model.gguf")
    write_lora(root / "adapter", factors("base_model.model.transformer.h.0.attn.c_attn", 64, 192))
    folders = [root / name for name in ("gpt2", "llama", "gguf", "adapter")]
    return {folder: sorted(path.name for path in folder.glob("*.[jsg]*")) for folder in folders}


def change(sources: Sources, chance: random.Random) -> tuple[Path, bytes]:
    """A file of one of the checkpoints, and what it is changed to."""
    source = chance.choice(list(sources))
    path = source / chance.choice(sources[source])
    return path, changed(path.name, path.read_bytes(), chance)


def changed_copy(sources: Sources, target: Path, chance: random.Random) -> Path:
    """One of the checkpoints as ``target``, one of its files changed."""
    path, content = change(sources, chance)
    shutil.copytree(path.parent, target)
    (target / path.name).write_bytes(content)
    return target


def export_arguments(folder: Path) -> tuple[str, str | None]:
    """Return the source to export (the folder, its GGUF file, or the GPT-2 beside it) and its adapter."""
    if (folder / "adapter_config.json").exists():
        return str(folder.parent / "gpt2"), str(folder)
    file = folder / "model.gguf"
    return str(file if file.exists() else folder), None
