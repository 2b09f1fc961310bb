"""Statistics line of an answer: tokens, times, speed and memory, for ``--stats``."""

from typing import TYPE_CHECKING

from edgegen.system import peak_memory

if TYPE_CHECKING:
    from edgegen.generation.results import GenerationResult


def stats_line(result: "GenerationResult", load_seconds: float | None = None, kernels: str | None = None) -> str:
    """Times, tokens, memory and the end, in one line; the time of loading and what ran where they are given."""
    t, memory, speculation = result.timings, peak_memory(), result.speculation
    known = f", {t.cached_tokens} of them known before," if t.cached_tokens else ""
    parts = [
        *([f"load {load_seconds:.2f} s"] if load_seconds is not None else []),
        f"prompt {t.prompt_tokens} tokens{known} in {t.prompt_seconds:.3f} s ({t.prompt_tokens_per_second:.0f} tok/s)",
        (
            f"{len(result.token_ids)} new tokens, decoded in {t.decode_seconds:.3f} s "
            f"({t.decode_tokens_per_second:.0f} tok/s)"
        ),
        *([_accepted(result)] if speculation.runs else []),
        *([f"kernels {kernels}"] if kernels is not None else []),
        *([f"peak memory {memory / 1e6:.0f} MB"] if memory else []),
        f"ended by {result.finish_reason}" + (f" ({result.matched!r})" if result.matched is not None else ""),
        *([f"seed {result.seed}"] if result.seed is not None else []),
    ]
    return " · ".join(parts)


def _accepted(result: "GenerationResult") -> str:
    """Describe what came of proposals: a step produces one token, and those accepted besides."""
    speculation, tokens = result.speculation, len(result.token_ids)
    in_step = tokens / max(1, tokens - speculation.accepted)
    return f"{speculation.accepted} of {speculation.proposed} proposed tokens accepted, {in_step:.2f} tokens per step"
