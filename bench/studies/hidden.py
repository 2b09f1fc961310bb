"""Cost of an output of hidden states for users who do not ask for it: disk, decode and prefill.

    python -m bench.compare.checkpoints ./gpt2
    edgegen export ./gpt2 -o ./plain --int8 --fast && edgegen export ./gpt2 -o ./hidden --int8 --fast --with-hidden
    python -m bench.studies.hidden ./plain ./hidden

Both bundles run in turns, on one thread, and processor time counts: other programs may run meanwhile. Prints medians
over the rounds, and the median of the rounds' ratios.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np

from edgegen.bundle.bundle import Bundle
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions

ROUNDS = 40
CONTEXT, DECODED, PREFILLED = 256, 8, 128


def main() -> int:
    parser = argparse.ArgumentParser(description="What an output of hidden states costs.")
    parser.add_argument("plain", type=Path)
    parser.add_argument("hidden", type=Path)
    given = parser.parse_args()
    bundles = [Bundle.open(given.plain), Bundle.open(given.hidden)]
    pairs = [_runs(bundle) for bundle in bundles]
    print(f"disk: {bundles[0].nbytes / 1e6:.3f} MB plain, {bundles[1].nbytes / 1e6:.3f} MB with hidden states")
    for what in pairs[0]:
        for pair in pairs:
            pair[what]()  # warm up
        rounds = list[list[float]]()
        for n in range(ROUNDS):
            turn = [1, 0] if n % 2 else [0, 1]  # neither has the better place
            timed = {which: _timed(pairs[which][what]) for which in turn}
            rounds.append([timed[0], timed[1]])
        seconds = np.array(rounds)
        plain, hidden = (median(column.tolist()) * 1e3 for column in seconds.T)
        ratio = median((seconds[:, 1] / seconds[:, 0]).tolist())
        print(f"{what}: {plain:.2f} ms plain, {hidden:.2f} ms with hidden states, ratio {ratio:.3f}")
    return 0


def _runs(bundle: Bundle) -> dict[str, Callable[[], None]]:
    """Runs of the model that do not ask for hidden states, and of the prefill that may."""
    runner = open_runner(bundle, EngineOptions(threads=1))
    cache = runner.new_cache()
    ids = np.random.default_rng(0).integers(0, runner.vocab_size, CONTEXT).tolist()
    runner.prefill(cache, 0, ids)

    def decode() -> None:
        for token in ids[:DECODED]:
            runner.decode(cache, np.array([[token]], np.int64))
        cache.truncate(0, CONTEXT)

    def prefill() -> None:
        runner.prefill(cache, 1, ids[:PREFILLED])
        cache.truncate(1, 0)

    def embed() -> None:
        asked = bundle.variant.hidden_states is not None
        runner.prefill(cache, 1, ids[:PREFILLED], (lambda hidden: None) if asked else None)
        cache.truncate(1, 0)

    return {
        f"{DECODED} decode steps at {CONTEXT} tokens": decode,
        f"prefill of {PREFILLED} tokens": prefill,
        f"prefill of {PREFILLED} tokens that asks for them": embed,
    }


def _timed(run: Callable[[], None]) -> float:
    begin = process_time()
    run()
    return process_time() - begin


if __name__ == "__main__":
    raise SystemExit(main())
