"""How many checkpoints a slot may have of its fixed states; forecasts ask too, which import no NumPy."""

CHECKPOINTS = 8
"""Most of one slot."""

FEWEST = 3
"""Most of one slot, however large its states are."""

ROOM = 64 << 20
"""Bytes that the checkpoints of one slot take, if they are more than the fewest."""


def most_checkpoints(row_bytes: int) -> int:
    """How many checkpoints one slot has at most, if its states take ``row_bytes``."""
    return max(FEWEST, min(CHECKPOINTS, ROOM // max(1, row_bytes)))
