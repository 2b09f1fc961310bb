"""optimum-onnx: its own export with past, its own dynamic int8 quantization, its own model class.

Everything as its documentation shows it, IO binding included (off on CPUs unless asked for), with the threads
set; greedy decoding by `forward` with `past_key_values`, without the bookkeeping of `generate`.
"""

import importlib
import platform
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from bench.compare.peers.protocol import Ids, Logits, Model, Peer, SteppedModel, run

QUANTIZED = "model_quantized.onnx"


class OptimumModel(SteppedModel):
    def __init__(self, folder: Path, threads: int) -> None:
        ort = importlib.import_module("onnxruntime")
        self._torch = importlib.import_module("torch")
        self._torch.set_num_threads(threads)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self._model = importlib.import_module("optimum.onnxruntime").ORTModelForCausalLM.from_pretrained(
            folder, file_name=QUANTIZED, session_options=options, use_cache=True
        )
        self._tokenizer = importlib.import_module("transformers").AutoTokenizer.from_pretrained(folder)
        self._past: Any = None
        self._length = 0
        self._last: Any = None

    def start(self, prompts: Ids) -> Ids:
        self._past, self._length = None, 0
        return self._next(self._torch.from_numpy(prompts))

    def step(self) -> Ids:
        return self._next(self._last)

    def logits(self, ids: Ids) -> Logits:
        self._past, self._length = None, 0
        return np.asarray(self._run(self._torch.from_numpy(ids)[None]).logits[0, -1])

    def _next(self, ids: Any) -> Ids:
        output = self._run(ids)
        self._past = output.past_key_values
        self._last = output.logits[:, -1].argmax(-1, keepdim=True)
        return self._last[:, 0].numpy()

    def _run(self, ids: Any) -> Any:
        self._length += ids.shape[1]
        mask = self._torch.ones((len(ids), self._length), dtype=self._torch.int64)
        return self._model(input_ids=ids, attention_mask=mask, past_key_values=self._past, use_cache=True)


class Optimum(Peer):
    def prepare(self, checkpoint: Path, out: Path, variant: str) -> None:
        package = importlib.import_module("optimum.onnxruntime")
        exported = out / "fp32"
        package.ORTModelForCausalLM.from_pretrained(checkpoint, export=True, use_cache=True).save_pretrained(exported)
        configs = importlib.import_module("optimum.onnxruntime.configuration").AutoQuantizationConfig
        arm = platform.machine().lower() in ("aarch64", "arm64")
        config = (configs.arm64 if arm else configs.avx512_vnni)(is_static=False, per_channel=True)
        package.ORTQuantizer.from_pretrained(exported).quantize(config, save_dir=out)
        shutil.rmtree(exported)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(checkpoint / name, out / name)

    def imports(self) -> None:
        importlib.import_module("torch")
        importlib.import_module("optimum.onnxruntime")
        importlib.import_module("transformers")

    def load(self, folder: Path, variant: str, threads: int, context: int) -> Model:
        return OptimumModel(folder, threads)


if __name__ == "__main__":
    run(
        Optimum(
            {
                "optimum.onnxruntime": "optimum-onnx",
                "onnxruntime": "onnxruntime",
                "torch": "torch",
                "transformers": "transformers",
            },
            ("optimum-onnx", "onnxruntime"),
        )
    )
