"""Two beam searches written down a second time: transformers' own, tensor for tensor, and one that misses nothing."""

from collections.abc import Callable, Collection
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

LogProbs = Callable[[tuple[int, ...]], NDArray[np.float32]]
"""Log-probabilities [vocab] of what comes after the ids generated so far."""

Answers = list[tuple[tuple[int, ...], float]]
"""Ids and score, best first."""


def transformers_beam_search(
    log_probs: LogProbs,
    num_beams: int,
    max_new_tokens: int,
    ends: Callable[[tuple[int, ...]], bool] = lambda ids: False,
    *,
    num_eos: int = 0,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
) -> Answers:
    """``GenerationMixin._beam_search`` of transformers 4.57.6 for one prompt, its tensors as arrays.

    Lists of ids stand in for the padded ``sequences``; the comments are the source's own steps.
    """
    keep = max(2, 1 + num_eos) * num_beams
    running: list[tuple[int, ...]] = [()] * num_beams
    running_scores = np.full(num_beams, -1e9, np.float32)
    running_scores[0] = 0
    sequences: list[tuple[int, ...]] = [()] * num_beams
    beam_scores = np.full(num_beams, -1e9, np.float32)
    is_finished = np.zeros(num_beams, bool)
    unsatisfied = True
    length = 0
    while True:
        # b. and c. the top-K continuations
        accumulated = (np.array([log_probs(ids) for ids in running]) + running_scores[:, None]).ravel()
        vocabulary = accumulated.size // num_beams
        top = np.argsort(-accumulated, kind="stable")[:keep]
        top_scores = accumulated[top]
        top_ids: list[tuple[int, ...]] = [(*running[k // vocabulary], int(k % vocabulary)) for k in top.tolist()]
        # d. which of them have finished
        hits = np.array([length + 1 >= max_new_tokens or ends(ids) for ids in top_ids])
        # e. the beams of the next iteration
        left = (top_scores + hits * np.float32(-1e9)).astype(np.float32)
        following: NDArray[np.int64] = np.argsort(-left, kind="stable")[:num_beams]
        running, running_scores = [top_ids[k] for k in map(int, following)], left[following]
        # f. the completed beams
        just_finished = hits & (np.arange(len(top)) < num_beams)
        new = top_scores / np.float32((length + 1) ** length_penalty)
        new = new + np.float32(-1e9) * (is_finished.all() and early_stopping is True)
        new = new + np.float32(-1e9) * (not unsatisfied)
        new = (new + np.float32(-1e9) * ~just_finished).astype(np.float32)
        merged, merged_ids = np.concatenate([beam_scores, new]), [*sequences, *top_ids]
        best: NDArray[np.int64] = np.argsort(-merged, kind="stable")[:num_beams]
        sequences, beam_scores = [merged_ids[k] for k in map(int, best)], merged[best]
        is_finished = np.concatenate([is_finished, just_finished])[best]
        # g. the stopping condition
        length += 1
        longest = max_new_tokens if early_stopping == "never" and length_penalty > 0 else length
        worst = np.where(is_finished, beam_scores.min(), -1e9)
        unsatisfied = unsatisfied and bool((running_scores[0] / longest**length_penalty > worst).any())
        if not unsatisfied or (is_finished.all() and early_stopping is True) or hits.all():
            break
    return [(sequences[k], float(beam_scores[k])) for k in range(num_beams) if is_finished[k]]


def every_answer(
    log_probs: LogProbs, vocabulary: int, max_new_tokens: int, eos: Collection[int], length_penalty: float
) -> Answers:
    """All there are: whatever ends at its first end-of-sequence id, or at the limit."""
    answers: Answers = []
    for length in range(1, max_new_tokens + 1):
        for ids in product(range(vocabulary), repeat=length):
            if not any(token in eos for token in ids[:-1]) and (ids[-1] in eos or length == max_new_tokens):
                score = sum(float(log_probs(ids[:at])[token]) for at, token in enumerate(ids))
                answers.append((ids, score / length**length_penalty))
    return sorted(answers, key=lambda answer: -answer[1])
