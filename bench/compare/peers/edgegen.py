"""Adapter of edgegen through its public API: every token passes engine, sampler and detokenizer."""

import importlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bench.compare.peers.protocol import Generation, Ids, Logits, Model, Peer, Stopwatch, run

if TYPE_CHECKING:
    from edgegen.bundle.kv_format import KVDtype
    from edgegen.model.interfaces import Runner
    from edgegen_export.quantize.recipe import Scheme


@dataclass(frozen=True)
class Variant:
    """How edgegen is used; everything else is as by default."""

    scheme: "Scheme" = "int8"
    kv: "KVDtype | None" = None
    """None: the bundle's, int8 unless it is of fp32."""
    kernels: Literal["auto", "stock"] = "auto"


VARIANTS = {
    "": Variant(),
    "float32-kv": Variant(kv="float32"),
    "int4-kv": Variant(kv="int4"),
    "stock": Variant(kernels="stock"),
    "int4": Variant("int4"),
    "int4-float32-kv": Variant("int4", kv="float32"),
    "int4-stock": Variant("int4", kernels="stock"),
    "fp32": Variant("fp32"),
}


class EdgegenModel(Model):
    def __init__(self, bundle: Path, threads: int, variant: Variant) -> None:
        from edgegen.llm import LLM
        from edgegen.options.engine import EngineOptions

        _require_kernels(variant)
        self._options = EngineOptions(threads=threads, kv=variant.kv, kernels=variant.kernels)
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
        """Requests that run together, as a user's do; a lap ends when each has its next token.

        Prompts are prefilled one after the other, so the first request would be the first to end, and the last steps
        would have fewer rows: each asks for more tokens than are taken.
        """
        watch = Stopwatch()
        most = tokens + len(prompts)
        streams = [
            self._llm.stream(ids.tolist(), max_new_tokens=most, temperature=0, eos_token_id=()) for ids in prompts
        ]
        columns = list[list[int]]()
        for _ in range(tokens):
            columns.append([next(stream).token_ids[0] for stream in streams])
            watch.lap()
        for stream in streams:
            stream.close()
        return Generation(np.array(columns).T, watch.laps)

    def logits(self, ids: Ids) -> Logits:
        return self._runner.prefill(self._runner.new_cache(), 0, ids.tolist()).copy()

    @cached_property
    def _runner(self) -> "Runner[Any]":
        """A separate runner, since results of `LLM` have no logits."""
        from edgegen.model.loading import open_runner

        return open_runner(self._llm.bundle, self._options)


def _require_kernels(variant: Variant) -> None:
    """Stop where a variant is to be measured with kernels and there is no library of them.

    Raises:
        RuntimeError: the kernels are not compiled, and so would silently be measured without.
    """
    from edgegen.model.kernels import kernel_library

    if variant.kernels == "auto" and variant.scheme != "fp32" and kernel_library() is None:
        raise RuntimeError("edgegen has no kernels here: run python kernels/build.py, or compare edgegen-stock")


class Edgegen(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        from edgegen_export.options import ExportOptions
        from edgegen_export.pipeline import export

        scheme = VARIANTS[variant].scheme
        # Round to nearest: calibration on random weights would choose unrealistic formats.
        export(str(checkpoint), out / "bundle", ExportOptions(scheme=scheme, fast=scheme != "fp32"))

    def imports(self) -> None:
        importlib.import_module("edgegen.llm")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return EdgegenModel(folder / "bundle", threads, VARIANTS[variant])


if __name__ == "__main__":
    run(Edgegen({"edgegen": "edgegen", "onnxruntime": "onnxruntime"}, ("edgegen",)))
