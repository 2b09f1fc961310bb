"""llama.cpp through llama-cpp-python: Q8_0 or Q4_0 weights, its default f16 cache, its C API step by step.

It bypasses the Python classes of llama-cpp-python to measure llama.cpp's own speed. Flash attention is on, as in
llama.cpp by default; the variant "plain" is without it, as in llama-cpp-python's `Llama` by default. "q8-kv" and
"q4-kv" have a KV cache of Q8_0 and Q4_0, which flash attention alone can read.
"""

import ctypes
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.compare.peers.protocol import Ids, Logits, Peer, SteppedModel, run

PLAIN = "plain"
CACHE = "cache.json"
"""Beside a converted model: how many numbers it keeps of a token."""
KINDS = {"": "Q8_0", PLAIN: "Q8_0", "q8-kv": "Q8_0", "q4-kv": "Q8_0", "q4": "Q4_0"}
"""Quantization by variant."""
CACHES = {"q8-kv": ("GGML_TYPE_Q8_0", 34 / 32), "q4-kv": ("GGML_TYPE_Q4_0", 18 / 32)}
"""The KV cache's type by variant, where it is not the default, and bytes of a number: 32 have a scale of float16."""


class LlamaCppModel(SteppedModel):
    def __init__(self, path: Path, threads: int, context: int, variant: str) -> None:
        self._api = importlib.import_module("llama_cpp")
        name, self._cached_bytes = CACHES.get(variant, ("GGML_TYPE_F16", 2))
        cache = getattr(self._api, name)
        self._llama = self._api.Llama(
            model_path=str(path),
            n_ctx=context,
            n_batch=context,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=variant != PLAIN,
            type_k=cache,
            type_v=cache,
            verbose=False,
        )
        self._one: Any = self._llama.ctx
        self.loaded_kv_bytes = self._kv_bytes(path)
        self._context = self._one
        self._last: Ids = np.zeros(0, np.int64)
        self._length = 0

    def start(self, prompts: Ids) -> Ids:
        self._context = self._one if len(prompts) == 1 else self._room_for(len(prompts))
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), False)
        self._length = 0
        return self._next(prompts)

    def step(self) -> Ids:
        return self._next(self._last[:, None])

    def logits(self, ids: Ids) -> Logits:
        self.start(ids[None])
        return self._logits(-1).copy()

    def _kv_bytes(self, path: Path) -> int:
        """Its context has a cache for all positions from the start, zeros."""
        numbers = json.loads(path.with_name(CACHE).read_text()) * self._api.llama_n_ctx(self._one)
        return int(numbers * self._cached_bytes)

    def _room_for(self, rows: int) -> Any:
        """A context for that many sequences, each as long as a single one."""
        params = self._llama.context_params
        one_row = params.n_ctx
        params.n_ctx, params.n_seq_max = rows * one_row, rows
        context = self._api.llama_init_from_model(self._llama.model, params)
        params.n_ctx, params.n_seq_max = one_row, 1
        return context

    def _next(self, ids: Ids) -> Ids:
        """Append ids [rows, tokens]; the greedy next ids, [rows]. Only the last tokens' logits are computed."""
        rows, tokens = ids.shape
        batch = self._api.llama_batch_init(ids.size, 0, 1)
        batch.n_tokens = ids.size
        for i, (row, column) in enumerate(np.ndindex(rows, tokens)):
            batch.token[i] = int(ids[row, column])
            batch.pos[i] = self._length + column
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = row
            batch.logits[i] = column == tokens - 1
        failed = self._api.llama_decode(self._context, batch)
        self._api.llama_batch_free(batch)
        if failed:
            raise RuntimeError("llama_decode failed")
        self._length += tokens
        self._last = np.array([self._logits((row + 1) * tokens - 1).argmax() for row in range(rows)])
        return self._last

    def _logits(self, position: int) -> Logits:
        pointer = self._api.llama_get_logits_ith(self._context, position)
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self._llama.n_vocab(),))


def kept_numbers(reader: Any) -> int:
    """How many numbers the keys and values of a token are, in all layers together."""
    heads, found = field_of(reader, "attention.head_count"), kv_heads(reader)
    if not heads:
        return 0
    layers = field_of(reader, "block_count")
    rows = sum(found) if isinstance(found, list) else layers * (heads if found is None else found)
    width = field_of(reader, "attention.key_length") or field_of(reader, "embedding_length") // heads
    latent = field_of(reader, "attention.key_length_mla") is not None  # is key and value at once
    return rows * width * (1 if latent else 2)


def kv_heads(reader: Any) -> int | list[int] | None:
    """Of each layer, or by layer; None: as many as heads."""
    interval, found = field_of(reader, "full_attention_interval"), field_of(reader, "attention.head_count_kv")
    if interval is None:
        return found
    return [found if (i + 1) % interval == 0 else 0 for i in range(field_of(reader, "block_count"))]


def field_of(reader: Any, key: str) -> Any:
    """The value under ``key`` of the file's architecture, or None."""
    names = (name for name in reader.fields if name.endswith(f".{key}"))
    return next((reader.fields[name].contents() for name in names), None)


class LlamaCpp(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        from bench.gguf.gguf_file import quantize, write_gguf

        floats, model = out / "floats.gguf", out / "model.gguf"
        write_gguf(checkpoint, floats)
        quantize(floats, model, KINDS[variant])
        floats.unlink()
        # Read here and once, since reading a vocabulary in Python takes seconds, which are not llama.cpp's.
        reader = importlib.import_module("gguf").GGUFReader(model)
        (out / CACHE).write_text(json.dumps(kept_numbers(reader)))

    def imports(self) -> None:
        importlib.import_module("llama_cpp")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> LlamaCppModel:
        return LlamaCppModel(folder / "model.gguf", threads, context, variant)


if __name__ == "__main__":
    run(
        LlamaCpp({"llama_cpp": "llama-cpp-python", "gguf": "gguf", "safetensors": "safetensors"}, ("llama-cpp-python",))
    )
