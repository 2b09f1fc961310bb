"""CTranslate2: its own converter, int8 weights, `Generator.generate_batch` with a callback that times each token."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.compare.peers.protocol import Generation, Ids, Logits, Model, Peer, Stopwatch, run


class CTranslate2Model(Model):
    def __init__(self, folder: Path, threads: int) -> None:
        self._api = importlib.import_module("ctranslate2")
        self._generator = self._api.Generator(str(folder), "cpu", compute_type="int8", intra_threads=threads)
        self._tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
        # Prompts are tokens, not ids.
        self._tokens: list[str] = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))

    def generate(self, prompts: Ids, tokens: int) -> Generation:
        texts = [[self._tokens[int(i)] for i in row] for row in prompts]
        last, watch = len(prompts) - 1, Stopwatch()

        def on_token(step: Any) -> bool:
            if step.batch_id == last:
                watch.lap()
            return False

        results = self._generator.generate_batch(
            texts, max_length=tokens, end_token=[], include_prompt_in_result=False, callback=on_token
        )
        return Generation(np.array([result.sequences_ids[0] for result in results]), watch.laps)

    def logits(self, ids: Ids) -> Logits:
        rows = self._api.StorageView.from_array(ids[None].astype(np.int32))
        lengths = self._api.StorageView.from_array(np.array([len(ids)], np.int32))
        return np.array(self._generator.forward_batch(rows, lengths))[0, -1]


class CTranslate2(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        converters = importlib.import_module("ctranslate2.converters")
        converter = converters.TransformersConverter(str(checkpoint), copy_files=["tokenizer.json"])
        converter.convert(str(out), quantization="int8", force=True)

    def imports(self) -> None:
        importlib.import_module("ctranslate2")
        importlib.import_module("tokenizers")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return CTranslate2Model(folder, threads)


if __name__ == "__main__":
    modules = ("ctranslate2", "tokenizers", "torch", "transformers")
    run(CTranslate2({name: name for name in modules}, ("ctranslate2", "tokenizers")))
