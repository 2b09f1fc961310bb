"""Perplexity of a text of any length: sliding windows, scored one after another.

Each window is a context and a continuation. Every token but the text's first is scored once, and after the first
window with at least ``window - stride`` tokens before it: "Perplexity of fixed-length models" in transformers'
documentation.
"""

import math
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ids
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import OptionError, UsageError, refuse_any
from edgegen.generation.request import Answer, Request
from edgegen.generation.results import GenerationResult
from edgegen.options.validation import number
from edgegen.scoring.scored_sequence import ScoredGroup, ScoredSequence
from edgegen.scoring.scores import Perplexity
from edgegen.stopping.text_watcher import TextWatcher

LARGEST_WINDOW = 2048
"""By default. Published figures are seldom of larger ones, and memory and time of attention grow with the window."""


Run = Callable[[Request], GenerationResult]
"""Runs a request to its end."""

OnScored = Callable[[int, int], object]
"""Called with how many tokens are scored, and of how many."""


class TextWindow(NamedTuple):
    """Tokens ``begin`` to ``end`` of a text, seen at once; those from ``scored_from`` on are scored."""

    begin: int
    scored_from: int
    end: int


def windows(tokens: int, window: int, stride: int) -> Iterator[TextWindow]:
    """Yield windows over a text of ``tokens`` tokens, each ``stride`` further on, until one reaches the end."""
    scored = 1
    for begin in count(0, stride):
        end = min(begin + window, tokens)
        yield TextWindow(begin, scored, end)
        if end == tokens:
            return
        scored = end


def measured_perplexity(
    ids: Ids[int], max_context: int, window: int | None, stride: int | None, run: Run, on_progress: OnScored | None
) -> Perplexity:
    """The perplexity of a text: ``run`` scores one window of ``window`` tokens after the other, each ``stride`` tokens
    further on, until one is cancelled.

    Raises:
        OptionError: ``window`` does not fit the model's context, or ``stride`` the window.
        UsageError: there is nothing to score.
    """
    window = min(max_context, LARGEST_WINDOW) if window is None else window
    window_problems = number("window", window, int, 2, max_context)
    stride = (window // 2 if not window_problems else 1) if stride is None else stride
    problems = [*window_problems, *number("stride", stride, int, 1, math.inf if window_problems else window - 1)]
    refuse_any(problems, OptionError)
    if len(ids) < 2:
        raise UsageError(
            f"the text is too short: it has {len(ids)} token{'s' * (not ids)}, and all but the first are scored."
        )
    nlls, tokens, complete = list[float](), 0, True
    for begin, scored_from, end in windows(len(ids), window, stride):
        recorder, context = NllRecorder(), scored_from - begin
        sequence = ScoredSequence.of(ids[begin:end], context, context, recorder.record)
        result = run(Request(ScoredGroup([sequence]), [Answer(sequence, TextWatcher(None, (), ()))], None))
        found = tuple(recorder.nlls)  # after a cancellation, the engine may still be at its last one
        nlls.append(math.fsum(found))
        tokens += len(found)
        if on_progress is not None:
            on_progress(tokens, len(ids) - 1)
        if result.finish_reason != "length":
            complete = False
            break
    mean = math.fsum(nlls) / tokens if tokens else math.nan
    return Perplexity(mean, tokens, window, stride, complete)


class NllRecorder:
    """Records negative log-likelihoods only: no token texts, and no new array for each of a million tokens."""

    def __init__(self) -> None:
        self.nlls: list[float] = []
        self._room = np.empty(0, np.float32)

    def record(self, logits: NDArray[np.float32], token_id: int) -> None:
        """A token and the model's logits [vocab] for its place."""
        if self._room.size != logits.size:
            self._room = np.empty_like(logits)
        highest = logits.max()
        np.exp(np.subtract(logits, highest, out=self._room), out=self._room)
        self.nlls.append(float(highest) + math.log(float(self._room.sum())) - float(logits[token_id]))
