"""llama.cpp through llama-cpp-python: Q8_0 weights, its default f16 cache, its C API step by step.

Below the Python classes of llama-cpp-python and their bookkeeping: what is measured is llama.cpp's own speed. With
flash attention, which llama.cpp by default uses where it can; the variant "plain" is without it, which is what
llama-cpp-python's `Llama` does unless told.
"""

import ctypes
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.protocol import Ids, Logits, Model, Peer, run

PLAIN = "plain"

BLOCK_TENSORS = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


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
        gguf = importlib.import_module("gguf")
        safetensors = importlib.import_module("safetensors")
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        layers, width = int(config["n_layer"]), int(config["n_embd"])

        writer = gguf.GGUFWriter(out / "model.gguf", "gpt2")
        writer.add_name("gpt2")
        writer.add_context_length(config["n_positions"])
        writer.add_embedding_length(width)
        writer.add_block_count(layers)
        writer.add_feed_forward_length(4 * width)
        writer.add_head_count(config["n_head"])
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
        _add_tokenizer(writer, gguf, checkpoint / "tokenizer.json", int(config["vocab_size"]))

        names = {"token_embd.weight": "wte.weight", "position_embd.weight": "wpe.weight"}
        blocks = [
            *((f"blk.{i}.{ours}", f"h.{i}.{theirs}") for i in range(layers) for ours, theirs in BLOCK_TENSORS.items())
        ]
        for ours, theirs in [*blocks, ("output_norm", "ln_f")]:
            names |= {f"{ours}.{part}": f"{theirs}.{part}" for part in ("weight", "bias")}

        q8, f32 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F32
        with safetensors.safe_open(checkpoint / "model.safetensors", "np") as tensors:
            for name, source in names.items():
                values = np.asarray(tensors.get_tensor(source), dtype=np.float32)
                if name.startswith("blk.") and values.ndim == 2:
                    values = np.ascontiguousarray(values.T)  # Conv1D is [in, out]
                kind = q8 if values.ndim == 2 and name != "position_embd.weight" else f32
                writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def imports(self) -> None:
        importlib.import_module("llama_cpp")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return LlamaCppModel(folder / "model.gguf", threads, context, flash_attention=variant != PLAIN)


def _add_tokenizer(writer: Any, gguf: Any, path: Path, vocab: int) -> None:
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    by_id: dict[int, str] = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    added: dict[int, str] = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    by_id |= added
    tokens = [by_id.get(i, f"[unused{i}]") for i in range(vocab)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if i in added else normal for i in range(vocab)])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(vocab - 1)
    writer.add_eos_token_id(vocab - 1)


if __name__ == "__main__":
    run(LlamaCpp({"llama_cpp": "llama-cpp-python", "gguf": "gguf", "safetensors": "safetensors"}))
