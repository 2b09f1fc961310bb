"""The time an export still takes: on a fake clock, whatever its stages really take."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from edgegen.cli.remaining_time import RemainingTime

pytestmark = pytest.mark.unit

EXPECTED = {"sampling": 100.0, "smoothing": 200.0, "writing": 20.0, "comparing": 80.0}


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def shown(factors: dict[str, float], reports: int) -> Iterator[tuple[float, float, float]]:
    """Of an export whose stages take ``factors`` times what is expected, and report so often: the seconds shown, those
    that really are left, and the share, once a second."""
    clock = Clock()
    remaining = RemainingTime(EXPECTED, clock)
    left = sum(EXPECTED[name] * factors[name] for name in EXPECTED)
    for name, expected in EXPECTED.items():
        remaining.stage(name)
        seconds = int(expected * factors[name])
        for second in range(seconds):
            clock.now, left = clock.now + 1, left - 1
            if reports and (second + 1) * reports // seconds > second * reports // seconds:
                remaining.advance((second + 1) * reports // seconds, reports)
            yield remaining.seconds, left, remaining.share


def show(remaining: RemainingTime, clock: Clock, seconds: int) -> None:
    """Let ``seconds`` pass, and show the time left at each, as the terminal does: that makes it settle."""
    for _ in range(seconds):
        clock.now += 1
        assert remaining.seconds >= 0


def test_before_anything_is_measured_it_is_what_was_expected() -> None:
    clock = Clock()
    remaining = RemainingTime(EXPECTED, clock)
    clock.now += 600  # of a download
    assert remaining.seconds == pytest.approx(400)
    assert remaining.share == 0
    remaining.stage("sampling")
    assert remaining.seconds == pytest.approx(400, rel=0.01)


@pytest.mark.parametrize("reports", [0, 4, 24])
@pytest.mark.parametrize(
    "factors",
    [
        dict.fromkeys(EXPECTED, 1.0),
        dict.fromkeys(EXPECTED, 2.0),
        dict.fromkeys(EXPECTED, 0.5),
        {"sampling": 2.0, "smoothing": 0.5, "writing": 2.0, "comparing": 0.5},
        {"sampling": 0.5, "smoothing": 2.0, "writing": 0.5, "comparing": 2.0},
    ],
)
def test_the_remaining_time_never_jumps(factors: dict[str, float], reports: int) -> None:
    seen = list(shown(factors, reports))
    shares = [share for _, _, share in seen]
    for (before, left, _), (after, _, _) in pairwise(seen):
        assert abs(after - (before - 1)) <= 1 + 0.1 * max(before, left)  # a tenth of the way in a second
    assert shares == sorted(shares)
    assert 0.85 < shares[-1] <= 1  # a last stage that says nothing may take half as long as expected


@pytest.mark.parametrize("factor", [0.5, 2.0, 4.0])
def test_a_machine_of_another_speed_is_found_out(factor: float) -> None:
    seen = list(shown(dict.fromkeys(EXPECTED, factor), 24))
    halfway = seen[len(seen) // 2]
    assert halfway[0] == pytest.approx(halfway[1], rel=0.35)
    assert seen[-1][0] < 10 * factor


def test_a_stage_that_is_left_out_says_nothing_of_the_speed() -> None:
    clock = Clock()
    remaining = RemainingTime(EXPECTED, clock)
    remaining.stage("smoothing")  # sampled text was there
    show(remaining, clock, 100)
    assert remaining.seconds == pytest.approx(200, rel=0.05)


def test_an_unplanned_stage_takes_nothing_off() -> None:
    clock = Clock()
    remaining = RemainingTime(EXPECTED, clock)
    remaining.stage("sampling")
    clock.now += 100
    remaining.stage("merging an adapter")
    show(remaining, clock, 60)
    assert remaining.seconds == pytest.approx(300, rel=0.1)


def test_a_stage_that_never_ends_leaves_something() -> None:
    clock = Clock()
    remaining = RemainingTime({"one": 10.0}, clock)
    remaining.stage("one")
    for _ in range(1000):
        clock.now += 1
        assert remaining.seconds >= 0
        assert 0 <= remaining.share <= 1
