"""Masks of every density give what a plain loop gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.constraint.state import keep_allowed
from edgegen.sampling import Candidates


@pytest.mark.parametrize("density", [0.0, 0.001, 0.01, 0.1, 0.5, 0.99, 1.0])
@given(size=st.integers(1, 3000), seed=st.integers(0, 2**32), narrowed=st.booleans())
def test_against_a_loop(density: float, size: int, seed: int, narrowed: bool) -> None:
    random = np.random.default_rng(seed)
    allowed = random.random(size) < density
    logits = random.normal(size=size).astype(np.float32)
    ids = np.sort(random.choice(size, random.integers(1, size + 1), replace=False)) if narrowed else None
    candidates = Candidates(logits if ids is None else logits[ids], ids)
    kept = keep_allowed(candidates, np.packbits(allowed, bitorder="little"))
    among = range(size) if ids is None else ids.tolist()
    kept_ids = np.arange(size) if kept.ids is None else kept.ids
    finite = np.isfinite(kept.logits)
    assert kept_ids[finite].tolist() == [i for i in among if allowed[i]]
    assert (kept.logits[finite] == logits[kept_ids[finite]]).all()
