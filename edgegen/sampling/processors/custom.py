"""Custom processors: functions of the caller."""

import numpy as np

from edgegen.errors import UsageError
from edgegen.options.sampling import LogitsFunction
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.id_array import IdArray
from edgegen.sampling.processor import LogitsContext


class CustomProcessor:
    """Lets a plain function on arrays be a processor. It sees the whole vocabulary, before anything is cut off."""

    def __init__(self, function: LogitsFunction) -> None:
        self.function = function
        self._ids = IdArray()

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        """
        Raises:
            UsageError: the function returned no logits: another shape, no numbers, NaN or plus infinity.
        """
        returned = self.function(self._ids.view(context.token_ids), candidates.logits.copy())
        if returned is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise UsageError(f"{self._name} returned nothing: return the logits, changed or not")
        try:
            logits = np.asarray(returned, np.float32)
        except (TypeError, ValueError):
            raise UsageError(f"{self._name} returned {type(returned).__name__}, not an array of logits") from None
        if logits.shape != candidates.logits.shape:
            raise UsageError(f"{self._name} returned shape {logits.shape}, not {candidates.logits.shape}")
        if not logits.max() < np.inf:
            raise UsageError(f"{self._name} returned NaN or plus infinity; to forbid a token, set minus infinity")
        return candidates.with_logits(logits)

    @property
    def _name(self) -> str:
        return f"the logits processor {getattr(self.function, '__name__', type(self.function).__name__)!r}"
