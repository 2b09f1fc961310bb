"""transformers in float32: the checkpoint as it is; `forward` with `past_key_values`, not `generate`."""

import importlib
import shutil
from pathlib import Path
from typing import Any

from bench.compare.peers.protocol import Ids, Logits, Peer, SteppedModel, run


class TransformersModel(SteppedModel):
    def __init__(self, folder: Path, threads: int) -> None:
        self._torch = importlib.import_module("torch")
        self._torch.set_num_threads(threads)
        transformers = importlib.import_module("transformers")
        self._model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=self._torch.float32)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self._past: Any = None
        self._last: Any = None

    def start(self, prompts: Ids) -> Ids:
        self._past = None
        return self._next(self._torch.from_numpy(prompts))

    def step(self) -> Ids:
        return self._next(self._last)

    def logits(self, ids: Ids) -> Logits:
        self._past = None
        return self._run(self._torch.from_numpy(ids)[None]).logits[0, -1].numpy()

    def _next(self, ids: Any) -> Ids:
        output = self._run(ids)
        self._past = output.past_key_values
        self._last = output.logits[:, -1].argmax(-1, keepdim=True)
        return self._last[:, 0].numpy()

    def _run(self, ids: Any) -> Any:
        with self._torch.inference_mode():
            return self._model(input_ids=ids, past_key_values=self._past, use_cache=True, logits_to_keep=1)


class Transformers(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        shutil.copytree(checkpoint, out, dirs_exist_ok=True)

    def imports(self) -> None:
        importlib.import_module("torch")
        importlib.import_module("transformers")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> TransformersModel:
        return TransformersModel(folder, threads)


if __name__ == "__main__":
    run(Transformers({"torch": "torch", "transformers": "transformers"}, ("torch", "transformers")))
