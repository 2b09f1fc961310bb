"""Time of a token and of a prompt in 3 bits and in 4, on shapes of the comparison with random weights, in turns.

    python -m bench.studies.few_bits_speed WORK [--shapes G S Q] [--rounds 12] [--threads 2]

Weights are rounded plainly, for the time does not depend on them: int4 is 4 bits with embedding and head in 8; the
other is 3 bits with embedding and head in 4, somewhat more than the 3.6 bits of ``--int3``. Checkpoints and bundles are
kept in WORK. Ratios are those of a round, whose two measurements follow each other; between the rounds the order turns.
"""

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.compare.checkpoints import write_checkpoint
from bench.compare.shapes import DENSE, SHAPES
from bench.studies.fusion import milliseconds
from edgegen import LLM, EngineOptions
from edgegen.bundle.bundle import Bundle
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import NARROW, ROUNDED

CONTEXT, PROMPT, TOKENS = 32, 512, 32
_THREE_BITS = next(form for form in NARROW if form.bits == 3 and form.symmetric)


def bundles(work: Path, shape: str) -> tuple[Path, Path]:
    """In 4 bits and in 3."""
    checkpoint, four, three = (work / f"{shape}-{kind}" for kind in ("checkpoint", "int4", "int3"))
    if not (checkpoint / "model.safetensors").exists():
        write_checkpoint(checkpoint, SHAPES[shape].sizes)
    before = ROUNDED["int4"]
    small = replace(before, linear=_THREE_BITS, embedding=before.linear)
    for target, recipe in ((four, before), (three, small)):
        if target.exists():
            continue
        ROUNDED["int4"] = recipe
        try:
            export(str(checkpoint), target, ExportOptions(scheme="int4", fast=True))
        finally:
            ROUNDED["int4"] = before
    return four, three


def prefill(llm: LLM, seed: int) -> float:
    """Milliseconds of a prompt that was not seen before."""
    ids = np.random.default_rng(seed).integers(0, llm.bundle.manifest.model.vocab_size, PROMPT).tolist()
    began = time.perf_counter()
    llm.generate(ids, max_new_tokens=1, temperature=0, eos_token_id=())
    return 1e3 * (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of a token and of a prompt in 3 bits and in 4.")
    parser.add_argument("work", type=Path)
    parser.add_argument("--shapes", nargs="*", default=list(DENSE))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print(
        "| shape | bits per weight | a token, ms: 4 bits | 3 bits | times as good | prompt of 512, ms: 4 | 3 | times |"
    )
    print("|---|---|---:|---:|---|---:|---:|---|")
    for shape in args.shapes:
        paths = bundles(args.work, shape)
        bits = [f"{Bundle.open(path).manifest.quantization.bits_per_weight:.2f}" for path in paths]
        llms = [LLM.load(path, options=EngineOptions(threads=args.threads, prefix_cache=0)) for path in paths]
        prompt = np.random.default_rng(0).integers(0, 1000, CONTEXT).tolist()
        tokens, prompts = list[list[float]](), list[list[float]]()
        for number in range(args.rounds + 1):
            token, whole = [0.0, 0.0], [0.0, 0.0]
            for i in (0, 1) if number % 2 else (1, 0):
                token[i] = milliseconds(llms[i], prompt, TOKENS)[0]
                whole[i] = min(prefill(llms[i], 2 * number), prefill(llms[i], 2 * number + 1))
            if number:  # the first round warms up
                tokens.append(token)
                prompts.append(whole)
        print(f"| {shape} | {' and '.join(bits)} | {_told(tokens)} | {_told(prompts)} |", flush=True)


def _told(rounds: list[list[float]]) -> str:
    """Medians, and the median of the ratios with their quartiles."""
    four, three = (statistics.median(column) for column in zip(*rounds, strict=True))
    low, middle, high = statistics.quantiles([a / b for a, b in rounds], n=4)
    return f"{four:.2f} | {three:.2f} | {middle:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
