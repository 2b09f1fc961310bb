"""GGUF metadata as llama.cpp's converter writes it for a tokenizer, made from the tokenizer's files."""

import json
from pathlib import Path
from typing import Any

from tests.export.tokenizer.sentencepieces import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    import_sentencepiece,
)

GGML = "tokenizer.ggml"


def metadata_of(kind: str, pre: str | None, rows: list[tuple[str, float, int]], **ids: int) -> dict[str, Any]:
    """Metadata of tokens (text, score, type) and of the ids of ``bos``, ``eos``, ``unknown`` and ``padding``."""
    values: dict[str, Any] = {
        f"{GGML}.model": kind,
        f"{GGML}.tokens": [text for text, _, _ in rows],
        f"{GGML}.token_type": [kind for _, _, kind in rows],
        **{f"{GGML}.{name}_token_id": token_id for name, token_id in ids.items()},
    }
    return values | ({f"{GGML}.scores": [score for _, score, _ in rows]} if pre is None else {f"{GGML}.pre": pre})


def byte_level_metadata(tokenizer: Path, pre: str, *, size: int = 0, **ids: int) -> dict[str, Any]:
    """Metadata of a byte-level ``tokenizer.json``, padded with unused tokens to ``size``."""
    content = json.loads(tokenizer.read_bytes())
    text_of = {i: text for text, i in content["model"]["vocab"].items()}
    added = {token["id"]: token for token in content["added_tokens"]}
    rows: list[tuple[str, float, int]] = []
    for i in range(max(size, max({*text_of, *added}) + 1)):
        if i in added:
            rows.append((added[i]["content"], 0.0, CONTROL if added[i]["special"] else USER_DEFINED))
        else:
            rows.append((text_of.get(i, f"[PAD{i}]"), 0.0, NORMAL if i in text_of else UNUSED))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["model"]["merges"]]
    return metadata_of("gpt2", pre, rows, **ids) | {f"{GGML}.merges": merges}


def sentencepiece_metadata(model: bytes, added: dict[int, dict[str, Any]] | None = None, **ids: int) -> dict[str, Any]:
    """Metadata of a SentencePiece model as the library reads it, with the added tokens of a tokenizer_config.json."""
    library: Any = import_sentencepiece().SentencePieceProcessor(model_proto=model)
    added = added or {}
    rows: list[tuple[str, float, int]] = []
    for i in range(max(library.get_piece_size(), *(token_id + 1 for token_id in added), 0)):
        if i in added:
            text = added[i]["content"]
            special = added[i].get("special", False)
            rows.append((text if special else text.replace("▁", " "), -1000.0, CONTROL if special else USER_DEFINED))
            continue
        if i >= library.get_piece_size():
            rows.append((f"[PAD{i}]", -10000.0, UNUSED))
            continue
        tests = ((UNKNOWN, library.is_unknown), (CONTROL, library.is_control), (UNUSED, library.is_unused))
        kind = next((kind for kind, holds in (*tests, (BYTE, library.is_byte)) if holds(i)), NORMAL)
        rows.append((library.id_to_piece(i), library.get_score(i), kind))
    return metadata_of("llama", None, rows, **ids)
