"""tune(): measures which threads, prefill chunk and type of KV cache are fastest for a bundle on this machine."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from edgegen.benchmark.options import BenchmarkOptions
from edgegen.benchmark.process import run_round
from edgegen.benchmark.result import RunRound
from edgegen.bundle.bundle import Bundle
from edgegen.errors import OptionError
from edgegen.options.engine import EngineOptions
from edgegen.options.tuned import TunedOptions
from edgegen.system import Cores, cores

_CHUNKS = (32, 64, 128, 256, 512)
_LONGEST_PROMPT = 512
_ANSWER = 64
"""Tokens of the answer of the request that counts; its prompt is as long as a context of 1024 has room for twice."""

_WORTH = 0.97
"""Another choice must take less than this share of the default's time: the rest is noise."""


_Change = Callable[[TunedOptions], TunedOptions]


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice, measured.

    Attributes:
        options: the choice.
        prefill_tokens_per_second, decode_tokens_per_second: of its fastest round.
        seconds: of a request: its prompt and an answer of 64 tokens.
    """

    options: TunedOptions
    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """The measurements of a bundle.

    Attributes:
        prompt_tokens: of the request that counts.
        default: what holds without tuning.
        chosen: the fastest, or the default where that is as fast.
        trials: everything measured, the default first.
    """

    prompt_tokens: int
    default: Trial
    chosen: Trial
    trials: tuple[Trial, ...]


def tune(
    bundle: Bundle,
    *,
    repeats: int = 2,
    on_progress: Callable[[int, int], object] | None = None,
    run_round: RunRound = run_round,
    found: Cores | None = None,
) -> Tuning:
    """Measure threads first, then prefill chunks with the best of them, then the types of KV cache that there are.

    Each is measured in ``repeats`` fresh processes, in turns; the fastest counts. ``found``: the cores of the machine.

    Raises:
        BundleError: the bundle cannot be used.
        OptionError: ``repeats`` is below 1, or the model has no room for a token and another one.
        LogitsError: the model's logits are NaN or infinite.
    """
    if repeats < 1:
        raise OptionError(f"repeats: at least 1 expected, found {repeats}")
    context = bundle.manifest.model.max_context
    prompt = max(1, min(_LONGEST_PROMPT, context // 2))
    known = found or cores()
    start = TunedOptions(known.usable, EngineOptions().prefill_chunk, bundle.variant.kv.dtype)
    axes: list[list[_Change]] = [
        [partial(replace, threads=threads) for threads in thread_choices(known)],
        [partial(replace, prefill_chunk=chunk) for chunk in _CHUNKS if chunk <= prompt],
        [partial(replace, kv=variant.kv.dtype) for variant in bundle.manifest.variants],
    ]
    bundle.verify_once()
    done, total = 0, repeats * sum(len(_choices(start, axis)) for axis in axes)
    measured = dict[TunedOptions, Trial]()
    best = start
    for axis in axes:
        choices = _choices(best, axis)
        for _ in range(repeats):
            for choice in choices:  # the best so far again: the machine may have become slower since
                trial = _measure(bundle, choice, prompt, run_round)
                measured[choice] = min(measured.get(choice, trial), trial, key=lambda one: one.seconds)
                done += 1
                if on_progress is not None:
                    on_progress(done, total)
        quickest = min((measured[choice] for choice in choices), key=lambda one: one.seconds)
        if quickest.seconds < _WORTH * measured[best].seconds:
            best = quickest.options
    return Tuning(prompt, measured[start], measured[best], tuple(measured.values()))


def thread_choices(known: Cores) -> list[int]:
    """The default, one less, half of it, and all physical cores, as far as a quota allows."""
    most = known.physical if known.quota is None else min(known.physical, math.ceil(known.quota))
    return sorted({max(1, n) for n in (known.usable, known.usable - 1, known.usable // 2, most)})


def _choices(best: TunedOptions, axis: Sequence[_Change]) -> list[TunedOptions]:
    return [*dict.fromkeys([best, *(change(best) for change in axis)])]


def _measure(bundle: Bundle, choice: TunedOptions, prompt: int, run_round: RunRound) -> Trial:
    options = BenchmarkOptions(
        prefill=(prompt,),
        contexts=(prompt,),
        batches=(1,),
        repeats=1,
        threads=choice.threads,
        kv=choice.kv,
        prefill_chunk=choice.prefill_chunk,
    )
    found = run_round(bundle.path, options, lambda: None)
    step = median(found.decode[0].step_seconds)
    prefill = found.prefill[0]
    return Trial(choice, prefill.tokens / prefill.seconds, 1 / step, prefill.seconds + _ANSWER * step)
