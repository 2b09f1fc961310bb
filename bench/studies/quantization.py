"""Quality loss of quantization for small trained models, by scheme, on held-out text.

    python -m bench.studies.quantization DATA [--models gpt2 …] [--schemes int8 …] [--kv float32 int8] [--tokens 20480]

DATA is the folder of real checkpoints and corpora. Models called ``…-outliers`` compute the same function in float32:
some channels after each norm are scaled up, and the weights that multiply them scaled down. ± is the standard error
over the windows of the text, which are the same for both models.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file  # pyright: ignore[reportUnknownVariableType]

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen.tokenizer import Tokenizer
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme

WINDOW = 256
STORIES, CASED = "corpora/tinystories_4MB.txt", "corpora/tinystories_cased_197k.txt"
MODELS = {
    "gpt2": ("models/gpt2-stories-0.9m", STORIES),
    "qwen2": ("models/qwen2-stories-0.9m", STORIES),
    "neox": ("models/neox-stories-1.1m", STORIES),
    "260K": ("models/stories260K", CASED),
    "260K-outliers": ("models/stories260K-outliers", CASED),
    "stories": (str(Path(__file__).parents[2] / "models/stories"), CASED),
}
SCHEMES: dict[str, tuple[Scheme, bool]] = {
    "int8 --fast": ("int8", True),
    "int8": ("int8", False),
    "int4 --fast": ("int4", True),
    "int4": ("int4", False),
}
_TAKERS = {  # norm → the matrices that read its output, and their input axis
    "gpt2": ({"ln_1": ["attn.c_attn"], "ln_2": ["mlp.c_fc"]}, 0),
    "qwen2": (
        {
            "input_layernorm": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            "post_attention_layernorm": ["mlp.gate_proj", "mlp.up_proj"],
        },
        1,
    ),
}


@dataclass(frozen=True)
class Cost:
    """Of one bundle against the float32 one, on the same text."""

    kl: "Estimate"
    top1: "Estimate"
    perplexity: "Estimate"
    bits: float
    seconds: float


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, windows: NDArray[np.floating[Any]]) -> "Estimate":
        """Of one number per window."""
        return cls(float(windows.mean()), float(windows.std(ddof=1)) / len(windows) ** 0.5)


def plant_outliers(source: Path, target: Path, channels: int = 6, factor: float = 40.0) -> None:
    """The same function with ``channels`` of each norm up to ``factor`` times as large."""
    shutil.copytree(source, target)
    takers, axis = _TAKERS[json.loads((source / "config.json").read_text())["model_type"]]
    tensors = load_file(target / "model.safetensors")
    rng = np.random.default_rng(0)
    for name in sorted(tensors):
        parent, _, norm = name.removesuffix(".weight").rpartition(".")
        if norm not in takers or not name.endswith(".weight"):
            continue
        scale = np.ones(len(tensors[name]), np.float32)
        scale[rng.permutation(len(scale))[:channels]] = rng.uniform(factor / 4, factor, channels)
        for own in (name, name.replace(".weight", ".bias")):
            if own in tensors:
                tensors[own] = tensors[own] * scale
        for taker in takers[norm]:
            weight = f"{parent}.{taker}.weight"
            tensors[weight] = tensors[weight] / (scale if axis else scale[:, None])
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})


def windows(bundle: Bundle, text: Path, tokens: int) -> NDArray[np.int64]:
    """Ids [n, WINDOW] from the end of a text."""
    tokenizer = Tokenizer.from_file(bundle.file("tokenizer.json"))
    tail = text.read_text(encoding="utf-8")[-tokens * 6 :]
    ids = tokenizer.encode(tail, add_special_tokens=False)[-tokens:]
    return np.array(ids[: len(ids) // WINDOW * WINDOW], np.int64).reshape(-1, WINDOW)


def log_probabilities(bundle: Bundle, ids: NDArray[np.int64], kv: KVDtype = "float32") -> NDArray[np.float32]:
    """float32 [n, WINDOW, vocab]."""
    runner, result = open_runner(bundle, EngineOptions(kv=kv)), list[NDArray[np.float32]]()
    cache = runner.new_cache()
    cache.reserve(1, WINDOW)
    for window in ids:
        cache.truncate(0, 0)
        logits = runner.decode(cache, window[None])[0].astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        result.append((logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))).astype(np.float32))
    return np.array(result)


def compare(
    p: NDArray[np.float32], q: NDArray[np.float32], ids: NDArray[np.int64]
) -> tuple[Estimate, Estimate, Estimate]:
    """Mean KL in nats, top-1 agreement, and the relative change of the perplexity."""
    kl = (np.exp(p) * (p - q)).sum(axis=-1).mean(axis=-1)
    top1 = (p.argmax(axis=-1) == q.argmax(axis=-1)).mean(axis=-1)
    following = ids[:, 1:, None]
    gained = np.take_along_axis(p[:, :-1] - q[:, :-1], following, axis=-1).astype(np.float64).mean(axis=(1, 2))
    perplexity = Estimate.of(gained)  # of its logarithm, which is nearly the same for so small a number
    return Estimate.of(kl), Estimate.of(top1), Estimate(float(np.expm1(perplexity.mean)), perplexity.error)


def measure(
    checkpoint: Path, text: Path, folder: Path, schemes: list[str], kvs: list[KVDtype], tokens: int
) -> Iterator[tuple[str, KVDtype, Cost]]:
    """Export ``checkpoint`` with each of ``schemes`` into ``folder``; measure the loss with each KV cache dtype."""
    exact, _ = export(str(checkpoint), folder / "fp32", ExportOptions(scheme="fp32"))
    ids = windows(exact, text, tokens)
    p = log_probabilities(exact, ids)
    for number, scheme in enumerate(schemes):
        begin = time.perf_counter()
        chosen, fast = SCHEMES[scheme]
        bundle, _ = export(str(checkpoint), folder / str(number), ExportOptions(scheme=chosen, fast=fast))
        seconds = time.perf_counter() - begin
        bits = bundle.manifest.quantization.bits_per_weight
        for kv in kvs:
            yield scheme, kv, Cost(*compare(p, log_probabilities(bundle, ids, kv), ids), bits, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="Quality loss of quantization for small trained models.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", nargs="*", default=[*MODELS, "gpt2-outliers", "qwen2-outliers"])
    parser.add_argument("--schemes", nargs="*", default=list(SCHEMES))
    parser.add_argument("--kv", nargs="*", default=["float32", "int8"])
    parser.add_argument("--tokens", type=int, default=20480)
    args = parser.parse_args()
    print("| model | weights | KV cache | bits | KL | top-1 | perplexity | export s |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.models:
        planted = name not in MODELS and name.endswith("-outliers")
        path, text = MODELS[name.removesuffix("-outliers") if planted else name]
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = args.data / path
            if planted:
                plant_outliers(checkpoint, Path(folder, "planted"))
                checkpoint = Path(folder, "planted")
            costs = measure(checkpoint, args.data / text, Path(folder), args.schemes, args.kv, args.tokens)
            for scheme, kv, cost in costs:
                print(
                    f"| {name} | {scheme} | {kv} | {cost.bits:.2f} | {cost.kl.mean:.6f} | "
                    f"{cost.top1.mean:.2%} ± {cost.top1.error:.2%} | "
                    f"{cost.perplexity.mean:+.3%} ± {cost.perplexity.error:.3%} | {cost.seconds:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
