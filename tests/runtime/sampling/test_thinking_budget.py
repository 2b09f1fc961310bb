"""ThinkingBudget: what it forces follows from the token ids alone, forwards and back."""

from random import Random

import numpy as np
import pytest

from edgegen.sampling import Candidates, LogitsContext
from edgegen.sampling.processors.thinking_budget import ThinkingBudget, ThoughtMarks

TOKENS = ["a", "b ", "<t>", "</t>", "\n", "\n\n", "<", "t>", "/t>", "\n</t>"]
"""The vocabulary: also markers in pieces, and one after a line break."""
ENDING = (4, 3, 5)
PROMPT = [0, 1]


def budget(most: int, *, begun: bool) -> ThinkingBudget:
    return ThinkingBudget(most, ThoughtMarks("<t>", "</t>", begun, ENDING, TOKENS.__getitem__))


def forced(process: ThinkingBudget, answer: list[int], masked: int | None = None) -> int | None:
    """The token that is forced after an answer, where others are as likely."""
    logits = np.zeros(len(TOKENS), np.float32)
    if masked is not None:
        logits[masked] = -np.inf
    left = process(Candidates(logits), LogitsContext([*PROMPT, *answer], len(PROMPT))).logits
    allowed = [n for n, logit in enumerate(left) if logit > -np.inf]
    return allowed[0] if len(allowed) == 1 else None


@pytest.mark.parametrize(
    ("begun", "answer", "token_id"),
    [
        (True, [0], None),
        (True, [0, 0], 4),
        (True, [0, 0, 4], 3),
        (True, [0, 0, 4, 3], 5),
        (True, [0, 0, 4, 3, 5], None),
        (True, [0, 3], None),  # ended by itself
        (True, [0, 3, 0, 0], None),
        (True, [0, 6, 8], None),  # ended by itself, in pieces
        (False, [0, 0, 0], None),  # no thoughts
        (False, [2], None),
        (False, [2, 0, 0], 4),
        (False, [4, 2, 0, 0, 4], 3),
        (False, [6, 7, 0, 0], 4),  # begun in pieces
        (False, [0, 2, 0, 0], None),  # what is no beginning is text
    ],
)
def test_the_ending_is_forced_after_two_tokens_of_thoughts(
    begun: bool, answer: list[int], token_id: int | None
) -> None:
    assert forced(budget(2, begun=begun), answer) == token_id


def test_a_character_is_finished_first_but_not_waited_for_forever() -> None:
    marks = ThoughtMarks("<t>", "</t>", True, ENDING, TOKENS.__getitem__, [b"\xf0", b"\x9f", b""].__getitem__)
    assert [forced(ThinkingBudget(1, marks), [0] * count) for count in range(1, 5)] == [None, None, None, 4]
    assert forced(ThinkingBudget(1, marks), [2]) == 4


def test_what_a_constraint_does_not_allow_is_tried_again() -> None:
    process = budget(1, begun=True)
    assert forced(process, [0], masked=4) is None
    assert forced(process, [0, 0], masked=4) is None
    assert forced(process, [0, 0, 0]) == 4
    assert forced(process, [0, 0, 0, 4]) == 3


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_the_thinking_budget_follows_any_sequence_forwards_and_back(most: int, begun: bool) -> None:
    """As beams and rejected proposals have it: a new one that sees only the last answer says the same."""
    random, process = Random(most * 2 + begun), budget(most, begun=begun)
    answer, seen = list[int](), set[int | None]()
    for _ in range(4000):
        del answer[random.randint(0, len(answer)) if random.random() < 0.3 else len(answer) :]
        expected = forced(budget(most, begun=begun), answer)
        assert forced(process, answer) == expected, answer
        seen.add(expected)
        follows = expected is not None and random.random() < 0.7
        answer.append(expected if follows and expected is not None else random.randrange(len(TOKENS)))
        if len(answer) > 12:
            answer.clear()
    assert seen == {None, *ENDING}
