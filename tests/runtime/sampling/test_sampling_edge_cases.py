"""The table of edge cases, each in its own words."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import EdgegenError, LogitsError, OptionError, OptionLogitsError
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsSettings
from edgegen.sampling.sampler import Sampler
from tests.runtime.sampling.edge_cases import CASES, HIGHEST, INF, LOWEST, NAN, EdgeCase


def chosen(case: EdgeCase) -> tuple[set[int], set[int]]:
    """Which tokens can be drawn, and which were in some hundred draws."""
    wanted = LogitsSettings(**case.settings)
    logits = np.array(case.logits, np.float32)
    other = None if case.unconditional is None else np.array(case.unconditional, np.float32)
    context = LogitsContext(list(case.ids), len(case.ids) - case.step, other)
    pipeline = LogitsPipeline.from_settings(
        wanted, do_sample=case.do_sample, eos_token_ids=case.eos, max_new_tokens=case.max_new_tokens
    )
    left = pipeline(Candidates(logits), context)
    sampler = Sampler(seed=0, do_sample=case.do_sample)
    drawn = {sampler.sample(left, position) for position in range(200)}
    possible = np.flatnonzero(left.logits > np.float32(-3.4e38) if left.logits.max() > -3e38 else left.logits > -np.inf)
    return {left.id_at(int(index)) for index in possible}, drawn


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_edge_case(case: EdgeCase) -> None:
    if not case.error:
        possible, drawn = chosen(case)
        assert possible == case.left
        assert drawn <= possible
        return
    kinds = {"logits are NaN or infinite": LogitsError, "no token is left": OptionLogitsError}
    expected = kinds.get(case.error, OptionError)
    with pytest.raises(EdgegenError, match=re.escape(case.error)) as caught:
        chosen(case) if case.logits else LogitsSettings(**case.settings)
    assert type(caught.value) is expected


EXTREMES: dict[str, list[Any]] = {
    "guidance_scale": [0, 1e-38, 3.4e38],
    "logit_bias": [{0: -INF, 1: 3.4e38}, {2: -3.4e38}],
    "repetition_penalty": [1e-45, 3.4e38],
    "frequency_penalty": [-2, 2],
    "presence_penalty": [-2, 2],
    "penalty_last_n": [0, 1, 10**30],
    "dry_multiplier": [1e-45, 3.4e38],
    "dry_base": [1, 1.0000011, 3.4e38],
    "dry_allowed_length": [1, 10**30],
    "dry_penalty_last_n": [0, 1, 10**30],
    "no_repeat_ngram_size": [1, 2, 10**30],
    "min_new_tokens": [1, 10**30],
    "forced_eos_token_id": [0, 2**31 - 1],
    "remove_invalid_values": [True],
    "exponential_decay_length_penalty": [(0, 3.4e38), (0, 1e-45), (10**30, 2.0)],
    "suppress_tokens": [(1,), (2**31 - 2,)],
    "top_n_sigma": [1e-45, 3.4e38],
    "temperature": [1e-30, 1e30],
    "top_k": [1, 10**30],
    "top_p": [0, 5e-324, 1 - 2**-53],
    "min_p": [5e-324, 1],
    "typical_p": [5e-324, 1 - 2**-53],
    "epsilon_cutoff": [5e-324, 1 - 2**-53],
    "eta_cutoff": [5e-324, 1 - 2**-53],
    "xtc_probability": [5e-324, 1],
    "xtc_threshold": [0, 0.5],
    "renormalize_logits": [True],
}
VALUES = st.sampled_from([-INF, LOWEST, -1e30, -50.0, -1.0, 0.0, 0.0, 1e-45, 1.0, 50.0, 1e30, HIGHEST, INF, NAN])


@pytest.mark.slow
@settings(deadline=None, max_examples=1000)
@given(
    some=st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in EXTREMES.items()}),
    logits=st.lists(VALUES, min_size=1, max_size=8),
    ids=st.lists(st.integers(0, 7), min_size=1, max_size=30),
)
def test_extremes_give_a_token_or_say_why_not(some: dict[str, Any], logits: list[float], ids: list[int]) -> None:
    case = EdgeCase("extremes", some, tuple(logits), ids=tuple(ids), step=len(ids) - 1, unconditional=tuple(logits))
    try:
        possible, drawn = chosen(case)
    except LogitsError:
        return
    assert drawn
    assert drawn <= possible


def test_there_are_enough() -> None:
    assert len(CASES) >= 80
    assert len({case.name for case in CASES}) == len(CASES)
