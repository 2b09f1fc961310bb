"""llama.cpp through llama-cpp-python: Q8_0 weights, its default f16 cache, its C API step by step.

Below the Python classes of llama-cpp-python and their bookkeeping: what is measured is llama.cpp's own speed. With
flash attention, which llama.cpp by default uses where it can; the variant "plain" is without it, which is what
llama-cpp-python's `Llama` does unless told.
"""

import ctypes
import importlib
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.protocol import Ids, Logits, Model, Peer, run

PLAIN = "plain"


class LlamaCppModel(Model):
    def __init__(self, path: Path, threads: int, context: int, *, flash_attention: bool) -> None:
        self._api = importlib.import_module("llama_cpp")
        self._llama = self._api.Llama(
            model_path=str(path),
            n_ctx=context,
            n_batch=context,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=flash_attention,
            verbose=False,
        )
        self._context: Any = self._llama.ctx
        self._memory: Any = self._api.llama_get_memory(self._context)
        self._last = 0

    def start(self, ids: Ids) -> int:
        self._api.llama_memory_clear(self._memory, False)
        return self._next(ids.tolist())

    def step(self) -> int:
        return self._next([self._last])

    def logits(self, ids: Ids) -> Logits:
        self.start(ids)
        return self._logits().copy()

    def _next(self, ids: list[int]) -> int:
        tokens = (self._api.llama_token * len(ids))(*ids)
        # Positions follow the cache by themselves; only the last token's logits are computed.
        if self._api.llama_decode(self._context, self._api.llama_batch_get_one(tokens, len(ids))):
            raise RuntimeError("llama_decode failed")
        self._last = int(self._logits().argmax())
        return self._last

    def _logits(self) -> Logits:
        pointer = self._api.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self._llama.n_vocab(),))


class LlamaCpp(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        from bench.gguf_file import quantize, write_gguf

        floats = out / "floats.gguf"
        write_gguf(checkpoint, floats)
        quantize(floats, out / "model.gguf", "Q8_0")
        floats.unlink()

    def imports(self) -> None:
        importlib.import_module("llama_cpp")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return LlamaCppModel(folder / "model.gguf", threads, context, flash_attention=variant != PLAIN)


if __name__ == "__main__":
    run(LlamaCpp({"llama_cpp": "llama-cpp-python", "gguf": "gguf", "safetensors": "safetensors"}))
