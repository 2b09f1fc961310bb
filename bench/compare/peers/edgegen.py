"""Adapter of edgegen through its public API: every token passes engine, sampler and detokenizer."""

import importlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.compare.peers.protocol import Generation, Ids, Logits, Model, Peer, Stopwatch, run

if TYPE_CHECKING:
    from edgegen.model.interfaces import Runner
    from edgegen_export.quantize.recipe import Scheme

SCHEMES: "dict[str, Scheme]" = {"": "int8", "int8-kv": "int8", "stock": "int8", "int4": "int4", "fp32": "fp32"}
"""Quantization scheme by variant."""


class EdgegenModel(Model):
    def __init__(self, bundle: Path, threads: int, variant: str) -> None:
        from edgegen.llm import LLM
        from edgegen.options.engine import EngineOptions

        kv = "int8" if variant == "int8-kv" else "float32"
        self._options = EngineOptions(threads=threads, kv=kv, kernels="stock" if variant == "stock" else "auto")
        self._llm = LLM.load(bundle, options=self._options)

    def generate(self, prompts: Ids, tokens: int) -> Generation:
        if len(prompts) > 1:
            return self._generate_rows(prompts, tokens)
        watch = Stopwatch()
        ids: list[int] = []
        with self._llm.stream(prompts[0].tolist(), max_new_tokens=tokens, temperature=0, eos_token_id=()) as stream:
            for chunk in stream:
                ids += chunk.token_ids
                watch.lap()
        return Generation(np.array([ids]), watch.laps)

    def _generate_rows(self, prompts: Ids, tokens: int) -> Generation:
        """A batch of requests; a lap ends when each has its next token."""
        watch = Stopwatch()
        streams = [
            self._llm.stream(ids.tolist(), max_new_tokens=tokens, temperature=0, eos_token_id=()) for ids in prompts
        ]
        columns = list[list[int]]()
        for _ in range(tokens):
            columns.append([next(stream).token_ids[0] for stream in streams])
            watch.lap()
        return Generation(np.array(columns).T, watch.laps)

    def logits(self, ids: Ids) -> Logits:
        return self._runner.prefill(self._runner.new_cache(), 0, ids.tolist()).copy()

    @cached_property
    def _runner(self) -> "Runner[Any]":
        """A separate runner, since results of `LLM` have no logits."""
        from edgegen.model.loading import open_runner

        return open_runner(self._llm.bundle, self._options)


class Edgegen(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        from edgegen_export.pipeline import export

        # Round to nearest: calibration on random weights would choose unrealistic formats.
        export(str(checkpoint), out / "bundle", scheme=SCHEMES[variant], fast=variant != "fp32")

    def imports(self) -> None:
        importlib.import_module("edgegen.llm")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return EdgegenModel(folder / "bundle", threads, variant)


if __name__ == "__main__":
    run(Edgegen({"edgegen": "edgegen", "onnxruntime": "onnxruntime"}, ("edgegen",)))
