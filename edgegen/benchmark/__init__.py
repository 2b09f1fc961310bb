"""A user's own numbers: how fast bundles run on this machine, in how much memory, and how far that is from its limit.

::

    from edgegen.benchmark import BenchmarkOptions, run_benchmark

    (mine,) = run_benchmark(["stories"], BenchmarkOptions(contexts=(32, 128)))
    mine.decode[32].tokens_per_second.median

Every round of every model runs in a fresh process (:mod:`edgegen.benchmark.process`), one model after the other and
again: loading is cold, memory is the model's own, and what else the machine does meanwhile meets all alike. This
package itself loads nothing heavy.
"""

from edgegen.benchmark.options import BenchmarkOptions, Plan
from edgegen.benchmark.process import run_round
from edgegen.benchmark.result import BatchSpeed, Benchmark, DecodeSpeed, Spread, run_benchmark
from edgegen.benchmark.round import Batch, Decode, Prefill, Round

__all__ = [
    "Batch",
    "BatchSpeed",
    "Benchmark",
    "BenchmarkOptions",
    "Decode",
    "DecodeSpeed",
    "Plan",
    "Prefill",
    "Round",
    "Spread",
    "run_benchmark",
    "run_round",
]
