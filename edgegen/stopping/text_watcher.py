"""TextWatcher: detokenizes a sequence and says when a stop condition ends it."""

from collections.abc import Collection, Sequence
from copy import copy
from typing import TYPE_CHECKING, Self

from edgegen.engine.finish import StopMatch
from edgegen.errors import OptionError
from edgegen.options.generation import StoppingFunction
from edgegen.sampling.id_array import IdArray
from edgegen.tokenizer import StreamingDetokenizer

if TYPE_CHECKING:
    from edgegen.stopping.text_stops import TextStops


class TextWatcher:
    """One sequence's text: ids in, text and stop matches out (:mod:`edgegen.stopping` has the order).

    Ids that end a text never show in it. Without a detokenizer there is no text, and only ids are watched.

    Attributes:
        read: characters of the text so far, hidden ones included.
        shown: those that may be shown.
    """

    def __init__(
        self,
        detokenizer: StreamingDetokenizer | None,
        stop_strings: Sequence[str],
        eos_token_ids: Collection[int],
        *,
        stop_token_ids: Collection[int] = (),
        stop_regex: str | None = None,
        include_stop_str_in_output: bool = False,
        stopping_criteria: Sequence[StoppingFunction] = (),
        prompt_ids: Sequence[int] = (),
    ) -> None:
        """``prompt_ids`` are there for the ``stopping_criteria`` to see.

        Raises:
            OptionError: a stop string is empty, the expression cannot be one, or there is no detokenizer to find them
                with.
        """
        by_text = bool(stop_strings) or stop_regex is not None
        if by_text and detokenizer is None:
            what = "stop strings" if stop_strings else "stop expressions"
            raise OptionError(f"{what} need a tokenizer and this request has none: stop at token ids")
        self._detokenizer = detokenizer
        self._stops = _text_stops(stop_strings, stop_regex, include_stop_str_in_output) if by_text else None
        self._eos_token_ids = frozenset(eos_token_ids)
        self._stop_token_ids = frozenset(stop_token_ids)
        self._criteria = tuple(stopping_criteria)
        self._ids = list(prompt_ids) if stopping_criteria else []
        self._id_array = IdArray()
        self._untaken: list[str] = []
        self._ends: list[int] | None = None
        self.read = self.shown = 0

    def keep_ends(self) -> bool:
        """Keep where ids end, for ``take_ends``; False, without effect, where no text can end the sequence.

        Where one can, some text is held back, and some never shown.
        """
        self._ends = None if self._stops is None else []
        return self._ends is not None

    def watch(self, new_ids: Sequence[int]) -> StopMatch | None:
        """Take the ids generated since the last call, and say what ends the sequence if something does.

        Ids after the one that ends it are not looked at. Nothing may be watched after a match.

        Raises:
            Exception: whatever one of the stopping criteria raised.
        """
        for token_id in new_ids:
            match = self._watch(token_id)
            if self._ends is not None:
                self._ends.append(self.read)
            if match is not None:
                return match
        return None

    def _watch(self, token_id: int) -> StopMatch | None:
        if token_id in self._eos_token_ids:
            return self.finish() or StopMatch("stop", token_id, "eos_token_id")
        if token_id in self._stop_token_ids:
            return self.finish() or StopMatch("stop", token_id, "stop_token_ids")
        if self._detokenizer is not None and (match := self._push(self._detokenizer.push(token_id))):
            return match
        if self._criteria and (name := self._met_criterion(token_id)):
            return self.finish() or StopMatch("stop", name, "stopping_criteria")
        return None

    def take_text(self) -> str:
        """The text that may be shown and was not taken before."""
        text = "".join(self._untaken)
        self._untaken.clear()
        return text

    def take_ends(self) -> list[int]:
        """Where in the text each id ends that was watched since the last call."""
        ends, self._ends = self._ends or [], []
        return ends

    def finish(self) -> StopMatch | None:
        """Release what is held back, when a sequence ends without a match of ``watch``.

        Returns:
            The stop found in the released text, if there is one after all; the text ends there.
        """
        if self._detokenizer is None:
            return None
        match = self._push(self._detokenizer.finish())
        return match if match or self._stops is None else self._show(*self._stops.finish())

    def fork(self) -> Self:
        """For another sequence that has the same ids so far. The stopping criteria are the same functions."""
        fork = copy(self)
        fork._detokenizer = self._detokenizer and self._detokenizer.fork()
        fork._stops = self._stops and self._stops.fork()
        fork._ids, fork._id_array, fork._untaken = [*self._ids], IdArray(), [*self._untaken]
        fork._ends = None if self._ends is None else [*self._ends]
        return fork

    def _push(self, text: str) -> StopMatch | None:
        self.read += len(text)
        if self._stops is None:
            return self._show(text, None)
        return self._show(*self._stops.push(text)) if text else None

    def _show(self, text: str, match: StopMatch | None) -> StopMatch | None:
        if text:
            self._untaken.append(text)
            self.shown += len(text)
        return match

    def _met_criterion(self, token_id: int) -> str | None:
        """The name of the first function that wants the sequence to end."""
        self._ids.append(token_id)
        for function in self._criteria:
            if function(self._id_array.view(self._ids)):
                return getattr(function, "__name__", type(function).__name__)
        return None


def _text_stops(strings: Sequence[str], pattern: str | None, include: bool) -> "TextStops":
    from edgegen.stop_regex import StopRegex
    from edgegen.stopping.text_stops import TextStops

    return TextStops(strings, None if pattern is None else StopRegex.of(pattern), include=include)
