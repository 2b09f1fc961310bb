"""Sampler: chooses the next token, greedily or at random."""

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.random_numbers import uniform
from edgegen.sampling.running_sum import RunningSum


class Sampler:
    """Chooses one of the candidates: the best (greedy), or one at random by probability."""

    def __init__(self, *, seed: int = 0, do_sample: bool = False) -> None:
        """Any ``seed`` will do, negative ones too; of a very long one the last 128 bits count."""
        self.seed = seed
        self.do_sample = do_sample

    def sample(self, candidates: Candidates, position: int) -> int:
        """The token id for ``position`` of the sequence; greedy takes the lowest id of equally good ones.

        Raises:
            EdgegenError: a logit is NaN or plus infinity, or all are minus infinity.
        """
        if not self.do_sample:
            return candidates.id_at(candidates.best())
        sums = RunningSum(candidates.weights())
        # Below the total even when rounded, so there always is an index, and its weight is never 0.
        return candidates.id_at(sums.first_beyond(uniform(self.seed, position) * sums.total))
