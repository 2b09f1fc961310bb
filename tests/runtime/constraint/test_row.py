"""RowConstraint follows the tokens it is shown, whatever happened to the row between."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.constraint import JsonSchema, Regex, RowConstraint
from edgegen.sampling import Candidates, LogitsContext
from tests.runtime.constraint.vocabulary import Vocabulary

PROMPT = [7, 8, 9]
SCHEMA = JsonSchema.of({"type": "array", "items": {"enum": ["a", "ab", 1]}}, "flexible")
TEXTS = ('["a", "ab", 1]', '["ab"]', '[1, 1, "a"]', "[]")


def kept(row: RowConstraint, ids: list[int], size: int) -> list[int]:
    candidates = row(Candidates(np.zeros(size, np.float32)), LogitsContext(PROMPT + ids))
    ids_kept = np.arange(size) if candidates.ids is None else candidates.ids
    return ids_kept[np.isfinite(candidates.logits)].tolist()


@settings(deadline=None, max_examples=40)
@given(shown=st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(0, 6), st.booleans()), min_size=1, max_size=8))
def test_any_order_of_answers(gpt2: Vocabulary, shown: list[tuple[str, int, bool]]) -> None:
    """Beams change places, speculation takes back: what a row is shown is what counts."""
    row = RowConstraint(gpt2.start(SCHEMA), len(PROMPT))
    for text, length, forked in shown:
        if forked:
            row = row.fork()
        ids = gpt2.encode(text)[:length]
        fresh = RowConstraint(gpt2.start(SCHEMA), len(PROMPT))
        assert kept(row, ids, gpt2.size) == kept(fresh, ids, gpt2.size)
        assert row.is_complete(ids) == (ids == gpt2.encode(text))


def test_rows_that_fork_go_their_own_ways(gpt2: Vocabulary) -> None:
    row = RowConstraint(gpt2.start(Regex("a(b|c)d")), len(PROMPT))
    a, b, c, d = (gpt2.encode(letter)[0] for letter in "abcd")
    kept(row, [a], gpt2.size)
    other = row.fork()
    assert kept(row, [a, b], gpt2.size) == kept(other, [a, c], gpt2.size) == [d]
    assert (row.state.ids, other.state.ids) == ([a, b], [a, c])
    assert row.is_complete([a, b, d])
    assert not other.is_complete([a, c])


def test_forced_tokens_are_proposed_behind_what_is_shown(gpt2: Vocabulary) -> None:
    row = RowConstraint(gpt2.start(Regex("[ab] in the house")), len(PROMPT))
    assert row.propose(PROMPT) == []
    assert row.propose([*PROMPT, gpt2.encode("a")[0]]) == gpt2.encode(" in the house")
