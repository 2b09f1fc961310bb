"""edgegen through its public API: every token passes engine, sampler and detokenizer, as in any program."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.protocol import Ids, Logits, Model, Peer, run

if TYPE_CHECKING:
    from edgegen.llm import TextStream


class EdgegenModel(Model):
    def __init__(self, bundle: Path, threads: int, *, int8_kv: bool) -> None:
        from edgegen.llm import LLM
        from edgegen.options import EngineOptions

        self._options = EngineOptions(threads=threads, kv="int8" if int8_kv else "float32")
        self._llm = LLM.load(bundle, options=self._options)
        self._stream: TextStream | None = None

    def start(self, ids: Ids) -> int:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._llm.stream(ids.tolist(), max_new_tokens=self._llm.max_context, eos_token_id=())
        return self.step()

    def step(self) -> int:
        assert self._stream is not None
        (token_id,) = next(self._stream).token_ids
        return token_id

    def logits(self, ids: Ids) -> Logits:
        from edgegen.llm import open_runner

        # Results carry text and ids, no logits: a runner of its own gives them.
        runner = open_runner(self._llm.bundle, self._options)
        return runner.prefill(runner.new_cache(), 0, ids.tolist()).copy()


class Edgegen(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        from edgegen_export.pipeline import export

        export(str(checkpoint), out / "bundle", scheme="fp32" if variant == "fp32" else "int8")

    def imports(self) -> None:
        importlib.import_module("edgegen.llm")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return EdgegenModel(folder / "bundle", threads, int8_kv=variant == "int8-kv")


if __name__ == "__main__":
    run(Edgegen({"edgegen": "edgegen", "onnxruntime": "onnxruntime"}))
