"""History: how much of a sequence is unchanged since the last call, for processors that keep state."""

from collections.abc import Sequence


class History:
    """The ids of the last call, to find out cheaply whether the sequence has only grown since.

    Beams, rejected proposals and a second sequence are noticed by comparing all ids, a nanosecond each:
    lists of the same objects are compared by their addresses.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []

    def follow(self, token_ids: Sequence[int]) -> int:
        """How many ids from the start are unchanged since the last call; what was derived from the rest is void."""
        new = token_ids if isinstance(token_ids, list) else list(token_ids)
        ids, seen = self._ids, len(self._ids)
        ids.extend(new[seen:])
        if ids == new:
            return seen
        low, high = 0, min(seen, len(new))
        while low < high:
            middle = (low + high + 1) // 2
            if ids[low:middle] == new[low:middle]:
                low = middle
            else:
                high = middle - 1
        ids[low:] = new[low:]
        return low
