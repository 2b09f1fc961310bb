"""TokenChoice: what a sequence's own sampler makes of drafted logits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline
from edgegen.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True, eq=False)
class TokenChoice:
    """Chooses with the sampler, processors and random numbers of a sequence, so that what is drafted is the model's
    choice wherever the distributions agree. ``pipeline`` must not be stateful."""

    pipeline: LogitsPipeline
    sampler: Sampler
    prompt_length: int

    def of(self, logits: NDArray[np.float32], ids: Sequence[int]) -> int:
        """The token after ``ids``, by its logits [vocab].

        Raises:
            EdgegenError: a processor fails, or no token can be chosen.
        """
        context = LogitsContext(ids, self.prompt_length, None)
        return self.sampler.sample(self.pipeline(Candidates(logits), context), len(ids))
