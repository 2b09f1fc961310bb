"""Bad words: token sequences that must not be generated."""

import math
from collections.abc import Collection, Sequence

from edgegen.options.sampling import TokenSequence
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.processors.sequence_bias import SequenceBias


class BadWords:
    """Masks each token that would complete one of ``words`` (``bad_words_ids``).

    An end-of-sequence id alone is no word: transformers lets it pass, too.
    """

    def __init__(self, words: Sequence[TokenSequence], eos_token_ids: Collection[int]) -> None:
        banned = [word for word in words if len(word) != 1 or word[0] not in eos_token_ids]
        self._bias = SequenceBias(dict.fromkeys(banned, -math.inf))

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return self._bias(candidates, context)
