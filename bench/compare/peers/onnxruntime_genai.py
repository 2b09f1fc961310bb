"""onnxruntime-genai: its own model builder with int4 or int8 weights, its `Generator` token by token."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.compare.peers.protocol import Ids, Logits, Peer, SteppedModel, run, run_tool


class GenaiModel(SteppedModel):
    def __init__(self, folder: Path, context: int) -> None:
        self._api = importlib.import_module("onnxruntime_genai")
        self._model = self._api.Model(str(folder))
        self._tokenizer = self._api.Tokenizer(self._model)
        self._context = context
        self._generator: Any = None

    def start(self, prompts: Ids) -> Ids:
        self._read(prompts)
        return self.step()

    def _read(self, prompts: Ids) -> None:
        self._generator = None  # the old cache goes before the new one comes
        params = self._api.GeneratorParams(self._model)
        room = self._context
        # The least length keeps the id that ends a text from being chosen.
        params.set_search_options(do_sample=False, max_length=room, min_length=room, batch_size=len(prompts))
        self._generator = self._api.Generator(self._model, params)
        self._generator.append_tokens(prompts.astype(np.int32))

    def step(self) -> Ids:
        self._generator.generate_next_token()
        return self._generator.get_next_tokens().astype(np.int64)

    def logits(self, ids: Ids) -> Logits:
        self._read(ids[None])  # and no more: choosing a token writes into the logits
        return self._generator.get_output("logits")[0, -1].astype(np.float32)


class Genai(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        builder = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        options = ["-i", str(checkpoint), "-o", str(out), "-p", variant, "-e", "cpu", "-c", str(out / "cache")]
        run_tool([*builder, *options])

    def imports(self) -> None:
        importlib.import_module("onnxruntime_genai")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> GenaiModel:
        _set_threads(folder / "genai_config.json", threads)
        return GenaiModel(folder, context)


def _set_threads(path: Path, threads: int) -> None:
    """In the model's own settings: there is no other place."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")


if __name__ == "__main__":
    modules = {
        "onnxruntime_genai": "onnxruntime-genai",
        "onnxruntime": "onnxruntime",
        "onnx_ir": "onnx-ir",
        "torch": "torch",
        "transformers": "transformers",
    }
    run(Genai(modules, ("onnxruntime-genai",)))
