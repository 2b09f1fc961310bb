"""GGUF files put together byte by byte, so that any part of them can be wrong."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

U32, FLOAT, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


class Raw(NamedTuple):
    """A tensor as it is described: sizes in the file's order (columns first), type number, offset of its data."""

    name: str | bytes
    sizes: Sequence[int]
    type: int = 0
    offset: int = 0


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value(content: Any) -> bytes:
    """A value with its type before it."""
    if isinstance(content, bytes):  # as it is
        return content
    if isinstance(content, bool):
        return struct.pack("<IB", BOOL, content)
    if isinstance(content, int):
        return struct.pack("<II", U32, content)
    if isinstance(content, float):
        return struct.pack("<If", FLOAT, content)
    if isinstance(content, str):
        return struct.pack("<I", STRING) + text(content)
    items = [value(item) for item in content]
    kind = items[0][:4] if items else struct.pack("<I", U32)
    return struct.pack("<I", ARRAY) + kind + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)


def gguf_bytes(
    metadata: Mapping[str, Any] | Sequence[tuple[str | bytes, Any]],
    tensors: Sequence[Raw] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """A file; ``counts`` (of tensors, of keys) are the true ones unless given."""
    fields = list(metadata.items()) if isinstance(metadata, Mapping) else list(metadata)
    body = magic + struct.pack("<IQQ", version, *(counts or (len(tensors), len(fields))))
    body += b"".join(text(key) + value(content) for key, content in fields)
    for tensor in tensors:
        sizes = b"".join(struct.pack("<Q", size) for size in tensor.sizes)
        body += text(tensor.name) + struct.pack("<I", len(tensor.sizes)) + sizes
        body += struct.pack("<IQ", tensor.type, tensor.offset)
    return body + b"\0" * (-len(body) % alignment) + data


LLAMA_METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 16,
    "llama.embedding_length": 8,
    "llama.block_count": 1,
    "llama.feed_forward_length": 12,
    "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def write_llama(path: Path, tensors: Sequence[Raw] = (), data: bytes = b"", **changes: Any) -> Path:
    """A Llama with an embedding [3, 8] of 0 to 23 and whatever else; keys of ``changes`` without a value go."""
    metadata = {**LLAMA_METADATA, **{key.replace("__", "."): content for key, content in changes.items()}}
    metadata = {key: content for key, content in metadata.items() if content is not None}
    embedding = np.arange(24, dtype="<f4").tobytes()
    moved = [tensor._replace(offset=96 + tensor.offset) for tensor in tensors]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf_bytes(metadata, [Raw("token_embd.weight", (8, 3)), *moved], embedding + data))
    return path


_PIECES = ["<unk>", "<s>", "</s>", "▁", *"abcdefghijklmnopqrst"]
LETTERS: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": _PIECES,
    "tokenizer.ggml.scores": [-float(n) for n in range(len(_PIECES))],
    "tokenizer.ggml.token_type": [2, 3, 3, *[1] * (len(_PIECES) - 3)],
    "tokenizer.ggml.unknown_token_id": 0,
}
"""A tokenizer whose pieces are single letters."""


def write_whole_llama(path: Path, tokenizer: Mapping[str, Any] | None = None, seed: int = 0) -> Path:
    """A Llama of one layer with random weights, nothing missing but a ``tokenizer`` of 24 pieces."""
    width, wide = 16, 32
    square, up, down, norm = (width, width), (wide, width), (width, wide), (width,)
    shapes = {"token_embd": (24, width), "output_norm": norm, "blk.0.attn_norm": norm, "blk.0.ffn_norm": norm}
    shapes |= {f"blk.0.attn_{name}": square for name in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": up, "blk.0.ffn_up": up, "blk.0.ffn_down": down}
    rng, raws, data = np.random.default_rng(seed), list[Raw](), b""
    for name, shape in shapes.items():
        raws.append(Raw(f"{name}.weight", shape[::-1], offset=len(data)))
        data += rng.standard_normal(shape).astype("<f4").tobytes()  # each a multiple of the alignment
    sizes = {"llama.embedding_length": width, "llama.feed_forward_length": wide}
    path.write_bytes(gguf_bytes({**LLAMA_METADATA, **sizes, **(tokenizer or {})}, raws, data))
    return path
