"""Fused layers beside single operators: what `FusedLayers` saves of a token, one bundle run both ways in turns.

    python -m bench.studies.fusion BUNDLE --threads 2 --rounds 24

Milliseconds of a token after 32 others, through `LLM`: medians of all rounds, and the median and the quartiles of the
ratio of the two within a round. The answers must be the same. The machine should have nothing else to do.
"""

import argparse
import statistics
import time
from collections.abc import Iterable, Sequence

import numpy as np

from edgegen import LLM, EngineOptions
from edgegen.bundle.store import BundleStore
from edgegen.graph import kernel_operators
from edgegen.graph.node import GraphNode

CONTEXT, FEW = 32, 4


def one_by_one(nodes: Sequence[GraphNode | None], results: Iterable[bytes]) -> list[GraphNode | None]:
    """In the place of ``with_fused_layers``: the nodes as they are."""
    return list(nodes)


def milliseconds(llm: LLM, prompt: list[int], tokens: int) -> tuple[float, tuple[int, ...]]:
    """Of a token after the first few, and the answer."""
    took, ids = [0.0, 0.0], tuple[int, ...]()
    for i, count in enumerate((FEW, FEW + tokens)):
        began = time.perf_counter()
        ids = tuple(llm.generate(prompt, max_new_tokens=count, temperature=0, eos_token_id=()).token_ids)
        took[i] = time.perf_counter() - began
    return (took[1] - took[0]) / tokens * 1e3, ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", help="a name in the store, or a path")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=40)
    arguments = parser.parse_args()
    path, options = BundleStore().resolve(arguments.bundle), EngineOptions(threads=arguments.threads)
    fused = LLM.load(path, options=options)
    kernel_operators.with_fused_layers = one_by_one  # nothing else asks for it, and no user would
    single = LLM.load(path, options=options)
    vocabulary = fused.bundle.manifest.model.vocab_size
    prompt = np.random.default_rng(0).integers(0, vocabulary, CONTEXT).tolist()
    for llm in (fused, single):
        milliseconds(llm, prompt, arguments.tokens)
    rounds = list[tuple[float, float]]()
    for number in range(arguments.rounds):
        order = (fused, single) if number % 2 else (single, fused)
        found = {llm: milliseconds(llm, prompt, arguments.tokens) for llm in order}
        if found[fused][1] != found[single][1]:
            raise SystemExit("the answers differ")
        rounds.append((found[fused][0], found[single][0]))
    ours, other = (statistics.median(column) for column in zip(*rounds, strict=True))
    low, middle, high = statistics.quantiles([b / a for a, b in rounds], n=4)
    print("| fused, ms | one by one, ms | times as good | quartiles |\n|---:|---:|---:|---|")
    print(f"| {ours:.2f} | {other:.2f} | {middle:.2f} | {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    main()
