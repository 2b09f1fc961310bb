"""ThinkingBudget: ends the thoughts of a model that has reached the most tokens they may have."""

import codecs
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.history import History
from edgegen.sampling.processor import LogitsContext

_LONGEST_CHARACTER = 4
"""Bytes of a character, each of which may be a token."""


@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """How thoughts begin and end in token ids.

    Attributes:
        begun: the prompt has begun them.
        ending: the ids of the text that ends thoughts: ``closing``, and what stands around it.
        spell: the text of a token by itself.
        token_bytes: its bytes, where the tokens of the vocabulary spell some; None for those that spell none.
    """

    opening: str
    closing: str
    begun: bool
    ending: tuple[int, ...]
    spell: Callable[[int], str]
    token_bytes: Callable[[int], bytes | None] = lambda token_id: None


class ThinkingBudget:
    """Forces the tokens that end the thoughts once they have ``most`` tokens (``max_thinking_tokens``).

    A character that takes several tokens is finished first. Where a constraint does not allow the end, it is tried
    again at the next token. What it does follows from the token ids alone: beams and rejected proposals are right.
    """

    def __init__(self, most: int, marks: ThoughtMarks) -> None:
        self.most = most
        self._marks = marks
        self._history = History()
        self._followed = 0
        self._text = ""
        self._start: int | None = 0 if marks.begun else None
        """Where in the answer the thoughts start; None before."""
        self._end: int | None = None
        """Where they have ended, or never began."""
        pieces = [marks.spell(token_id) for token_id in marks.ending]
        self._closes = next((n for n in range(1, len(pieces) + 1) if marks.closing in "".join(pieces[:n])), len(pieces))
        """How many of the ending's tokens it takes until the closing marker is whole."""

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        token_id = self._forced(context.token_ids[context.prompt_length :])
        if token_id is None:
            return candidates
        ids = np.array([token_id], np.int64)
        at, _ = candidates.locate(ids)
        if not at.size or candidates.logits[at[0]] == -math.inf:
            return candidates
        return candidates.force(ids)

    def _forced(self, answer: Sequence[int]) -> int | None:
        """The token that must come after ``answer``, if one must."""
        self._follow(answer)
        if self._start is None:
            return None
        ending, thought = self._marks.ending, answer[self._start :]
        if self._end is not None:  # what follows the closing marker, if the thoughts were ended here
            begin = self._end - self._start - self._closes
            done = len(thought) - begin
            goes_on = begin >= self.most and done < len(ending) and tuple(thought[begin:]) == ending[:done]
            return ending[done] if goes_on else None
        for done in range(min(self._closes - 1, len(thought) - self.most), 0, -1):
            if tuple(thought[-done:]) == ending[:done]:
                return ending[done]
        beyond = len(thought) - self.most
        waits = beyond < 0 or (beyond < _LONGEST_CHARACTER - 1 and self._splits_character(thought))
        return None if waits else ending[0]

    def _follow(self, answer: Sequence[int]) -> None:
        """Bring what is known of the thoughts to ``answer``, forwards or back."""
        unchanged = self._history.follow(answer)
        if unchanged < self._followed:
            self._go_back(answer[:unchanged])
        for n in range(self._followed, len(answer)):
            if self._end is None:
                self._read(self._marks.spell(answer[n]), n + 1)
        self._followed = len(answer)

    def _go_back(self, answer: Sequence[int]) -> None:
        """Forget what is known of tokens beyond ``answer``."""
        self._followed = len(answer)
        if self._end is not None and self._end > len(answer):
            self._end = None
        if self._start is not None and self._start > len(answer):
            self._start = None
        if self._end is not None:
            return
        if self._start is None:
            self._followed, self._text = 0, ""
            return
        longest = len(self._marks.closing)
        self._text = "".join(map(self._marks.spell, answer[max(self._start, len(answer) - longest) :]))[-longest:]

    def _read(self, piece: str, tokens: int) -> None:
        """The next token's text; ``tokens``: how many there are with it."""
        self._text += piece
        opening, closing = self._marks.opening, self._marks.closing
        if self._start is None:
            begun = self._text.lstrip()
            if begun.startswith(opening):
                self._start, self._text = tokens, begun.removeprefix(opening)
            elif not opening.startswith(begun):
                self._end = tokens
                return
            else:
                return
        if closing in self._text:
            self._end = tokens
        self._text = self._text[-len(closing) :]

    def _splits_character(self, thought: Sequence[int]) -> bool:
        """Whether the last tokens are a part of a character, at which no text may end."""
        last = thought[-_LONGEST_CHARACTER:]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(b"".join(self._marks.token_bytes(token_id) or b"" for token_id in last))
        return bool(decoder.getstate()[0])
