"""Masks and biases: given tokens that must not be generated, must be, or are more or less likely."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from edgegen.options.sampling import TokenSequence
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext


class SuppressTokens:
    """Masks ``token_ids`` at every step."""

    def __init__(self, token_ids: Collection[int]) -> None:
        self._ids = np.array(sorted(token_ids), np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.mask(self._ids)


class SuppressTokensAtBegin:
    """Masks ``token_ids`` for the first token; where that is forced (``after_forced_bos``), for the second."""

    def __init__(self, token_ids: Collection[int], *, after_forced_bos: bool = False) -> None:
        self._ids = np.array(sorted(token_ids), np.int64)
        self.after_forced_bos = after_forced_bos

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        begin = int(self.after_forced_bos and context.prompt_length == 1)
        return candidates.mask(self._ids) if context.step == begin else candidates


class MinLength:
    """Masks the end-of-sequence ids until prompt and text together have ``length`` tokens."""

    def __init__(self, length: int, eos_token_ids: Collection[int]) -> None:
        self.length = length
        self._eos = np.array(sorted(eos_token_ids), np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.mask(self._eos) if len(context.token_ids) < self.length else candidates


class MinNewTokens:
    """Masks the end-of-sequence ids until ``count`` tokens have been generated."""

    def __init__(self, count: int, eos_token_ids: Collection[int]) -> None:
        self.count = count
        self._eos = np.array(sorted(eos_token_ids), np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.mask(self._eos) if context.step < self.count else candidates


class ForcedBos:
    """Only ``token_id`` may follow a prompt of one token (``forced_bos_token_id``)."""

    def __init__(self, token_id: int) -> None:
        self._ids = np.array([token_id], np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.force(self._ids) if len(context.token_ids) == 1 else candidates


class ForcedEos:
    """Only one of ``token_ids`` may be the last of ``max_new_tokens`` (``forced_eos_token_id``)."""

    def __init__(self, token_ids: Collection[int], max_new_tokens: int) -> None:
        self._ids = np.array(sorted(token_ids), np.int64)
        self.max_new_tokens = max_new_tokens

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.force(self._ids) if context.step == self.max_new_tokens - 1 else candidates


class SequenceBias:
    """Adds a bias to the logit of each token that would complete one of the given sequences.

    A single token is completed everywhere. transformers' ``sequence_bias``; with single tokens only, OpenAI's
    ``logit_bias``.
    """

    def __init__(self, biases: Mapping[TokenSequence, float]) -> None:
        self._singles = {ids[0]: bias for ids, bias in biases.items() if len(ids) == 1}
        self._ids = np.array(sorted(self._singles), np.int64)
        self._biases = np.array([self._singles[i] for i in sorted(self._singles)], np.float32)
        # By the token before the last, so that most sequences are never looked at.
        self._longer: dict[int, list[tuple[TokenSequence, float]]] = defaultdict(list)
        for ids, bias in biases.items():
            if len(ids) > 1:
                self._longer[ids[-2]].append((ids, bias))

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        ids, biases = self._ids, self._biases
        completing = self._completing(context)
        if completing:
            merged = self._singles | {i: bias + self._singles.get(i, 0.0) for i, bias in completing.items()}
            ids = np.fromiter(merged.keys(), np.int64, len(merged))
            biases = np.fromiter(merged.values(), np.float32, len(merged))
        at, present = candidates.locate(ids)
        if not at.size:
            return candidates
        return candidates.replace(at, candidates.logits[at] + biases[present])

    def _completing(self, context: LogitsContext) -> dict[int, float]:
        """The tokens that would complete a longer sequence, each with the sum of its biases."""
        before = context.token_ids
        found: dict[int, float] = {}
        for ids, bias in self._longer.get(before[-1], ()) if before else ():
            # Like transformers, which wants one token more than it compares.
            if len(ids) <= len(before) and tuple(before[1 - len(ids) :]) == ids[:-1]:
                found[ids[-1]] = found.get(ids[-1], 0.0) + bias
        return found


class BadWords:
    """Masks each token that would complete one of ``words`` (``bad_words_ids``).

    An end-of-sequence id alone is no word: transformers lets it pass, too.
    """

    def __init__(self, words: Sequence[TokenSequence], eos_token_ids: Collection[int]) -> None:
        banned = [word for word in words if len(word) != 1 or word[0] not in eos_token_ids]
        self._bias = SequenceBias(dict.fromkeys(banned, -math.inf))

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return self._bias(candidates, context)
