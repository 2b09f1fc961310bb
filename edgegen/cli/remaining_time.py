"""RemainingTime: an estimate of the seconds that an export still takes, corrected by what its stages took so far.

It begins with what each stage is expected to take, and is multiplied by how much slower or faster finished work was
than expected. The value that is shown moves to a new estimate within seconds, so that it does not jump.
"""

import math
import time
from collections.abc import Callable, Mapping

_TRUST = 0.05
"""The expectation counts as much as measurements of this share of the whole work."""
_SETTLING_S, _SETTLING = 10.0, 0.05
"""A new estimate is reached in so many seconds, and this share of the time left."""
_EVEN = 0.8
"""Up to this share of its expected time, a stage that reports nothing is taken to go on evenly."""


class RemainingTime:
    """``expected``: the seconds of each stage by its name, in their order; ``clock``: in seconds."""

    def __init__(self, expected: Mapping[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        self._expected, self._clock = dict(expected), clock
        self._total = sum(self._expected.values())
        self._ahead = list(self._expected)
        self._stage: str | None = None
        self._reported = 0.0
        self._begun = self._reported_at = self._shown_at = clock()
        self._first: float | None = None
        self._shown = self._total
        self._done = self._finished_work = self._finished_s = 0.0

    def stage(self, text: str) -> None:
        """A stage begins; those planned before it are over, or left out. An unplanned one has no share in the work."""
        self._end()
        if text in self._ahead:
            self._first = self._clock() if self._first is None else self._first
            self._stage, self._ahead = text, self._ahead[self._ahead.index(text) + 1 :]
            self._reported, self._begun = 0.0, self._clock()
            self._reported_at = self._begun

    def advance(self, done: int, total: int) -> None:
        """Hear how much of the stage is done."""
        share = min(1.0, done / total) if total > 0 else 0.0
        if share > self._reported:
            self._reported, self._reported_at = share, self._clock()

    @property
    def has_begun(self) -> bool:
        """Whether a stage that was planned has begun."""
        return self._first is not None

    @property
    def seconds(self) -> float:
        """Seconds to go, as they should be shown now."""
        now = self._clock()
        passed, self._shown_at = now - self._shown_at, now
        if self._first is None:
            return self._shown
        counted_down = max(0.0, self._shown - passed)
        settling = 1 - math.exp(-passed / (_SETTLING_S + _SETTLING * counted_down))
        self._shown = counted_down + (self._estimate(now) - counted_down) * settling
        return self._shown

    @property
    def share(self) -> float:
        """The share of the time that is over, from 0 to 1; it never falls."""
        seconds = self.seconds
        if self._first is not None:
            passed = self._clock() - self._first
            self._done = max(self._done, passed / (passed + seconds) if passed + seconds else 1.0)
        return self._done

    def _end(self) -> None:
        if self._stage is not None:
            self._finished_s += self._clock() - self._begun
            self._finished_work += self._expected[self._stage]
        self._stage = None

    def _estimate(self, now: float) -> float:
        """Seconds to go, from all that was measured."""
        ahead = sum(self._expected[name] for name in self._ahead)
        work = 0.0 if self._stage is None else self._expected[self._stage]
        measured = self._finished_s + (self._reported_at - self._begun if self._stage and self._reported else 0.0)
        trust = _TRUST * self._total
        done = self._finished_work + self._reported * work
        slower = (trust + measured) / (trust + done) if trust else 1.0
        left = slower * work * (1 - self._reported)
        return slower * ahead + _left(left, now - self._reported_at if left else 0.0)


def _left(expected: float, passed: float) -> float:
    """Return the rest of ``expected`` seconds when ``passed`` are over; never 0, for the end was not reported."""
    even = _EVEN * expected
    if passed <= even:
        return expected - passed
    rest = expected - even
    return rest * math.exp((even - passed) / rest)
