"""ConstraintState: a sequence's position in its grammar, and the tokens that may come next."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import ConstraintError
from edgegen.sampling import Candidates

if TYPE_CHECKING:
    from llguidance import LLMatcher

_ENDS = ("NotStopped", "NoExtension", "NoExtensionBias", "EndOfSentence")
"""Reasons for which llguidance stops at a grammar's end, and nowhere else."""

_SPARSE = 16
"""With fewer than one byte in ``_SPARSE`` set, listing tokens is cheaper than masking all the rest."""

_ADDENDS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), np.float32(0), -np.float32("inf")
)
"""``[256, 8]`` float32: for each byte of a mask, what to add to the logits of its eight tokens."""


class ConstraintState:
    """The tokens a sequence has so far, and those that may come next. Not thread-safe: one sequence has one.

    Attributes:
        ids: the accepted tokens, an end-of-sequence token last if there was one.
    """

    def __init__(
        self,
        name: str,
        start: "LLMatcher",
        vocabulary_size: int,
        eos_token_ids: Collection[int],
        ids: Sequence[int] = (),
        *,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            start: the grammar before any token; it is copied.
            ids: tokens accepted before, none of them an end.
            on_failure: called when the grammar got too complex. Copies of ``start`` share llguidance's work, and its
                limits, so that none of them can be used any more.

        Raises:
            ConstraintError: ``ids`` are not the beginning of one of the grammar's texts, or it got too complex.
        """
        self.ids = list(ids)
        self._name = name
        self._start = start
        self._size = vocabulary_size
        self._eos = frozenset(token_id for token_id in eos_token_ids if 0 <= token_id < vocabulary_size)
        self._ended = False
        self._on_failure = on_failure
        self._matcher = start.deep_copy()
        self._consume(self.ids)

    @property
    def may_stop(self) -> bool:
        """Whether the text so far is one of the grammar's."""
        return self._ended or self._matcher.is_accepting()

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is one of the grammar's and nothing can follow it."""
        return self._ended or (self._matcher.is_stopped() and self._matcher.is_accepting())

    def mask(self) -> NDArray[np.uint8]:
        """A bit for each token that may come next; those that end a sequence, where the text may end.

        Where the grammar forces the next piece of text, that is its usual token and no other.

        Returns:
            ``[ceil(vocabulary / 8)]`` uint8, the lowest bit first.

        Raises:
            ConstraintError: the grammar got too complex here.
        """
        size = self._size + 7 >> 3
        if self._ended:
            return np.zeros(size, np.uint8)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)[:size].copy()
        self._check()
        if spare := self._size & 7:
            bits[-1] &= (1 << spare) - 1  # llguidance's own end is after the vocabulary
        may_stop = self.may_stop
        for token_id in self._eos:
            bit = 1 << (token_id & 7)
            if may_stop:
                bits[token_id >> 3] |= bit
            else:
                bits[token_id >> 3] &= 0xFF ^ bit
        return bits

    def apply(self, candidates: Candidates) -> Candidates:
        """Return the candidates that may come next.

        Raises:
            ConstraintError: no token is allowed, or the grammar got too complex here.
        """
        allowed = keep_allowed(candidates, self.mask())
        if not allowed.logits.size:
            raise ConstraintError(
                f"{self._name} leaves no token to choose from after {len(self.ids)} tokens: "
                + (
                    "the text is complete, and no end-of-sequence token is left"
                    if self.may_stop
                    else "its own rules lead into a dead end, or other options have removed all that it allows"
                )
            )
        return allowed

    def follow(self, ids: Sequence[int]) -> None:
        """Take ``ids``, which were generated before, as the state that generated them did.

        Raises:
            ConstraintError: as for ``accept``; those before the refused one are taken.
        """
        for token_id in ids:
            if not self._ended:
                self._matcher.compute_bitmask()  # as in ``_consume``
            self.accept(token_id)

    def accept(self, token_id: int) -> None:
        """Take the next token.

        Raises:
            ConstraintError: it may not come here, or the grammar got too complex; the state is as before.
        """
        if token_id in self._eos:
            if not self.may_stop:
                raise ConstraintError(f"{self._name} does not end here, and token {token_id} ends the sequence")
            self._ended = True
        elif self._ended or not 0 <= token_id < self._size or not self._matcher.try_consume_tokens([token_id]):
            self._check()
            self._on_failure()  # llguidance may have met a limit without saying so
            raise ConstraintError(f"{self._name} does not allow token {token_id} after {len(self.ids)} tokens")
        self.ids.append(token_id)

    def forced(self) -> list[int]:
        """The usual tokens of the text that must come next, as far as later text cannot change them.

        The first is the only one that ``mask`` allows.
        """
        return [] if self._ended else self._before_end(self._matcher.compute_ff_tokens())

    def valid_prefix(self, ids: Sequence[int]) -> list[int]:
        """As many of ``ids``, from the first, as may come next; ends before one that ends the sequence."""
        if self._ended:
            return []
        possible = self._before_end(ids)
        return possible[: self._matcher.validate_tokens(possible)]

    def fork(self) -> "ConstraintState":
        """A state of its own for a sequence that has the same tokens so far."""
        other = object.__new__(ConstraintState)
        other.__dict__ |= self.__dict__ | {"ids": self.ids.copy(), "_matcher": self._matcher.deep_copy()}
        return other

    def rollback(self, count: int) -> None:
        """Forget the last ``count`` tokens."""
        if count <= 0:
            return
        of_grammar = count - self._ended
        self.ids, self._ended = self.ids[:-count], False
        if of_grammar and not self._matcher.rollback(of_grammar):  # some Lark options allow none
            self._matcher = self._start.deep_copy()
            self._consume(self.ids)

    def _consume(self, ids: Sequence[int]) -> None:
        """Take ``ids``, none of them an end, from the start."""
        for token_id in ids:
            # Without the masks, llguidance builds other expressions, and may meet its limit on them.
            self._matcher.compute_bitmask()
            if not self._matcher.consume_token(token_id):
                raise self._failure()

    def _before_end(self, ids: Sequence[int]) -> list[int]:
        for at, token_id in enumerate(ids):
            if token_id in self._eos or not 0 <= token_id < self._size:
                return list(ids[:at])
        return list(ids)

    def _check(self) -> None:
        if self._matcher.is_error() or self._matcher.stop_reason() not in _ENDS:
            raise self._failure()

    def _failure(self) -> ConstraintError:
        self._on_failure()
        reason = self._matcher.get_error().split("\n")[0] or self._matcher.stop_reason()
        if reason == "NoExtensionBias":
            reason = "no text of it goes on from here"
        return ConstraintError(f"{self._name} cannot go on after {len(self.ids)} tokens: {reason}")


def keep_allowed(candidates: Candidates, mask: NDArray[np.uint8]) -> Candidates:
    """The candidates whose bit of ``mask`` is set; others are gone, or have a logit of minus infinity.

    Args:
        mask: ``[ceil(vocabulary / 8)]`` uint8, the lowest bit first.
    """
    logits = candidates.logits
    if candidates.ids is not None:
        ids = candidates.ids
        return candidates.keep(np.flatnonzero(mask[ids >> 3] >> (ids & 7).astype(np.uint8) & 1))
    if np.count_nonzero(mask) * _SPARSE < mask.size:
        return candidates.keep(_set_bits(mask))
    masked = _ADDENDS.take(mask, axis=0).reshape(-1)[: logits.size]
    masked += logits
    return candidates.with_logits(masked)


def _set_bits(mask: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The positions of set bits, ascending."""
    at = np.flatnonzero(mask)
    rows, bits = np.nonzero(np.unpackbits(mask[at][:, None], axis=1, bitorder="little"))
    return at[rows] * 8 + bits
