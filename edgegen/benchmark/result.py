"""Benchmark: the combined results of all rounds of one model; run_benchmark() runs the rounds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from statistics import median
from typing import Protocol, Self

from edgegen.benchmark.options import BenchmarkOptions
from edgegen.benchmark.process import run_round
from edgegen.benchmark.round import Decode, Round
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.store import BundleStore
from edgegen.system import physical_cores


class RunRound(Protocol):
    """Measures a bundle once: :func:`~edgegen.benchmark.run_round`, or what stands in for it."""

    def __call__(self, path: Path, options: BenchmarkOptions, on_part: Callable[[], object], /) -> Round: ...


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum: a handful of repeats supports no finer statistics."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Of one value or more."""
        every = tuple(values)
        return cls(median(every), min(every), max(every))

    @classmethod
    def of_known(cls, values: Iterable[float | None]) -> Self | None:
        """None where a value is not known."""
        every = tuple(values)
        known = tuple(value for value in every if value is not None)
        return cls.of(known) if len(known) == len(every) else None


@dataclass(frozen=True, slots=True)
class DecodeSpeed:
    """Decoding one row at a context. A round counts by the median of its steps.

    Attributes:
        tokens_per_second: whole steps.
        overhead_seconds: what a step took outside ONNX Runtime, each compared with itself.
        bytes_per_token: what a step has to read, of weights and KV cache.
        bandwidth_share: bytes read per second, over what the round found this machine to read.
    """

    tokens_per_second: Spread
    overhead_seconds: Spread
    bytes_per_token: int
    bandwidth_share: Spread


@dataclass(frozen=True, slots=True)
class BatchSpeed:
    """Decoding several rows together, begun with ``context`` tokens each."""

    context: int
    tokens_per_second: Spread


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One model's numbers; :class:`Round` says what each of them is.

    Attributes:
        model: its name or path, as it was asked for.
        threads: threads it computed with.
        kv: data type of the KV cache.
        weights_bytes: the weights' file.
        kv_bytes_per_token: bytes of KV cache that one token adds.
        left_out: what was asked for and the model has no room for, in words.
        rounds: everything raw.
    """

    model: str
    threads: int
    kv: KVDtype
    weights_bytes: int
    kv_bytes_per_token: int
    left_out: tuple[str, ...]
    rounds: tuple[Round, ...]

    @property
    def load_seconds(self) -> Spread:
        return Spread.of(one.load_seconds for one in self.rounds)

    @property
    def first_token_seconds(self) -> Spread | None:
        return Spread.of_known(one.first_token_seconds for one in self.rounds)

    @property
    def memory_bytes(self) -> Spread | None:
        return Spread.of_known(one.memory_bytes for one in self.rounds)

    @property
    def peak_bytes(self) -> Spread | None:
        return Spread.of_known(one.peak_bytes for one in self.rounds)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache in use when ``memory_bytes`` was read."""
        return self.rounds[0].kv_bytes

    @property
    def spin_seconds(self) -> Spread:
        return Spread.of(one.spin_seconds for one in self.rounds)

    @property
    def idle_cpu(self) -> Spread:
        return Spread.of(one.idle_cpu for one in self.rounds)

    @property
    def bandwidth(self) -> Spread:
        """Bytes per second."""
        return Spread.of(one.bandwidth for one in self.rounds)

    @property
    def prefill(self) -> dict[int, Spread]:
        """Tokens per second, by the prompt's length."""
        return {
            prompts[0].tokens: Spread.of(prompt.tokens / prompt.seconds for prompt in prompts)
            for prompts in zip(*(one.prefill for one in self.rounds), strict=True)
        }

    @property
    def decode(self) -> dict[int, DecodeSpeed]:
        """By the tokens of context at the start."""
        bandwidths = [one.bandwidth for one in self.rounds]
        return {
            runs[0].context: self._decode_speed(runs, bandwidths)
            for runs in zip(*(one.decode for one in self.rounds), strict=True)
        }

    @property
    def batch(self) -> dict[int, BatchSpeed]:
        """By the number of rows."""
        return {
            runs[0].rows: BatchSpeed(runs[0].context, Spread.of(run.rows / median(run.step_seconds) for run in runs))
            for runs in zip(*(one.batch for one in self.rounds), strict=True)
        }

    def _decode_speed(self, runs: Sequence[Decode], bandwidths: Iterable[float]) -> DecodeSpeed:
        bytes_per_token = runs[0].bytes_per_token
        steps = [median(run.step_seconds) for run in runs]
        return DecodeSpeed(
            tokens_per_second=Spread.of(1 / step for step in steps),
            overhead_seconds=Spread.of(median(map(sub, run.step_seconds, run.graph_seconds)) for run in runs),
            bytes_per_token=bytes_per_token,
            bandwidth_share=Spread.of(
                bytes_per_token / step / bandwidth for step, bandwidth in zip(steps, bandwidths, strict=True)
            ),
        )


def run_benchmark(
    models: Sequence[str | Path],
    options: BenchmarkOptions | None = None,
    *,
    on_progress: Callable[[int, int], object] | None = None,
    run_round: RunRound = run_round,
) -> list[Benchmark]:
    """Measure models, bundles by name or path, in rounds: each once, and all of them again.

    ``on_progress`` is told how much is done, and of how much.

    Raises:
        BundleError: one is not there, or cannot be used.
        UsageError: one has no variant as ``options`` ask for, or no room for two tokens.
        LogitsError: the logits of one are NaN or infinite.
    """
    options = options or BenchmarkOptions()
    bundles = [Bundle.open(BundleStore().resolve(model)) for model in models]
    plans = [options.plan(bundle.manifest.model.max_context) for bundle in bundles]
    variants = [bundle.variant_with(options.kv) for bundle in bundles]
    for bundle in bundles:
        bundle.verify_once()
    done, total = 0, options.repeats * sum(plan.parts for plan in plans)

    def on_part() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, total)

    rounds: list[list[Round]] = [[] for _ in bundles]
    for _ in range(options.repeats):
        for bundle, mine in zip(bundles, rounds, strict=True):
            mine.append(run_round(bundle.path, options, on_part))
    return [
        Benchmark(
            model=str(model),
            threads=options.threads or physical_cores(),
            kv=variant.kv.dtype,
            weights_bytes=bundle.size_of(variant.weights),
            kv_bytes_per_token=variant.kv.bytes_per_token,
            left_out=plan.left_out,
            rounds=tuple(mine),
        )
        for model, bundle, variant, plan, mine in zip(models, bundles, variants, plans, rounds, strict=True)
    ]
