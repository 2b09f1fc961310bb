"""OpenVINO GenAI: optimum-intel's export with int8 weights, `LLMPipeline` with a streamer that times each token.

Settings are its own: on this kind of processor that may mean bfloat16 activations and an 8-bit cache.
"""

import importlib
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bench.compare.peers.protocol import Generation, Ids, Logits, Model, Peer, Stopwatch, run, run_tool


class OpenVINOModel(Model):
    def __init__(self, folder: Path, threads: int) -> None:
        self._genai = importlib.import_module("openvino_genai")
        self._openvino = importlib.import_module("openvino")
        self._graph = folder / "openvino_model.xml"
        self._settings = {"INFERENCE_NUM_THREADS": threads}
        self._pipeline = self._genai.LLMPipeline(str(folder), "CPU", self._settings)
        self._streamer = _streamer(self._genai)

    def generate(self, prompts: Ids, tokens: int) -> Generation:
        config = self._genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=False)
        mask = self._openvino.Tensor(np.ones_like(prompts))
        inputs = self._genai.TokenizedInputs(self._openvino.Tensor(prompts), mask)
        if len(prompts) > 1:
            results = self._pipeline.generate(inputs, config)  # it streams one row only, but keeps the time itself
            metrics = results.perf_metrics.raw_metrics
            return Generation(np.array(results.tokens), _seconds(metrics, len(prompts)))
        watch = Stopwatch()
        streamer = self._streamer(watch)
        results = self._pipeline.generate(inputs, config, streamer)
        return Generation(np.array(results.tokens), watch.laps)

    def logits(self, ids: Ids) -> Logits:
        self._request.reset_state()
        inputs = {"input_ids": ids[None], "attention_mask": np.ones((1, len(ids)), np.int64)}
        inputs |= {"position_ids": np.arange(len(ids))[None], "beam_idx": np.zeros(1, np.int32)}
        return self._request.infer(inputs)["logits"][0, -1].copy()

    @cached_property
    def _request(self) -> Any:
        """The same graph in the same runtime: the pipeline gives no logits."""
        return self._openvino.Core().compile_model(self._graph, "CPU", self._settings).create_infer_request()


def _seconds(metrics: Any, rows: int) -> list[float]:
    """Until the first tokens and of each step, from microseconds; a step's are shared out among its rows."""
    steps = np.reshape(metrics.m_durations, (-1, rows)).sum(axis=1)
    return [1e-6 * metrics.m_times_to_first_token[0], *(1e-6 * steps)]


def _streamer(genai: Any) -> Any:
    """A class: its base is known only once the package is imported."""

    class Streamer(genai.StreamerBase):
        def __init__(self, watch: Stopwatch) -> None:
            genai.StreamerBase.__init__(self)
            self._watch = watch

        def write(self, token: int) -> Any:
            self._watch.lap()
            return genai.StreamingStatus.RUNNING

        def end(self) -> None:
            pass

    return Streamer


class OpenVINO(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        command = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "openvino"]
        options = ["--model", str(checkpoint), "--task", "text-generation-with-past", "--weight-format", "int8"]
        run_tool([*command, *options, str(out)])

    def imports(self) -> None:
        importlib.import_module("openvino")
        importlib.import_module("openvino_genai")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return OpenVINOModel(folder, threads)


if __name__ == "__main__":
    modules = {
        "openvino": "openvino",
        "openvino_genai": "openvino-genai",
        "optimum.intel": "optimum-intel",
        "nncf": "nncf",
        "torch": "torch",
        "transformers": "transformers",
    }
    run(OpenVINO(modules, ("openvino", "openvino-genai")))
