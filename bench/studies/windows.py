"""Sliding window layers: time of a decode step and memory of a KV cache that keeps only the window.

    python -m bench.studies.windows FOLDER [--threads N]

The model, written to FOLDER, has Gemma 3's shape and random weights: 12 layers, 10 of them with a window of 512. Steps
with a windowed and with a full KV cache alternate. Times are CPU time, which hides other load.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

from edgegen.bundle.bundle import Bundle
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.kv_cache import KVCache
from edgegen.model.ort_session import OneSession
from edgegen.model.sliding_window import CHUNK, windows_of
from edgegen.system import second_level_cache
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export

WIDTH, HIDDEN, HEADS, HEAD, LAYERS, VOCABULARY, CONTEXT = 640, 2048, 4, 256, 12, 4096, 4096
CONFIG = {
    "model_type": "gemma3_text",
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "head_dim": HEAD,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
}
STEPS = 40


def write_checkpoint(folder: Path) -> Path:
    """A Gemma 3 with random weights."""
    rng = np.random.default_rng(0)
    matrices = {"embed_tokens": (VOCABULARY, WIDTH)}
    norms = {"norm": WIDTH}
    for i in range(LAYERS):
        layer = f"layers.{i}"
        for name, rows in (("q", HEADS * HEAD), ("k", HEAD), ("v", HEAD)):
            matrices[f"{layer}.self_attn.{name}_proj"] = (rows, WIDTH)
        matrices[f"{layer}.self_attn.o_proj"] = (WIDTH, HEADS * HEAD)
        matrices |= {f"{layer}.mlp.{name}_proj": (HIDDEN, WIDTH) for name in ("gate", "up")}
        matrices[f"{layer}.mlp.down_proj"] = (WIDTH, HIDDEN)
        norms |= {f"{layer}.self_attn.{name}_norm": HEAD for name in "qk"}
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            norms[f"{layer}.{name}_layernorm"] = WIDTH
    tensors = {
        name: (rng.standard_normal(shape) / shape[1] ** 0.5).astype(np.float32) for name, shape in matrices.items()
    }
    tensors |= {name: np.zeros(size, np.float32) for name, size in norms.items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    save_file({f"model.{name}.weight": tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def fill(runner: InPlaceRunner, cache: KVCache, ids: NDArray[np.int64]) -> float:
    """Chunked prefill up to the end of ``ids``; CPU seconds."""
    begin = time.process_time()
    while cache.slots == 0 or cache.lengths[0] < len(ids):
        start = int(cache.lengths[0]) if cache.slots else 0
        runner.prefill(cache, 0, ids[start : start + CHUNK].tolist())
    return time.process_time() - begin


def step(runner: InPlaceRunner, cache: KVCache) -> float:
    """One decode step, which is then undone; CPU seconds."""
    length, begin = int(cache.lengths[0]), time.process_time()
    runner.decode(cache, np.array([[1]]))
    elapsed = time.process_time() - begin
    cache.truncate(0, length)
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    target = options.folder / "bundle"
    if not target.exists():
        export(str(write_checkpoint(options.folder / "checkpoint")), target, ExportOptions(scheme="fp32"))
    bundle = Bundle.open(target)
    variant = bundle.variant
    graphs = OneSession(bundle.file(variant.prefill), options.threads)
    runner = InPlaceRunner(graphs, variant, VOCABULARY, CONTEXT)
    caches = {"windows": runner.new_cache(), "everything": KVCache(variant.kv, CONTEXT)}
    print(windows_of(variant.kv, second_level_cache(), kernels=graphs.attends_batches))
    ids = np.random.default_rng(1).integers(0, VOCABULARY, CONTEXT)
    for length in (900, 3500):
        filled = {name: fill(runner, cache, ids[:length]) for name, cache in caches.items()}
        times: dict[str, list[float]] = {name: [] for name in caches}
        for _ in range(STEPS):
            for name, cache in caches.items():
                step(runner, cache)  # binds
                times[name] += [step(runner, cache) for _ in range(2)]
        for name, cache in caches.items():
            print(
                f"{length} tokens, {name}: {cache.nbytes / 1e6:.1f} MB, step {median(times[name]) * 1e3:.1f} ms, "
                f"prefill from the last length {filled[name]:.2f} s, copied {cache.copied_bytes / 1e6:.0f} MB"
            )


if __name__ == "__main__":
    main()
