"""The token ids that a bundle is compared with its checkpoint on: of a built-in sample text, or of a given file."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import UsageError
from edgegen.system import read_regular_text
from edgegen_export.parity.extent import OF_SMALL, WINDOW
from edgegen_export.tokenizer.written import written_tokenizer

_WINDOWS = OF_SMALL.windows
"""Windows of a text at most."""

_CHARACTERS = 64 * WINDOW * _WINDOWS
"""Characters read of a file: each id spells a few of them."""

Ids = NDArray[np.int64]

SAMPLE_TEXT = """\
Once upon a time there was a lighthouse keeper who lived with an old grey cat. Every evening she climbed the narrow \
stairs, lit the lamp, and watched the ships go by. The cat slept on the warm stones beside the glass. One night the \
wind was so strong that the windows shook. "Do not be afraid," said the keeper. "The walls are thick, and the light \
is on." Far away a small boat turned towards the shore. Two children sat in it with their father. They saw the light \
between the waves, and they knew where the harbour was. In the morning they came up the hill with bread and a basket \
of plums. "You saved us," the father said. The keeper laughed and put the kettle on the stove. "It was the lamp, and \
the cat who reminded me to light it."

A lever is one of the simplest machines. It is a bar that can turn around a fixed point, which is called the fulcrum. \
When a force acts at one end, the other end moves in the opposite direction. If the distance from the fulcrum to the \
hand is longer than the distance from the fulcrum to the load, a small force can lift a large weight, but the hand \
must travel further than the load does. Nothing is gained for free: the work done on both sides is the same. People \
have used levers for thousands of years to move stones, to press oil from olives, and to draw water from wells. A \
seesaw, a pair of scissors and a wheelbarrow are levers too, although they look quite different from each other.

The committee met on Tuesday to discuss the new railway timetable. Several members asked why the first train to the \
coast had been moved to half past seven, and whether the students of the technical school could still arrive on time. \
The director answered that the bridge near the old mill would be repaired during the summer, and that every train had \
to cross it slowly until September. After a long discussion it was decided to add one more train at a quarter past \
six, to publish the changes in the newspaper, and to meet again before the end of the month.
"""


def sample_ids(
    tokenizer_file: Path | None, vocab_size: int, max_context: int, warn: Callable[[str], None]
) -> tuple[Ids, str]:
    """Ids [windows, t] to compare on, and what they are: the sample text, or random ids without a usable tokenizer."""
    length = min(WINDOW, max_context)
    ids: list[int] = []
    if tokenizer_file is None:
        warn("the checkpoint has no tokenizer: the bundle takes and gives token ids only")
    else:
        tokenizer = written_tokenizer(tokenizer_file)
        with suppress(UsageError):  # a closed vocabulary has no token for some words
            ids = [i for i in tokenizer.encode(SAMPLE_TEXT) if i < vocab_size]
        if tokenizer.vocab_size > vocab_size:
            warn(
                f"the tokenizer has {tokenizer.vocab_size} tokens, but the model only {vocab_size}: "
                "prompts with tokens beyond will be refused"
            )
    windows = _windows(ids, max_context)
    if windows is not None:
        return windows, "sample text"
    return np.random.default_rng(0).integers(0, vocab_size, (_WINDOWS, length)), "random ids"


def file_ids(path: Path, tokenizer_file: Path | None, vocab_size: int, max_context: int) -> Ids:
    """The first ids of a text file, [windows, t].

    Raises:
        UsageError: it cannot be read as UTF-8, or is too short; there is no tokenizer for it.
    """
    if tokenizer_file is None:
        raise UsageError("a text to compare on needs a tokenizer, and the checkpoint has none: leave the text out")
    try:
        text = read_regular_text(path, _CHARACTERS)
    except (OSError, ValueError) as error:
        raise UsageError(f"the text {path} to compare on cannot be read: {error}") from error
    ids = [i for i in written_tokenizer(tokenizer_file).encode(text) if i < vocab_size]
    windows = _windows(ids, max_context)
    if windows is None:
        raise UsageError(
            f"the text {path} to compare on has {len(ids)} tokens; at least {_least(max_context)} are needed."
        )
    return windows


def _windows(ids: list[int], max_context: int) -> Ids | None:
    """As many windows as there are ids for, at most ``_WINDOWS``; a shorter one, if need be; None of too few ids."""
    length = min(WINDOW, max_context)
    if len(ids) < _least(max_context):
        return None
    windows = max(1, min(_WINDOWS, len(ids) // length))
    return np.array(ids[: windows * length], np.int64).reshape(windows, -1)


def _least(max_context: int) -> int:
    """The fewest ids to compare on."""
    return min(WINDOW // 4, _WINDOWS * min(WINDOW, max_context))
