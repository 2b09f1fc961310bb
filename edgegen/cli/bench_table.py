"""Table of benchmark results: a line for each figure, a column for each model."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from edgegen.benchmark import Benchmark, Spread
from edgegen.cli.printable import aligned

Item = TypeVar("Item")


def bench_table(results: Sequence[Benchmark]) -> str:
    """The figures that a person wants first come first; below them, what was left out."""

    def line(label: str, spell: Callable[[Benchmark], str]) -> list[str]:
        return [label, *map(spell, results)]

    def lines(
        label: str, table: Callable[[Benchmark], Mapping[int, Item]], spell: Callable[[Item], str]
    ) -> list[list[str]]:
        """One for each number that any model has a figure for."""
        tables = [table(one) for one in results]
        return [
            [label.format(n), *(spell(each[n]) if n in each else "-" for each in tables)]
            for n in sorted({n for each in tables for n in each})
        ]

    rows = [
        line("", lambda one: one.model),
        *lines("decode at {}, tokens/s", lambda one: one.decode, lambda speed: _spelled(speed.tokens_per_second)),
        *lines("prefill of {}, tokens/s", lambda one: one.prefill, _spelled),
        *lines("batch of {}, tokens/s", lambda one: one.batch, lambda speed: _spelled(speed.tokens_per_second)),
        line("start to first token, s", lambda one: _spelled(one.first_token_seconds)),
        line("load, s", lambda one: _spelled(one.load_seconds)),
        line("memory, MB", lambda one: _spelled(one.memory_bytes, 1e-6)),
        line("peak memory, MB", lambda one: _spelled(one.peak_bytes, 1e-6)),
        line("weights, MB", lambda one: _figure(one.weights_bytes / 1e6)),
        line("KV cache, MB", lambda one: _figure(one.kv_bytes / 1e6)),
        *lines("read per token at {}, MB", lambda one: one.decode, lambda speed: _figure(speed.bytes_per_token / 1e6)),
        line("memory bandwidth, GB/s", lambda one: _spelled(one.bandwidth, 1e-9)),
        *lines("share of it at {}, %", lambda one: one.decode, lambda speed: _spelled(speed.bandwidth_share, 100)),
        line("overhead per step, µs", lambda one: _spelled(one.decode[min(one.decode)].overhead_seconds, 1e6)),
        line("CPU after a step, ms", lambda one: _spelled(one.spin_seconds, 1e3)),
        line("CPU when idle, %", lambda one: _spelled(one.idle_cpu, 100)),
    ]
    left_out = (f"{one.model} has no room for {', '.join(one.left_out)}." for one in results if one.left_out)
    return "\n".join([*aligned(rows), *left_out])


def _spelled(spread: Spread | None, unit: float = 1.0) -> str:
    """The median, and in brackets the least and the greatest; what the system does not tell is a dash."""
    if spread is None:
        return "-"
    median, low, high = (_figure(value * unit) for value in (spread.median, spread.low, spread.high))
    return median if low == high else f"{median} ({low}-{high})"


def _figure(value: float) -> str:
    """With about three digits."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
