"""plan_memory(): chooses context, type of KV cache and prefill chunk for a process within a limit of memory."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from edgegen.benchmark.memory_forecast import MemoryForecast, bias_bytes, forecast_memory, kv_bytes
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_cost import mean_kl
from edgegen.bundle.manifest import GraphVariant
from edgegen.errors import UsageError
from edgegen.model.kernels import runs_kernels
from edgegen.options.engine import EngineOptions

PLANNED = 0.9
"""The share of the limit that is planned: forecasts are right within 8%, as measured."""

_STEP = 64
"""Contexts are multiples of it, as the KV cache's capacity is."""

_CHUNKS = (128, 64, 32, 16)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Options, context and sequences that fit into a memory limit.

    Attributes:
        options: with the KV cache's type and budget and the prefill chunk.
        context: tokens of prompt and answer that one sequence has room for.
        sequences: of the whole context, how many there is room for at once; at least 1.
        limit: bytes that were allowed.
        forecast: what the process will take at most.
    """

    options: EngineOptions
    context: int
    sequences: int
    limit: int
    forecast: MemoryForecast

    def __str__(self) -> str:
        kv, chunk = self.options.kv, self.options.prefill_chunk
        several = f" for {self.sequences} sequences at once" if self.sequences > 1 else ""
        return (
            f"about {_mb(self.forecast.total)} of {_mb(self.limit)} ({describe_forecast(self.forecast)}): "
            f"context of {self.context} tokens{several}, {kv} KV cache, prefill chunks of {chunk}"
        )


def plan_memory(
    bundle: Bundle,
    limit: int,
    options: EngineOptions,
    *,
    given: Iterable[str] = (),
    batch: int = 1,
    beside: int = 0,
    prefixes: float = 0,
    draft: Bundle | None = None,
) -> MemoryPlan:
    """Plan a process of ``limit`` bytes for up to ``batch`` sequences at once.

    A whole context comes first: for it chunks become smaller, then the KV cache, of the dtypes that the bundle has and,
    where our kernels run, of those that the parity report has at most ``most_kl`` of; what is among the ``given`` names
    stays. ``beside``: bytes of the process that are no model's. ``prefixes``: bytes kept of finished requests, as
    a share of the KV cache.

    Raises:
        UsageError: not even a short context fits; the message has the numbers.
    """
    most = bundle.manifest.model.max_context
    room = int(limit * PLANNED) - beside
    least, best = None, None
    for choice in _choices(bundle, options, set(given)):
        of_one, of_bias = kv_bytes(bundle, choice), bias_bytes(bundle, choice)
        bare = forecast_memory(bundle, choice, context=0, batch=batch, kv=0, draft=draft)
        shortest = min(_STEP, most)
        needed = bare.total + int(of_one(shortest) * (1 + prefixes)) + of_bias(shortest)
        least = needed if least is None else min(least, needed)
        contexts = (*range(_STEP, most, _STEP), most)
        most_kv = choice.kv_budget or math.inf
        allowed = {n: min(most_kv, (room - bare.total - of_bias(n)) / (1 + prefixes)) for n in contexts}
        context = max((n for n in contexts if of_one(n) <= allowed[n]), default=0)
        if context < shortest or (best is not None and best.context >= context):
            continue
        budget = min(int(allowed[context]), batch * of_one(most))
        best = MemoryPlan(
            replace(choice, kv_budget=budget, prefix_cache=int(budget * prefixes) if prefixes else choice.prefix_cache),
            context,
            max(1, budget // of_one(context)),
            limit,
            replace(
                bare,
                python=bare.python + beside,
                kv=budget + int(budget * prefixes),
                activations=bare.activations + of_bias(context),
            ),
        )
        if context == most:
            break
    if best is None:
        assert least is not None
        bare = forecast_memory(bundle, options, context=0, kv=0, draft=draft)
        raise UsageError(
            f"{bundle.manifest.name} needs at least {_mb((least + beside) / PLANNED)} for a context of "
            f"{min(_STEP, most)} tokens ({describe_forecast(replace(bare, python=bare.python + beside))}), and "
            f"--max-memory allows {_mb(limit)}: give more, or a smaller model (int4, fewer parameters)."
        )
    return best


def describe_forecast(forecast: MemoryForecast) -> str:
    """The parts in a few words."""
    parts = {
        "Python and ONNX Runtime": forecast.python,
        "weights": forecast.weights,
        "tokenizer": forecast.tokenizer,
        "KV cache": forecast.kv,
        "activations and buffers": forecast.activations,
        "draft model": forecast.draft,
        "prediction head": forecast.head,
    }
    return ", ".join(f"{_mb(count)} {name}" for name, count in parts.items() if count)


def _choices(bundle: Bundle, options: EngineOptions, fixed: set[str]) -> Iterator[EngineOptions]:
    """Yield the options to try, the preferred first."""
    wanted = bundle.variant_with(options.kv).kv.dtype
    converted = bundle.converted_variants if runs_kernels(options.kernels) else ()
    variants = [*bundle.manifest.variants, *(one for one in converted if _is_near(bundle, one))]
    there = {variant.kv.dtype: variant.kv.bytes_per_token for variant in variants}
    smaller = [dtype for dtype in sorted(there, key=lambda dtype: there[dtype]) if there[dtype] < there[wanted]]
    types = [wanted] if "kv" in fixed else [wanted, *reversed(smaller)]
    chunk = options.prefill_chunk
    chunks = [chunk] if "prefill_chunk" in fixed else [chunk, *(n for n in _CHUNKS if n < chunk)]
    for dtype in types:
        for n in chunks:
            yield replace(options, kv=dtype, prefill_chunk=n)


def _is_near(bundle: Bundle, variant: GraphVariant) -> bool:
    """Whether the bundle's report says of a KV cache that it costs the model little."""
    cost = mean_kl(bundle, variant)
    return cost is not None and cost <= variant.kv.format.most_kl


def _mb(count: float) -> str:
    return f"{count / 1e6:,.0f} MB"
