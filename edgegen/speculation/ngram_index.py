"""NGramIndex: where the last tokens of a text have stood before."""

from collections.abc import Sequence


class NGramIndex:
    """Knows where every few tokens of a text stood first. One more token takes the same time in any text.

    A place is a number of tokens: that of the text up to the end of the few.

    Attributes:
        ids: the text.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        """``sizes``: how many tokens are looked for, those that count most first."""
        self.ids: list[int] = []
        self._sizes = tuple(sizes)
        self._first: dict[tuple[int, ...], int] = {}

    def append(self, token_id: int) -> None:
        """The text has one more token."""
        self.ids.append(token_id)
        length = len(self.ids)
        for size in self._sizes:
            if size <= length:
                self._first.setdefault(tuple(self.ids[-size:]), length)

    def truncate(self, length: int) -> None:
        """The text has ``length`` tokens only."""
        while len(self.ids) > length:
            for size in self._sizes:
                ngram = tuple(self.ids[-size:])
                if self._first.get(ngram) == len(self.ids):
                    del self._first[ngram]
            self.ids.pop()

    def place_before(self) -> int | None:
        """That of the last tokens, if it is an earlier one: ``ids`` from there on are what followed.

        Of as many as the first of the sizes that has one.
        """
        length = len(self.ids)
        for size in self._sizes:
            place = self._first.get(tuple(self.ids[-size:]), length)
            if place < length:
                return place
        return None
