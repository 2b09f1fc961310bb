"""Functions of the caller's own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.errors import UsageError
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsSettings
from edgegen.sampling.processors.distribution import CustomProcessor


def test_sees_ids_and_logits_and_may_change_its_own() -> None:
    seen: list[NDArray[np.int64]] = []

    def only_even(ids: NDArray[np.int64], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        seen.append(ids.copy())
        logits[1::2] = -np.inf
        return logits

    given = np.arange(6, dtype=np.float32)
    process = CustomProcessor(only_even)
    for ids in ([1], [1, 2], [1, 2, 5]):
        left = process(Candidates(given), LogitsContext(ids))
        assert left.logits.tolist() == [0, -np.inf, 2, -np.inf, 4, -np.inf]
    assert [ids.tolist() for ids in seen] == [[1], [1, 2], [1, 2, 5]]
    assert given.tolist() == [0, 1, 2, 3, 4, 5]


def test_the_ids_are_not_its_own() -> None:
    def change(ids: NDArray[np.int64], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        ids[0] = 3
        return logits

    with pytest.raises(ValueError, match="read-only"):
        CustomProcessor(change)(Candidates(np.zeros(2, np.float32)), LogitsContext([1]))


def test_lists_and_other_numbers_are_logits_too() -> None:
    left = CustomProcessor(lambda ids, logits: [1, 2])(Candidates(np.zeros(2, np.float32)), LogitsContext([]))
    assert left.logits.dtype == np.float32
    assert left.logits.tolist() == [1, 2]


def test_comes_before_all_that_cuts_off() -> None:
    settings = LogitsSettings(top_k=1, logits_processor=(lambda ids, logits: -logits,), suppress_tokens=(0,))
    pipeline = LogitsPipeline.from_settings(settings, do_sample=True)
    # Suppressed first, so that the function is what decides.
    with pytest.raises(UsageError, match="returned NaN or plus infinity"):
        pipeline(Candidates(np.array([1, 2, 3], np.float32)), LogitsContext([0]))


def nothing(ids: Any, logits: Any) -> Any:
    logits[0] = 5


def returning(change: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda ids, logits: change(logits)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (nothing, "the logits processor 'nothing' returned nothing: return the logits"),
        (returning(lambda logits: logits[:1]), r"returned shape \(1,\), not \(3,\)"),
        (returning(lambda logits: logits[None]), r"returned shape \(1, 3\), not \(3,\)"),
        (returning(lambda logits: "logits"), "returned str, not an array of logits"),
        (returning(lambda logits: {"logits": logits}), "returned dict, not an array of logits"),
        (returning(lambda logits: logits * np.nan), "returned NaN or plus infinity; to forbid a token"),
        (returning(lambda logits: logits + np.inf), "returned NaN or plus infinity"),
    ],
)
def test_what_it_returns_is_checked(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CustomProcessor(function)(Candidates(np.ones(3, np.float32)), LogitsContext([0]))


def test_a_nameless_function_is_called_by_its_class() -> None:
    class Careless:
        def __call__(self, ids: Any, logits: Any) -> Any:
            return None

    with pytest.raises(UsageError, match="'Careless' returned nothing"):
        CustomProcessor(Careless())(Candidates(np.ones(3, np.float32)), LogitsContext([0]))
