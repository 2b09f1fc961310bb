"""Seconds of each stage of an export, and the peak of its private memory, by shape and scheme.

    python -m bench.exports [--shapes G Q T] [--schemes fast int8 int4] [--bfloat16] [--checkpoints FOLDER]

Each export runs in a process of its own, over a checkpoint with random weights; FOLDER keeps the checkpoints for the
next time. With ``--bfloat16`` they are as most people publish them, in shards of 2 GB; else they are float32, in one
file. Wall seconds and CPU seconds: the latter change less on a busy machine. Private memory is what a process has
written itself (``RssAnon``): pages of mapped files are not counted. ``--llama-cpp PYTHON`` measures llama.cpp's Q8_0
beside them: PYTHON is that of an environment with ``gguf``, ``safetensors`` and ``llama-cpp-python``, such as the one
that ``bench.compare`` makes.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file  # pyright: ignore[reportUnknownVariableType]

from bench.compare.checkpoints import Shape, write_checkpoint
from bench.compare.memory import status_bytes
from bench.compare.shapes import SHAPES, LlamaShape, Named
from edgegen.system import share_freed_memory
from edgegen_export.files.progress import Silent
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme

ALL_SHAPES = {
    **SHAPES,
    "T": Named("TinyLlama, 1.1B parameters", LlamaShape(22, 2048, 32, 4, 5632, 32000, 2048)),
    "Q1.5B": Named("Qwen2.5-1.5B", LlamaShape(28, 1536, 12, 2, 8960, 151936, 4096, "qwen2", 1e6, 1e-6)),
    "Q3B": Named("Qwen2.5-3B", LlamaShape(36, 2048, 16, 2, 11008, 151936, 4096, "qwen2", 1e6, 1e-6)),
    "G24": Named("GPT-2 small with 24 layers", Shape(layers=24)),
    "G48": Named("GPT-2 small with 48 layers", Shape(layers=48)),
}
SCHEMES: dict[str, tuple[Scheme, bool]] = {"fast": ("int8", True), "int8": ("int8", False), "int4": ("int4", False)}
_SHARD = 2 << 30
_STATUS, _EVERY_S = Path("/proc/self/status"), 0.01


@dataclass
class Stage:
    """A stage of an export: seconds, and the peak of private memory in bytes."""

    name: str
    wall: float = 0.0
    cpu: float = 0.0
    private: int = 0


class Stages(Silent):
    """Hears the stages of an export, and measures them."""

    def __init__(self) -> None:
        self.all = [Stage("start")]
        self._begun, self._done = (time.perf_counter(), time.process_time()), threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def stage(self, text: str) -> None:
        now = time.perf_counter(), time.process_time()
        self.all[-1].wall, self.all[-1].cpu = now[0] - self._begun[0], now[1] - self._begun[1]
        self._begun = now
        self.all.append(Stage(text))

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)

    warn = note

    def end(self) -> list[Stage]:
        """All stages."""
        self.stage("end")
        self._done.set()
        self._watcher.join()
        return self.all[:-1]

    def _watch(self) -> None:
        while not self._done.wait(_EVERY_S):
            stage = self.all[-1]
            stage.private = max(stage.private, status_bytes(_STATUS, "RssAnon:"))


def measure(checkpoint: Path, scheme: str) -> list[Stage]:
    """Export ``checkpoint`` in this process."""
    chosen, fast = SCHEMES[scheme]
    with tempfile.TemporaryDirectory(dir=checkpoint.parent) as folder:
        stages = Stages()
        export(str(checkpoint), Path(folder, "bundle"), ExportOptions(scheme=chosen, fast=fast), progress=stages)
        return stages.end()


def in_own_process(checkpoint: Path, scheme: str) -> list[Stage]:
    """:func:`measure` in a new process, so that nothing of another export counts."""
    command = [sys.executable, "-m", "bench.exports", "--one", str(checkpoint), scheme]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [Stage(**each) for each in json.loads(lines[-1])]


def in_bfloat16(checkpoint: Path, target: Path) -> None:
    """Write the checkpoint again in bfloat16, rounded to nearest even, in shards of at most ``_SHARD`` bytes."""
    target.mkdir(exist_ok=True)
    shards = [dict[str, NDArray[Any]]()]
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        halves = tensor.astype(ml_dtypes.bfloat16)
        if sum(each.nbytes for each in shards[-1].values()) + halves.nbytes > _SHARD:
            shards.append({})
        shards[-1][name] = halves
    files = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    for file, shard in zip(files, shards, strict=True):
        save_file(shard, target / file, {"format": "pt"})
    index = {
        "metadata": {},
        "weight_map": {name: file for file, shard in zip(files, shards, strict=True) for name in shard},
    }
    (target / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    for file in checkpoint.glob("*.json"):
        shutil.copyfile(file, target / file.name)


LLAMA_CPP = """
import json, sys, time
from pathlib import Path
from bench.gguf.gguf_file import quantize, write_gguf

checkpoint, floats, target, stages = *map(Path, sys.argv[1:]), []
for name, run in (
    ("converting to GGUF", lambda: write_gguf(checkpoint, floats)),
    ("quantizing to Q8_0", lambda: quantize(floats, target, "Q8_0")),
):
    begun = time.perf_counter(), time.process_time()
    run()
    status = Path("/proc/self/status").read_text().split("RssAnon:")[1]
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    stages.append({"name": name, "wall": wall, "cpu": cpu, "private": 1024 * int(status.split()[0])})
print(json.dumps(stages))
"""


def by_llama_cpp(python: Path, checkpoint: Path) -> list[Stage]:
    """llama.cpp's way to 8 bits in a process of ``python``; private memory is that after a stage, not its peak."""
    with tempfile.TemporaryDirectory(dir=checkpoint.parent) as folder:
        command = [python, "-c", LLAMA_CPP, checkpoint, Path(folder, "floats.gguf"), Path(folder, "q8_0.gguf")]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [Stage("start"), *(Stage(**each) for each in json.loads(lines[-1]))]


def made(checkpoints: Path, shape: str, bfloat16: bool) -> Path:
    """The checkpoint of that shape, written unless it is there: its config is written last."""
    floats = checkpoints / shape
    checkpoint = checkpoints / f"{shape}-bfloat16" if bfloat16 else floats
    if not (checkpoint / "config.json").exists():
        if not (floats / "config.json").exists():
            write_checkpoint(floats, ALL_SHAPES[shape].sizes)
        if bfloat16:
            in_bfloat16(floats, checkpoint)
    return checkpoint


def rows(shape: str, scheme: str, stages: list[Stage]) -> list[str]:
    """Lines of the table: the whole export, then each stage of it."""
    private = max(stage.private for stage in stages)
    whole = Stage("**all**", sum(stage.wall for stage in stages), sum(stage.cpu for stage in stages), private)
    return [
        f"| {shape} | {scheme} | {stage.name} | {stage.wall:.1f} | {stage.cpu:.1f} | {stage.private / 1e6:.0f} |"
        for stage in (whole, *stages[1:])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the stages of exports.")
    parser.add_argument("--shapes", nargs="*", choices=list(ALL_SHAPES), default=["G", "Q", "T"])
    parser.add_argument("--schemes", nargs="*", choices=list(SCHEMES), default=list(SCHEMES))
    parser.add_argument("--bfloat16", action="store_true", help="weights in bfloat16, in shards of 2 GB")
    parser.add_argument("--checkpoints", type=Path, help="where checkpoints are kept, or made")
    parser.add_argument("--llama-cpp", type=Path, help="a Python with llama-cpp-python, gguf and safetensors")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        share_freed_memory(large=True)  # as the command does
        print(json.dumps([asdict(stage) for stage in measure(Path(args.one[0]), args.one[1])]))
        return
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = args.checkpoints or Path(folder)
        print("| shape | scheme | stage | wall s | CPU s | private MB |")
        print("|---|---|---|---:|---:|---:|")
        for shape in args.shapes:
            checkpoint = made(checkpoints, shape, args.bfloat16)
            for scheme in args.schemes:
                print(*rows(shape, scheme, in_own_process(checkpoint, scheme)), sep="\n", flush=True)
            if args.llama_cpp:
                print(*rows(shape, "llama.cpp", by_llama_cpp(args.llama_cpp, checkpoint)), sep="\n", flush=True)


if __name__ == "__main__":
    main()
