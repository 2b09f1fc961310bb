"""How large a block of memory is read to find the bandwidth that a model has."""

import pytest

from edgegen.benchmark.bandwidth import megabytes_for


@pytest.mark.parametrize(
    ("bytes_read", "available", "megabytes"),
    [
        (2_000_000, None, 140),
        (300_000_000, None, 300),
        (9_000_000_000, None, 512),
        (300_000_000, 8_000_000_000, 300),
        (300_000_000, 1_000_000_000, 250),
        (300_000_000, 100_000_000, 140),
    ],
)
def test_the_block_is_as_large_as_the_weights_within_bounds(
    bytes_read: int, available: int | None, megabytes: int
) -> None:
    assert megabytes_for(bytes_read, available) == megabytes
