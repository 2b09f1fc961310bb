"""Fields of llama-server's answers, which other routes have too: timings, and the options in effect by its names."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from edgegen.generation.results import GenerationResult, PromptProgress
from edgegen.options.generation import GenerationOptions

SAMPLERS: Mapping[str, tuple[str, ...]] = {
    "penalties": ("repetition_penalty", "presence_penalty", "frequency_penalty"),
    "dry": ("dry_multiplier",),
    "top_n_sigma": ("top_n_sigma",),
    "top_k": ("top_k",),
    "typ_p": ("typical_p",),
    "top_p": ("top_p",),
    "min_p": ("min_p",),
    "xtc": ("xtc_probability",),
    "temperature": ("temperature",),
}
"""llama-server's samplers, in the order in which they run here, and the options that turn each on."""


def timings(prompt: int, cached: int, prompt_seconds: float, tokens: int, seconds: float) -> dict[str, Any]:
    """Counts and times, those of the prompt without what the KV cache had; times of nothing are 0."""
    read = prompt - cached
    return {
        "cache_n": cached,
        "prompt_n": read,
        "prompt_ms": prompt_seconds * 1e3,
        "prompt_per_token_ms": prompt_seconds * 1e3 / read if read else 0.0,
        "prompt_per_second": read / prompt_seconds if prompt_seconds else 0.0,
        "predicted_n": tokens,
        "predicted_ms": seconds * 1e3,
        "predicted_per_token_ms": seconds * 1e3 / tokens if tokens else 0.0,
        "predicted_per_second": tokens / seconds if seconds else 0.0,
    }


def result_timings(result: GenerationResult) -> dict[str, Any]:
    """:func:`timings` of a whole answer."""
    told = result.timings
    count = len(result.token_ids)
    return timings(told.prompt_tokens, told.cached_tokens, told.prompt_seconds, count, told.decode_seconds)


class RunningTimings:
    """:func:`timings` of an answer that is under way, with all tokens of its prompt as read."""

    def __init__(self, begin: float) -> None:
        """``begin``: when the request was read, by :func:`time.perf_counter`."""
        self.prompt_tokens = 0
        self.tokens = 0
        self._begin = begin
        self._first = self._last = 0.0

    def add(self, tokens: int) -> None:
        """Count the tokens of a piece that has come."""
        self._last = perf_counter()
        self._first = self._first or self._last
        self.tokens += tokens

    def told(self) -> dict[str, Any]:
        waited, wrote = self._first - self._begin, self._last - self._first
        return timings(self.prompt_tokens, 0, waited, self.tokens, wrote)


def prompt_progress(told: PromptProgress) -> dict[str, Any]:
    """How much of a prompt has been read."""
    return {
        "total": told.total,
        "cache": told.cached_tokens,
        "processed": told.processed,
        "time_ms": told.seconds * 1e3,
    }


def generation_settings(options: GenerationOptions) -> dict[str, Any]:
    """The options in effect, by llama-server's names."""
    greedy = not options.do_sample
    return {
        "n_predict": options.max_new_tokens,
        "max_tokens": options.max_new_tokens,
        "seed": options.seed,
        "temperature": 0.0 if greedy else options.temperature,
        "dynatemp_range": 0.0,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "top_n_sigma": options.top_n_sigma,
        "typ_p": options.typical_p,
        "xtc_probability": options.xtc_probability,
        "xtc_threshold": options.xtc_threshold,
        "repeat_last_n": -1 if options.penalty_last_n is None else options.penalty_last_n,
        "repeat_penalty": options.repetition_penalty,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "dry_multiplier": options.dry_multiplier,
        "dry_base": options.dry_base,
        "dry_allowed_length": options.dry_allowed_length,
        "mirostat": options.mirostat,
        "mirostat_tau": options.mirostat_tau,
        "mirostat_eta": options.mirostat_eta,
        "stop": [*options.stop_strings],
        "n_keep": 0,
        "n_probs": options.top_logprobs if options.logprobs else 0,
        "samplers": [*SAMPLERS],
    }
