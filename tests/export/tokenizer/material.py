"""Texts that are hard to tokenize, expected ids from other libraries, and checkpoints with tokenizer files."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from edgegen.bundle.manifest import Source
from edgegen.tokenizer import Tokenizer
from edgegen_export.checkpoint import Checkpoint, Listing
from edgegen_export.tokenizer.files import tokenizer_files

CHATS = (
    "<s>Hello</s> <s> x",
    "<|user|>\n hi <|end|>\n\n<|assistant|> x",
    "<|im_start|>system\nYou are<|im_end|>\n<tool_call>",
    "<|endoftext|>a <|endoftext|>",
    "<start_of_turn>user\nhi<end_of_turn>\n",
    "[PAD] <pad> the lighthouse Größe <extra_id_3>",
    "",
    " a",
    "a\tb\t\tc",
    "é Café",
)


def golden_cases(data: Path, name: str) -> list[tuple[str, list[int]]]:
    """llama.cpp's own test texts of one vocabulary, and their ids without special tokens."""
    folder = data / "tokenizers" / "ggml-vocab"
    texts = (folder / f"ggml-vocab-{name}.gguf.inp").read_text("utf-8").split("\n__ggml_vocab_test__\n")
    lines = (folder / f"ggml-vocab-{name}.gguf.out").read_text("utf-8").split("\n")
    return [(text, [int(word) for word in line.split()]) for text, line in zip(texts, lines, strict=True)]


def texts(data: Path, name: str = "llama-spm") -> list[str]:
    return [*(text for text, _ in golden_cases(data, name)), *CHATS]


def transformersjs_cases(data: Path, file: str, model: str) -> list[dict[str, Any]]:
    """Text, tokens, ids and decoded text of transformers.js's tests of one tokenizer."""
    golden = json.loads((data / "tokenizers" / "goldens" / f"transformersjs_{file}.json").read_text("utf-8"))
    return list(golden[model].values())


def write_folder(
    folder: Path,
    source: Path,
    names: Iterable[str],
    edits: Mapping[str, Mapping[str, Any]] | None = None,
    **config: Any,
) -> Path:
    """A folder with some of the files of ``source``, keys of its JSON files changed (``...`` removes one)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copyfile(source / name, folder / name)
    for name, changes in (edits or {}).items():
        present: dict[str, Any] = json.loads((folder / name).read_bytes()) if (folder / name).exists() else {}
        content = {key: value for key, value in {**present, **changes}.items() if value is not ...}
        (folder / name).write_text(json.dumps(content), "utf-8")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def files_of(folder: Path, warn: Callable[[str], None] = lambda _: None) -> dict[str, bytes]:
    """The bundle's tokenizer files made from the folder's."""
    config = json.loads((folder / "config.json").read_bytes())
    return tokenizer_files(Checkpoint(Listing.read(folder), Source("folder", folder.name), config, {}), warn)


def load(files: Mapping[str, bytes], folder: Path) -> Tokenizer:
    """The runtime's tokenizer of a bundle's files."""
    path = folder / "made.json"
    path.write_bytes(files["tokenizer.json"])
    return Tokenizer.from_file(path)
