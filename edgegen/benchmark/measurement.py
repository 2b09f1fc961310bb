"""measure(): one round of measurements in this process, which should be fresh (:mod:`edgegen.benchmark.process`)."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from edgegen.benchmark.bandwidth import megabytes_for, read_bandwidth
from edgegen.benchmark.options import BenchmarkOptions
from edgegen.benchmark.round import Batch, Decode, Prefill, Round
from edgegen.benchmark.timed_graphs import TimedGraphs
from edgegen.benchmark.workbench import Workbench
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant
from edgegen.graph.external_data import bytes_read
from edgegen.model.interfaces import make_runner
from edgegen.model.kernels import runs_kernels
from edgegen.model.loading import open_graphs, open_tokenizer
from edgegen.model.ort_session import runtime_version
from edgegen.model.sliding_window import bytes_needed, windows_of
from edgegen.options.engine import EngineOptions
from edgegen.system import (
    available_memory,
    peak_memory,
    physical_cores,
    proportional_memory,
    read_regular,
    second_level_cache,
)

_SPIN_SECONDS = 0.2
"""By then every thread that waited for more work has given up; ONNX Runtime's take 0.04 s."""

_IDLE_SECONDS = 0.3
_BANDWIDTH_SECONDS = 0.3

Result = TypeVar("Result")


def measure(
    path: Path,
    options: BenchmarkOptions,
    *,
    on_first_token: Callable[[], object] = lambda: None,
    on_part: Callable[[], object] = lambda: None,
) -> Round:
    """Measure the bundle at ``path``; ``on_part`` is called after each of the plan's parts.

    Raises:
        BundleError: the bundle cannot be used.
        UsageError: it has no variant as ``options`` ask for.
        LogitsError: the model's logits are NaN or infinite.
    """
    begin = time.perf_counter()
    bundle = Bundle.open(path)
    bundle.verify_once()
    tokenizer = open_tokenizer(bundle)
    load_seconds = time.perf_counter() - begin
    bare = proportional_memory()

    begin = time.perf_counter()
    variant = bundle.variant_with(options.kv)
    workbench = _workbench(bundle, variant, options)
    load_seconds += time.perf_counter() - begin

    plan = options.plan(bundle.manifest.model.max_context)
    longest = plan.prefill[-1]
    workbench.begin(longest, on_first_token)
    spin_seconds, idle = cpu_seconds(_SPIN_SECONDS), cpu_seconds(_IDLE_SECONDS)
    memory, peak = proportional_memory(), peak_memory()
    del tokenizer  # until here it was to be in memory
    on_part()

    weights_read = bytes_read(read_regular(bundle.file(variant.decode)))

    def decode(context: int) -> Decode:
        steps = workbench.decode(1, context, plan.steps)
        return Decode(context, weights_read + variant.kv.bytes_seen(context), steps.whole, steps.graph)

    def batch(rows: int) -> Batch:
        context = plan.contexts[0]
        return Batch(rows, context, workbench.decode(rows, context, plan.steps).whole)

    def bandwidth(threads: int) -> float:
        return read_bandwidth(threads, megabytes_for(weights_read, available_memory()), _BANDWIDTH_SECONDS)

    windows = windows_of(variant.kv, second_level_cache(), kernels=runs_kernels(options.kernels))
    return Round(
        onnxruntime=runtime_version(),
        load_seconds=load_seconds,
        first_token_seconds=None,
        memory_bytes=None if memory is None or bare is None else memory - bare,
        peak_bytes=peak,
        kv_bytes=bytes_needed(variant.kv, windows, longest + 1),
        spin_seconds=spin_seconds,
        idle_cpu=idle / _IDLE_SECONDS,
        prefill=_each(plan.prefill, lambda tokens: Prefill(tokens, workbench.prefill(tokens)), on_part),
        decode=_each(plan.contexts, decode, on_part),
        batch=_each(plan.batches, batch, on_part),
        bandwidth=_each([options.threads or physical_cores()], bandwidth, on_part)[0],
    )


def cpu_seconds(seconds: float) -> float:
    """CPU time that this process's threads take while this one sleeps for so long."""
    used = time.process_time()
    time.sleep(seconds)
    return time.process_time() - used


def _workbench(bundle: Bundle, variant: GraphVariant, options: BenchmarkOptions) -> Workbench:
    graphs = TimedGraphs(
        open_graphs(bundle, variant, EngineOptions(threads=options.threads, kernels=options.kernels)), time.perf_counter
    )
    model = bundle.manifest.model
    return Workbench(make_runner(graphs, variant, model.vocab_size, model.max_context), graphs, options.prefill_chunk)


def _each(
    values: Iterable[int], measure_one: Callable[[int], Result], on_part: Callable[[], object]
) -> tuple[Result, ...]:
    results = list[Result]()
    for value in values:
        results.append(measure_one(value))
        on_part()
    return tuple(results)
