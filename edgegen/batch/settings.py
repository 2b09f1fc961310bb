"""BatchSettings: the options that apply to every line of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgegen.bundle.bundle import Bundle
from edgegen.model.kernels import runs_kernels
from edgegen.model.loading import wants_gpu
from edgegen.options.engine import EngineOptions
from edgegen.sampling.random_numbers import philox4x64

_STREAM = 0x6261746368
"""Sets the seeds of lines apart from whatever else is drawn with the batch's: "batch"."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """
    Attributes:
        model: a bundle's name or path.
        options: what lines leave open, by option; what this leaves open too, the bundle says.
        created: when the batch was begun, in seconds since 1970; answers in OpenAI's format tell it.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    engine: EngineOptions = field(default_factory=EngineOptions)
    created: int = 0

    def line_seed(self, number: int) -> int | None:
        """The seed of line ``number``, if it has none itself; None if the batch has none either."""
        seed = self.options.get("seed")
        return None if seed is None else philox4x64((number, 0, 0, 0), (seed, _STREAM))[0]

    def fingerprint(self, bundle: Bundle) -> dict[str, str]:
        """Return the text form of everything beside its line that an answer depends on, by name; ``bundle`` is the
        model."""
        variant = bundle.variant_with(self.engine.kv)
        on_cpu = "own" if runs_kernels(self.engine.kernels) else "stock"  # of any processor: they compute the same bits
        return {
            "model": bundle.digest,
            "variant": variant.name,
            "kernels": "CUDA" if wants_gpu(self.engine) else on_cpu,
            **{name: repr(value) for name, value in sorted(self.options.items())},
        }
