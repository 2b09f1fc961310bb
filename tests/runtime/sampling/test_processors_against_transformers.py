"""Every processor that transformers has, alone and combined, against transformers 4.57."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.sampling import LogitsSettings
from tests.runtime.sampling.reference import SHARED, edgegen_logits, transformers_logits

pytestmark = pytest.mark.parity

Logits = NDArray[np.float32]

VOCABULARY = 40
EOS = (3, 17)

CHOICES: dict[str, list[Any]] = {
    "guidance_scale": [0.0, 0.5, 1.5, 3.0],
    "sequence_bias": [
        {(5,): 2.5, (6,): -1.0},
        {(1, 2): 4.0, (2, 2): -2.0, (2,): 0.5, (0, 1, 2): 1.0},
        {(1, 1, 1, 1): float("-inf"), (30,): float("-inf")},
    ],
    "repetition_penalty": [0.5, 1.1, 1.3, 5.0],
    "no_repeat_ngram_size": [1, 2, 3, 4],
    "bad_words_ids": [[[7]], [[3], [8]], [[1, 2], [2, 0], [0, 1, 1]]],
    "min_length": [1, 6, 30],
    "min_new_tokens": [1, 4, 30],
    "forced_bos_token_id": [9],
    "forced_eos_token_id": [3, [3, 17]],
    "remove_invalid_values": [True],
    "exponential_decay_length_penalty": [(0, 1.5), (2, 1.05), (3, 0.5), (1, 1.0)],
    "suppress_tokens": [[0], [1, 2, 39], [12, 12]],
    "begin_suppress_tokens": [[0, 3], [20]],
    "temperature": [0.01, 0.3, 0.7, 1.5, 100.0],
    "top_k": [1, 2, 5, 39, 40, 1000],
    "top_p": [0.0, 0.1, 0.5, 0.9, 0.99],
    "min_p": [0.01, 0.1, 0.5, 1.0],
    "typical_p": [0.05, 0.3, 0.9, 0.99],
    "epsilon_cutoff": [1e-4, 0.02, 0.2, 0.99],
    "eta_cutoff": [1e-4, 0.02, 0.2, 0.99],
    "renormalize_logits": [True],
}
assert CHOICES.keys() == set(SHARED)


def draws(seed: int, spread: float) -> Logits:
    return np.random.default_rng(seed).normal(0, spread, VOCABULARY).astype(np.float32)


IDS = st.lists(st.integers(0, 2), min_size=1, max_size=25) | st.lists(
    st.integers(0, 2) | st.integers(0, VOCABULARY - 1), min_size=1, max_size=25
)
LOGITS = st.builds(draws, st.integers(0, 100_000), st.sampled_from([0.1, 1.0, 3.0, 10.0]))


def compare(
    chosen: LogitsSettings, logits: Logits, other: Logits, ids: list[int], step: int, *, do_sample: bool = True
) -> None:
    """The same tokens are left, with the same logits."""
    step = min(step, len(ids) - 1)
    both: dict[str, Any] = {"prompt_length": len(ids) - step, "do_sample": do_sample, "unconditional": other}
    expected = transformers_logits(chosen, logits, ids, eos=EOS, max_new_tokens=9, **both)
    assume(not np.isnan(expected).any() and (expected > -np.inf).any())
    found = edgegen_logits(chosen, logits, ids, eos=EOS, max_new_tokens=9, **both)
    np.testing.assert_array_equal(np.flatnonzero(found > -np.inf), np.flatnonzero(expected > -np.inf))
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("name", SHARED)
@settings(deadline=None, max_examples=60, derandomize=True)
@given(data=st.data(), logits=LOGITS, other=LOGITS, ids=IDS, step=st.integers(0, 12))
def test_alone(name: str, data: st.DataObject, logits: Logits, other: Logits, ids: list[int], step: int) -> None:
    value = data.draw(st.sampled_from(CHOICES[name]))
    compare(LogitsSettings(**{name: value}), logits, other, ids, step)


@settings(deadline=None, max_examples=400, derandomize=True)
@given(
    some=st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in CHOICES.items()}),
    logits=LOGITS,
    other=LOGITS,
    ids=IDS,
    step=st.integers(0, 12),
    do_sample=st.booleans(),
)
def test_combined(
    some: dict[str, Any], logits: Logits, other: Logits, ids: list[int], step: int, do_sample: bool
) -> None:
    if "exponential_decay_length_penalty" in some:
        # It makes an end that is masked NaN there, or with invalid values removed the likeliest of all.
        for masking in ("min_length", "min_new_tokens", "forced_bos_token_id", "forced_eos_token_id", "bad_words_ids"):
            some.pop(masking, None)
    compare(LogitsSettings(**some), logits, other, ids, step, do_sample=do_sample)


@settings(deadline=None, max_examples=100)
@given(
    values=st.lists(st.sampled_from([-np.inf, 0.0, 0.5, 1.0, 2.0]), max_size=VOCABULARY),
    name=st.sampled_from(["min_p", "epsilon_cutoff", "eta_cutoff", "top_k", "renormalize_logits"]),
    data=st.data(),
)
def test_ties_and_masked_tokens(values: list[float], name: str, data: st.DataObject) -> None:
    logits = np.array([*values, 1.0], np.float32)
    chosen = LogitsSettings(**{name: data.draw(st.sampled_from(CHOICES[name]))})
    expected = transformers_logits(chosen, logits, [0], prompt_length=1)
    np.testing.assert_allclose(edgegen_logits(chosen, logits, [0], prompt_length=1), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("ids", [[1], [0, 1], [2, 0, 1], [1, 0, 1]])
def test_a_biased_sequence_must_be_shorter_than_the_text(ids: list[int]) -> None:
    chosen = LogitsSettings(sequence_bias={(1, 5): 2.0, (0, 1, 6): 3.0}, bad_words_ids=((1, 7), (2, 0, 1, 8)))
    logits = draws(1, 1.0)
    expected = transformers_logits(chosen, logits, ids, prompt_length=1)
    np.testing.assert_array_equal(edgegen_logits(chosen, logits, ids, prompt_length=1), expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_invalid_values_are_removed_as_there(bad: float) -> None:
    logits = np.array([1.0, bad, -2.0, 0.5], np.float32)
    chosen = LogitsSettings(remove_invalid_values=True, repetition_penalty=1.3, top_k=3)
    expected = transformers_logits(chosen, logits, [0, 2], prompt_length=1)
    np.testing.assert_array_equal(edgegen_logits(chosen, logits, [0, 2], prompt_length=1), expected)
