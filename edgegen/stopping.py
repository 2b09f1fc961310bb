"""When a sequence ends, and which of its text may be shown until then.

The engine knows token ids only. Each sequence carries a ``TextWatcher`` that turns ids into text, finds
end-of-sequence ids and stop strings, and never gives out half a character or a part of a stop string.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from edgegen.errors import OptionError
from edgegen.tokenizer import StreamingDetokenizer

FinishReason = Literal["stop", "length", "cancelled"]
"""Why a sequence ended: by its own end or a stop string, at a token limit, at the caller's wish."""


@dataclass(frozen=True, slots=True)
class StopMatch:
    """What ended a sequence; ``matched`` is the stop string or the end-of-sequence id."""

    reason: FinishReason
    matched: str | int | None


class StopStringMatcher:
    """Finds the first stop string in text that arrives in pieces, however it is cut.

    The first is the one that begins earliest; of several that begin there, the longest that has arrived. Text
    is held back only while it may become a stop string, and only held text is read again, so a piece costs
    its own length and that of the longest stop string, times their number, at most.
    """

    def __init__(self, stop_strings: Sequence[str]) -> None:
        """
        Raises:
            OptionError: a stop string is empty.
        """
        if "" in stop_strings:
            raise OptionError("an empty stop string would end every text before it begins: leave it out")
        self._stop_strings = sorted(stop_strings, key=len, reverse=True)
        self._first_letters = frozenset(stop[0] for stop in stop_strings)
        self._longest = max(map(len, stop_strings), default=0)
        self._held = ""

    def push(self, piece: str) -> tuple[str, str | None]:
        """Take the next piece of text.

        Returns:
            The text that may be shown now, and the stop string if one was found. Then the shown text ends
            before it, what follows is dropped, and nothing may be pushed any more.
        """
        text = self._held + piece
        begin, found = self._first_match(text)
        undecided = self._first_beginning(text)
        if found is not None and begin <= undecided:
            self._held = ""
            return text[:begin], found
        self._held = text[undecided:]
        return text[:undecided], None

    def finish(self) -> tuple[str, str | None]:
        """End the text.

        Returns:
            What was held back, and the stop string it holds if one had to wait for another that begins
            earlier and now remains unfinished. Then the text ends before it.
        """
        text, self._held = self._held, ""
        begin, found = self._first_match(text)
        return text[:begin], found

    def _first_match(self, text: str) -> tuple[int, str | None]:
        """Where the first whole stop string begins and which it is; without one, the text's end and None."""
        begin, found = len(text), None
        for stop in self._stop_strings:  # from the longest, which so wins over others in its place
            at = text.find(stop, 0, begin + len(stop))
            if 0 <= at < begin:
                begin, found = at, stop
        return begin, found

    def _first_beginning(self, text: str) -> int:
        """Where the first stop string that is not whole yet may begin; the text's end if nowhere."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[at] in self._first_letters:
                tail = text[at:]
                if any(stop.startswith(tail) and stop != tail for stop in self._stop_strings):
                    return at
        return len(text)


class TextWatcher:
    """One sequence's text: ids in, text out, and the word to stop.

    End-of-sequence tokens never show in the text. Without a detokenizer there is none, and only ids are
    watched.
    """

    def __init__(
        self,
        detokenizer: StreamingDetokenizer | None,
        stop_strings: Sequence[str],
        eos_token_ids: Collection[int],
    ) -> None:
        """
        Raises:
            OptionError: a stop string is empty, or there is no detokenizer to find it with.
        """
        if stop_strings and detokenizer is None:
            raise OptionError("stop strings need a tokenizer and this request has none: stop at token ids")
        self._detokenizer = detokenizer
        self._matcher = StopStringMatcher(stop_strings)
        self._eos_token_ids = frozenset(eos_token_ids)
        self._untaken: list[str] = []

    def watch(self, new_ids: Sequence[int]) -> StopMatch | None:
        """Take the ids generated since the last call, and say what ends the sequence if something does.

        Ids behind the one that ends it are not looked at. Nothing may be watched after a match.
        """
        for token_id in new_ids:
            if token_id in self._eos_token_ids:
                return self.finish() or StopMatch("stop", token_id)
            if self._detokenizer is not None and (match := self._read(self._detokenizer.push(token_id))):
                return match
        return None

    def take_text(self) -> str:
        """The text that may be shown and was not taken before."""
        text = "".join(self._untaken)
        self._untaken.clear()
        return text

    def finish(self) -> StopMatch | None:
        """Release what is held back, when a sequence ends without a match of ``watch``.

        Returns:
            The stop string found in the released text, if there is one after all; the text ends before it.
        """
        if self._detokenizer is None:
            return None
        return self._read(self._detokenizer.finish()) or self._show(*self._matcher.finish())

    def _read(self, text: str) -> StopMatch | None:
        return self._show(*self._matcher.push(text)) if text else None

    def _show(self, text: str, stop: str | None) -> StopMatch | None:
        self._untaken.append(text)
        return None if stop is None else StopMatch("stop", stop)
