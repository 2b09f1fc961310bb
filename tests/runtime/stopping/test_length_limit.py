"""length_limit: the smallest of three limits, and which it is."""

from typing import Any

import pytest

from edgegen.engine.finish import StopRule
from edgegen.errors import OptionError
from edgegen.stopping.length_limit import LengthLimit, length_limit
from tests.oracle import import_torch, import_transformers


@pytest.mark.parametrize(
    ("limits", "tokens", "rule"),
    [
        ({"max_new_tokens": 5}, 5, "max_new_tokens"),
        ({"max_new_tokens": 5, "max_length": 30}, 5, "max_new_tokens"),
        ({"max_new_tokens": 5, "max_length": 15}, 5, "max_new_tokens"),
        ({"max_new_tokens": 5, "max_length": 14}, 4, "max_length"),
        ({"max_new_tokens": 5, "max_length": 11}, 1, "max_length"),
        ({"max_new_tokens": 50}, 23, "context"),
        ({"max_new_tokens": 23}, 23, "max_new_tokens"),
        ({"max_new_tokens": 50, "max_length": 33}, 23, "max_length"),
        ({"max_new_tokens": 50, "max_length": 34}, 23, "context"),
        ({"max_new_tokens": 10**30, "max_length": 10**30}, 23, "context"),
    ],
)
def test_the_smallest_limit_counts(limits: dict[str, int], tokens: int, rule: StopRule) -> None:
    assert length_limit(10, 32, max_new_tokens=limits["max_new_tokens"], max_length=limits.get("max_length")) == (
        LengthLimit(tokens, rule)
    )


def test_a_full_context_leaves_one_token() -> None:
    assert length_limit(32, 32, max_new_tokens=5) == LengthLimit(1, "context")


@pytest.mark.parametrize("max_length", [1, 9, 10])
def test_a_length_that_the_prompt_has_already_is_refused(max_length: int) -> None:
    with pytest.raises(OptionError, match=f"max_length: {max_length} leaves no room after a prompt of 10 tokens"):
        length_limit(10, 32, max_new_tokens=5, max_length=max_length)


def test_the_length_limit_matches_transformers() -> None:
    torch = import_torch()
    criterion: Any = import_transformers().MaxLengthCriteria
    for prompt in (1, 5, 9):
        for max_length in (10, 11, 20):
            limit = length_limit(prompt, 100, max_new_tokens=1000, max_length=max_length)
            ended = criterion(max_length)
            counts = (n for n in range(1, 100) if ended(torch.zeros(1, prompt + n, dtype=torch.long), None).all())
            assert limit == LengthLimit(next(counts), "max_length")
