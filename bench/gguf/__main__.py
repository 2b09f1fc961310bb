"""Size and KL divergence from float32 of edgegen's bundles compared with llama.cpp's GGUF files.

    python -m bench.gguf DATA --python peers/llama/bin/python            # the checkpoints of bench.studies.quantization
    python -m bench.gguf --checkpoint FOLDER --text FILE --python …      # one of your own
    python -m bench.gguf --checkpoint FOLDER --sizes --python …          # sizes alone: random weights will do

DATA is the folder of real checkpoints and corpora. bench/README.md explains the columns.
"""

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray
from onnx import ModelProto

from bench.compare.contestants import CONTESTANTS, ROOT, NotInstalledError, Process
from bench.gguf.gguf_file import write_gguf
from bench.studies.quantization import MODELS, compare, plant_outliers, windows
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.manifest import EMBEDDINGS
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen_export.calibration.bit_budget import ladder
from edgegen_export.options import MOST_BUDGET, ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.blockwise import stored_bits
from edgegen_export.quantize.recipe import EIGHT_BITS, Scheme
from models.restore_case import find_names, repair, restore_case, split_stories

KINDS = ("Q8_0", "Q4_0", "Q4_K_M")
STORIES = "corpora/tinystories_4MB.txt"
HELD_OUT = 0.07
"""The share of the stories, from the end, that ``models/train.py`` did not train on."""
SAME_FUNCTION = 1e-4
"""The divergence in nats beyond which float32 files are not the same model."""

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Size:
    """Bytes: of the tensors alone, and of all files (tokenizer, graphs, padding). ``stored``: as what, most first."""

    weights: int
    files: int
    stored: str


@dataclass(frozen=True)
class Distance:
    """From float32, on the same text: mean KL in nats, share of the same first choices, perplexity."""

    kl: float
    top1: float
    perplexity: float


@dataclass(frozen=True)
class Row:
    """One storage format of a model; ``failure`` where it does not support the model."""

    name: str
    size: Size | None = None
    distance: Distance | None = None
    failure: str = ""


@dataclass(frozen=True)
class Judge:
    """The text's ids [n, t] and the float32 model's log-probabilities [n, t, vocab]."""

    ids: Ids
    exact: Floats

    def distance(self, logits: Floats) -> Distance:
        q = log_softmax(logits)
        kl, top1, _ = compare(self.exact, q, self.ids)
        nll = -np.take_along_axis(q[:, :-1], self.ids[:, 1:, None], axis=-1).mean()
        return Distance(kl.mean, top1.mean, math.exp(nll))


@dataclass(frozen=True)
class Comparison:
    """Of one checkpoint, in a folder for all that is written."""

    checkpoint: Path
    folder: Path
    peer: Process
    threads: int

    def rows(self, text: Path | None, tokens: int) -> Iterator[Row]:
        """Without ``text`` sizes alone."""
        exact, _ = export(str(self.checkpoint), self.folder / "fp32", ExportOptions(scheme="fp32"))
        judge = None
        if text:
            ids = windows(exact, text, tokens)
            judge = Judge(ids, log_softmax(bundle_logits(exact, ids, "float32", self.threads)))
        yield self._bundle_row("edgegen fp32", exact, judge)
        floats = self.folder / "F32.gguf"
        write_gguf(self.checkpoint, floats)
        yield (same := self.file_row("llama.cpp F32", floats, judge))
        if same.distance and same.distance.kl > SAME_FUNCTION:
            yield Row("the others", failure="not the same function in float32: nothing to compare")
            return
        files = {kind: self._quantized(floats, kind, judge) for kind in KINDS}
        yield files.pop("Q8_0")
        int8 = self._export("int8", "int8")
        yield self._bundle_row("edgegen int8", int8, judge)
        if judge and len(int8.manifest.variants) > 1:
            yield self._bundle_row("edgegen int8, int8 KV", int8, judge, "int8")
        yield from files.values()
        yield self._bundle_row("edgegen int4", self._export("int4", "int4"), judge)
        if judge is None:
            return  # with a budget the size is what was asked for
        weights, least = matrices(floats)
        others = tensor_bytes(exact) - 4 * weights
        budgets = {max(least, 8 * (row.size.weights - others) / weights) for row in files.values() if row.size}
        for bits in sorted({min(budget, MOST_BUDGET) for budget in budgets}):
            name = f"int4 --bits-budget {bits:.6g}"
            yield self._bundle_row(f"edgegen {name}", self._export(name, "int4", bits), judge)

    def _export(self, name: str, scheme: Scheme, bits_budget: float | None = None) -> Bundle:
        say(f"{self.checkpoint.name}: edgegen {name}")
        target = self.folder / re.sub(r"\W", "-", name)
        return export(str(self.checkpoint), target, ExportOptions(scheme=scheme, bits_budget=bits_budget))[0]

    def _quantized(self, floats: Path, kind: str, judge: Judge | None) -> Row:
        say(f"{self.checkpoint.name}: llama.cpp {kind}")
        target = self.folder / f"{kind}.gguf"
        done = self.in_peer("quantize", floats, target, kind)
        if done.returncode:
            return Row(f"llama.cpp {kind}", failure=last_line(done.stderr))
        return self.file_row(f"llama.cpp {kind}", target, judge)

    def _bundle_row(self, name: str, bundle: Bundle, judge: Judge | None, kv: KVDtype = "float32") -> Row:
        distance = judge.distance(bundle_logits(bundle, judge.ids, kv, self.threads)) if judge else None
        return Row(name, bundle_size(bundle), distance)

    def file_row(self, name: str, file: Path, judge: Judge | None) -> Row:
        distance = judge.distance(self._file_logits(file, judge.ids)) if judge else None
        return Row(name, file_size(file), distance)

    def _file_logits(self, file: Path, ids: Ids) -> Floats:
        given, answer = self.folder / "ids.npy", self.folder / "logits.npy"
        np.save(given, ids)
        done = self.in_peer("logits", file, given, answer, "--threads", self.threads)
        if done.returncode:
            raise SystemExit(f"llama.cpp cannot run {file.name}: {last_line(done.stderr)}")
        return np.load(answer)

    def in_peer(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(self.peer.python), "-m", "bench.gguf.gguf_file", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def log_softmax(logits: Floats) -> Floats:
    result: list[Floats] = []
    for window in logits:
        x = window.astype(np.float64)
        x -= x.max(axis=-1, keepdims=True)
        result.append((x - np.log(np.exp(x).sum(axis=-1, keepdims=True))).astype(np.float32))
    return np.array(result)


def bundle_logits(bundle: Bundle, ids: Ids, kv: KVDtype, threads: int) -> Floats:
    """Logits of every position: ids [n, t] → [n, t, vocab]."""
    runner, result = open_runner(bundle, EngineOptions(kv=kv, threads=threads)), list[Floats]()
    cache = runner.new_cache()
    cache.reserve(1, ids.shape[1])
    for window in ids:
        cache.truncate(0, 0)
        result.append(runner.decode(cache, window[None])[0].copy())
    return np.array(result)


def tensor_bytes(bundle: Bundle) -> int:
    """Of everything that the graphs read from the weights file, without the padding between."""
    lengths: dict[str, int] = {}
    for variant in bundle.manifest.variants:
        for tensor in ModelProto.FromString(bundle.file(variant.decode).read_bytes()).graph.initializer:
            place = {entry.key: entry.value for entry in tensor.external_data}
            if place:
                lengths[place["offset"]] = int(place["length"])
    return sum(lengths.values())


def bundle_size(bundle: Bundle) -> Size:
    quantization = bundle.manifest.quantization
    ordinary, embedding = quantization.linear.bits, quantization.format_of("embed").bits
    forms = [form.bits for name, form in quantization.exceptions.items() if name not in EMBEDDINGS]
    other = Counter(bits for bits in forms if bits != ordinary)
    formats = (f"matrices {ordinary} bits", f"embedding {embedding} bits")
    stored = "; ".join([*formats, *(f"{count} matrices {bits} bits" for bits, count in other.items())])
    return Size(tensor_bytes(bundle), sum(f.stat().st_size for f in bundle.path.rglob("*") if f.is_file()), stored)


def matrices(floats: Path) -> tuple[int, float]:
    """How many weights the matrices of a float32 file have, and how few bits each int4 can take on average; tables of
    positions are always stored in 8."""
    weights, bits, least = 0, 0, ladder(EIGHT_BITS, zeros=False)[0]
    for tensor in GGUFReader(floats).tensors:
        if len(tensor.shape) == 2:
            columns, rows = tensor.shape.tolist()
            weights += rows * columns
            bits += stored_bits((rows, columns), EIGHT_BITS if tensor.name.startswith("position_embd") else least)
    return weights, math.ceil(100 * bits / weights) / 100


def file_size(file: Path) -> Size:
    tensors = GGUFReader(file).tensors
    weights = Counter[str]()
    for tensor in tensors:
        weights[tensor.tensor_type.name] += int(tensor.n_elements)
    shares = (f"{kind} {count / weights.total():.0%}" for kind, count in weights.most_common())
    return Size(sum(int(tensor.n_bytes) for tensor in tensors), file.stat().st_size, ", ".join(shares))


def held_out_stories(data: Path, target: Path) -> Path:
    """The end of the stories that ``models/stories`` did not learn from, made as those were that it did."""
    stories = split_stories(repair((data / STORIES).read_text(encoding="utf-8")))
    names, cut = find_names(stories), round(len(stories) * (1 - HELD_OUT))
    target.write_text("<|endoftext|>".join(restore_case(story, names) for story in stories[cut:]), encoding="utf-8")
    return target


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(model: str, parameters: int, rows: list[Row]) -> str:
    heads = "| KL to fp32 | top-1 | perplexity " if any(row.distance for row in rows) else ""
    head = f"| {model} | weights, kB | bits per weight | all files, kB {heads}| stored as |"
    lines = [head, f"|{'---|' * (head.count('|') - 1)}"]
    for row in rows:
        cells = [row.name]
        if row.size:
            cells += [f"{row.size.weights / 1e3:.0f}", f"{8 * row.size.weights / parameters:.2f}"]
            cells += [f"{row.size.files / 1e3:.0f}"]
        if row.distance:
            cells += [f"{row.distance.kl:.2g}", f"{row.distance.top1:.2%}", f"{row.distance.perplexity:.3f}"]
        last = row.size.stored if row.size else row.failure
        cells += [""] * (head.count("|") - 2 - len(cells))
        lines.append(f"| {' | '.join([*cells, last])} |")
    return "\n".join(lines)


def parameters(rows: list[Row]) -> int:
    """Of the checkpoint: a float32 file has four bytes each."""
    (size,) = (row.size for row in rows if row.name == "llama.cpp F32")
    assert size
    return size.weights // 4


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare edgegen's bundles with GGUF files of the same checkpoints.")
    parser.add_argument("data", type=Path, nargs="?", help="the folder of real checkpoints and corpora")
    parser.add_argument("--models", nargs="*", default=[*MODELS, "gpt2-outliers", "qwen2-outliers"])
    parser.add_argument("--checkpoint", type=Path, help="a folder instead of them")
    parser.add_argument("--text", type=Path, help="text to judge it by")
    parser.add_argument("--sizes", action="store_true", help="sizes alone")
    parser.add_argument("--tokens", type=int, default=20480)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="that has llama-cpp-python and gguf")
    parser.add_argument("--json", type=Path, help="write every number here")
    args = parser.parse_args()
    if (args.checkpoint is None) == (args.data is None) or (args.checkpoint and not (args.text or args.sizes)):
        parser.error("give DATA, or --checkpoint with --text or --sizes")
    peer = Process(CONTESTANTS["llama.cpp"], args.python)
    try:
        versions = peer.check()
    except NotInstalledError as error:
        raise SystemExit(f"{args.python} lacks {error}: {peer.contestant.install}") from None
    results: dict[str, list[Row]] = {}
    for name in [args.checkpoint.name] if args.checkpoint else args.models:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            checkpoint, text = (args.checkpoint, args.text) if args.checkpoint else known(name, args.data, work)
            comparison = Comparison(checkpoint, work, peer, args.threads)
            rows = list(comparison.rows(None if args.sizes else text, args.tokens))
        results[name] = rows
        print(table(name, parameters(rows), rows), end="\n\n", flush=True)
    print(", ".join(f"{package} {version}" for package, version in versions.items()))
    if args.json:
        found = {name: [asdict(row) for row in rows] for name, rows in results.items()}
        args.json.write_text(json.dumps({"versions": versions, "models": found}, indent=1) + "\n", encoding="utf-8")


def known(name: str, data: Path, work: Path) -> tuple[Path, Path]:
    """Checkpoint and held-out text of a model of ``bench.studies.quantization``; ``…-outliers`` lies in ``work``."""
    planted = name not in MODELS and name.endswith("-outliers")
    path, text = MODELS[name.removesuffix("-outliers") if planted else name]
    checkpoint = data / path
    if planted:
        checkpoint = work / name
        plant_outliers(data / path, checkpoint)
    return checkpoint, held_out_stories(data, work / "held-out.txt") if name == "stories" else data / text


if __name__ == "__main__":
    main()
