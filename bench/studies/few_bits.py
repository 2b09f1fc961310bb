"""KL divergence from float32 of bundles of few bits, beside the files that llama.cpp makes of the same size.

    python -m bench.studies.few_bits DATA --python peers/llama/bin/python [--models gpt2 …] [--kinds Q3_K_M …]

DATA is the folder of real checkpoints and corpora. llama.cpp's quantizer has an importance matrix, made here from the
text that edgegen calibrates on: the mean square of what each column of a matrix is multiplied with, in the float32
model, which torch and transformers run. The judge is the end of the text, which none of them has seen. A bundle's
budget is that of the file's tensors of matrices, so that the tensors of both take as many bytes; where a model takes
more at least, its row says so.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, get_tensor_name_map
from numpy.typing import NDArray

from bench.compare.contestants import CONTESTANTS, Process
from bench.gguf.__main__ import (
    HELD_OUT,
    Comparison,
    Judge,
    Row,
    bundle_logits,
    bundle_size,
    file_size,
    known,
    last_line,
    log_softmax,
    say,
    tensor_bytes,
)
from bench.gguf.gguf_file import LAYOUTS, write_gguf
from bench.studies.quantization import MODELS, windows
from edgegen.errors import UsageError
from edgegen_export.options import MOST_BUDGET, ExportOptions
from edgegen_export.pipeline import export

KINDS = ("Q4_K_M", "Q3_K_M", "IQ3_S", "Q2_K")
CALIBRATION = 200_000
"""Characters of the text, at its start, that all calibrate on."""
_LENGTH, _ROWS = 256, 32

Floats = NDArray[np.float32]


def importance(checkpoint: Path, text: str) -> dict[str, Floats]:
    """llama.cpp's importance matrix: by the name of a tensor the mean square of each column's inputs."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(checkpoint / "tokenizer.json"))
    config = model.config
    layout = LAYOUTS[config.model_type]
    names = get_tensor_name_map(layout.arch, config.num_hidden_layers)
    sums: dict[str, Any] = {}

    def listen(name: str) -> Any:
        def heard(_module: object, inputs: tuple[Any, ...]) -> None:
            x = inputs[0].detach().reshape(-1, inputs[0].shape[-1])
            sums[name] = sums.get(name, 0) + (x.double() ** 2).mean(0)

        return heard

    for name, module in model.named_modules():
        if type(module).__name__ in ("Linear", "Conv1D"):
            tensor = names.get_name(f"{name}.weight", try_suffixes=(".weight",))
            module.register_forward_pre_hook(listen(tensor or name))
            if name in ("lm_head", "embed_out"):  # where it is tied, the table of tokens is the head's matrix
                module.register_forward_pre_hook(listen("token_embd.weight"))
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][: _LENGTH * _ROWS]
    with torch.no_grad():
        for row in torch.tensor(ids[: len(ids) // _LENGTH * _LENGTH]).reshape(-1, _LENGTH):
            model(row[None])
    return {name: (total / _ROWS).float().numpy() for name, total in sums.items()}


def rows(comparison: Comparison, text: Path, kinds: list[str], budgets: list[float], tokens: int) -> Iterator[Row]:
    """The files, each followed by the bundle of its size."""
    folder, checkpoint = comparison.folder, comparison.checkpoint
    exact, _ = export(str(checkpoint), folder / "fp32", ExportOptions(scheme="fp32"))
    ids = windows(exact, text, tokens)
    judge = Judge(ids, log_softmax(bundle_logits(exact, ids, "float32", comparison.threads)))
    floats, seen, matrix = folder / "F32.gguf", folder / "calibration.txt", folder / "importance.npz"
    write_gguf(checkpoint, floats)
    whole = text.read_text(encoding="utf-8")
    seen.write_text(whole[: min(CALIBRATION, round(len(whole) * (1 - HELD_OUT)) - 6 * tokens)], encoding="utf-8")
    squares: dict[str, Any] = {**importance(checkpoint, seen.read_text(encoding="utf-8"))}
    np.savez(matrix, **squares)
    weights = sum(int(tensor.n_elements) for tensor in GGUFReader(floats).tensors if len(tensor.shape) == 2)
    others = tensor_bytes(exact) - 4 * weights
    for kind in kinds:
        say(f"{checkpoint.name}: llama.cpp {kind}")
        target = folder / f"{kind}.gguf"
        done = comparison.in_peer("quantize", floats, target, kind, "--importance", matrix)
        if done.returncode:
            yield Row(f"llama.cpp {kind}", failure=last_line(done.stderr))
            continue
        file = comparison.file_row(f"llama.cpp {kind}", target, judge)
        yield file
        size = file_size(target)
        yield _bundle_row(comparison, 8 * (size.weights - others) / weights, seen, judge)
    for budget in budgets:
        yield _bundle_row(comparison, budget, seen, judge)


def _bundle_row(comparison: Comparison, budget: float, text: Path, judge: Judge) -> Row:
    name = f"edgegen --bits-budget {budget:.4g}"
    say(f"{comparison.checkpoint.name}: {name}")
    source, target = str(comparison.checkpoint), comparison.folder / f"bits-{budget:.4g}"
    kept = math.floor(1e4 * min(budget, MOST_BUDGET)) / 1e4
    try:
        bundle, _ = export(source, target, ExportOptions(scheme="int4", bits_budget=kept, calibration=text, force=True))
    except UsageError as error:
        return Row(name, failure=str(error))
    logits = bundle_logits(bundle, judge.ids, "float32", comparison.threads)
    return Row(name, bundle_size(bundle), judge.distance(logits))


def main() -> None:
    parser = argparse.ArgumentParser(description="Bundles of few bits beside GGUF files of their size.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", nargs="*", default=["stories", "gpt2", "qwen2", "neox", "gpt2-outliers"])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--budgets", nargs="*", type=float, default=[3.4])
    parser.add_argument("--tokens", type=int, default=10240)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="that has llama-cpp-python and gguf")
    args = parser.parse_args()
    assert set(args.models) <= {*MODELS, "gpt2-outliers", "qwen2-outliers"}
    peer = Process(CONTESTANTS["llama.cpp"], args.python)
    print("| model | stored as | weights, kB | KL to fp32 | top-1 | perplexity | |\n|---|---|---|---|---|---|---|")
    for name in args.models:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint, text = known(name, args.data, Path(folder))
            comparison = Comparison(checkpoint, Path(folder), peer, args.threads)
            for row in rows(comparison, text, args.kinds, args.budgets, args.tokens):
                cells = [name, row.name]
                if row.size and row.distance:
                    cells += [f"{row.size.weights / 1e3:.0f}", f"{row.distance.kl:.3g}", f"{row.distance.top1:.1%}"]
                    cells += [f"{row.distance.perplexity:.3f}", row.size.stored]
                else:
                    cells += ["", "", "", "", row.failure]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
