"""BenchmarkOptions: what a benchmark measures; Plan: the part of it that fits a model's context."""

from dataclasses import dataclass
from typing import Any, Literal

from edgegen.bundle.kv_format import KVDtype
from edgegen.errors import OptionError, refuse_any
from edgegen.options.engine import EngineOptions
from edgegen.options.validation import number

STEPS = 32
"""Decode steps at each context: of these the median counts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Measurements to take of one model.

    Attributes:
        prefill: lengths of prompts, in tokens.
        contexts: tokens of context before the first decode step.
        batches: numbers of sequences that are decoded together, each with its own context of ``contexts[0]`` tokens.
        steps: decode steps of each context and batch.
        left_out: prompts and contexts that were asked for and that the model has no room for, in words.
    """

    prefill: tuple[int, ...]
    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    steps: int
    left_out: tuple[str, ...]

    @property
    def parts(self) -> int:
        """How many parts a round has, to show progress: the start, each measurement, the bandwidth."""
        return 2 + len(self.prefill) + len(self.contexts) + len(self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkOptions:
    """
    Attributes:
        prefill: lengths of prompts to measure prefill with, in tokens.
        contexts: tokens of context to measure decoding at.
        batches: numbers of sequences to decode together.
        repeats: rounds, each in a fresh process for each model.
        threads, kv, prefill_chunk, kernels: as in :class:`~edgegen.EngineOptions`.
    """

    prefill: tuple[int, ...] = (32, 128, 512)
    contexts: tuple[int, ...] = (32, 256, 900)
    batches: tuple[int, ...] = (1, 4, 8)
    repeats: int = 3
    threads: int | None = None
    kv: KVDtype | None = None
    prefill_chunk: int = EngineOptions().prefill_chunk
    kernels: Literal["auto", "stock"] = "auto"

    def __post_init__(self) -> None:
        problems = [
            *_counts("prefill", self.prefill),
            *_counts("context", self.contexts),
            *_counts("batch", self.batches),
            *number("repeats", self.repeats, int, 1),
            *_engine_problems(threads=self.threads, prefill_chunk=self.prefill_chunk, kv=self.kv, kernels=self.kernels),
        ]
        refuse_any(problems, OptionError)

    def plan(self, max_context: int) -> Plan:
        """Plan the measurements that a model of ``max_context`` tokens has room for; where no length fits, the longest
        that does.

        Raises:
            OptionError: it has no room for a token and another one.
        """
        if max_context < 2:
            raise OptionError("a model with room for a single token has nothing to measure.")
        steps = min(STEPS, max_context // 2)
        longest_prompt, longest_context = max_context - 1, max_context - steps
        return Plan(
            prefill=_fitting(self.prefill, longest_prompt),
            contexts=_fitting(self.contexts, longest_context),
            batches=_ordered(self.batches),
            steps=steps,
            left_out=(
                *(f"a prompt of {n} and a token" for n in _ordered(self.prefill) if n > longest_prompt),
                *(f"{steps} tokens after {n}" for n in _ordered(self.contexts) if n > longest_context),
            ),
        )


def _counts(name: str, values: tuple[int, ...]) -> list[str]:
    problems = [problem for value in values for problem in number(name, value, int, 1)]
    return problems if values else [f"{name}: at least one number expected, found none"]


def _engine_problems(**given: Any) -> list[str]:
    """Each by itself, so that a message is about one of them."""
    problems = list[str]()
    for name, value in given.items():
        try:
            EngineOptions(**{name: value})
        except OptionError as error:
            problems.append(str(error))
    return problems


def _fitting(lengths: tuple[int, ...], longest: int) -> tuple[int, ...]:
    return tuple(n for n in _ordered(lengths) if n <= longest) or (longest,)


def _ordered(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(values)))
