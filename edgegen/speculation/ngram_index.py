"""NGramIndex: finds an earlier occurrence of a sequence's last tokens, for prompt lookup."""

from collections.abc import Sequence


class NGramIndex:
    """The first place of every n-gram of a sequence. Adding a token takes constant time.

    A place is the number of tokens up to the end of the n-gram.

    Attributes:
        ids: the sequence.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        """``sizes``: lengths of the n-grams to look for, the preferred first."""
        self.ids: list[int] = []
        self._sizes = tuple(sizes)
        self._first: dict[tuple[int, ...], int] = {}

    def append(self, token_id: int) -> None:
        """Add a token."""
        self.ids.append(token_id)
        length = len(self.ids)
        for size in self._sizes:
            if size <= length:
                self._first.setdefault(tuple(self.ids[-size:]), length)

    def truncate(self, length: int) -> None:
        """Forget the tokens from ``length`` on."""
        while len(self.ids) > length:
            for size in self._sizes:
                ngram = tuple(self.ids[-size:])
                if self._first.get(ngram) == len(self.ids):
                    del self._first[ngram]
            self.ids.pop()

    def place_before(self) -> int | None:
        """The earlier place of the last tokens, by the first size that has one: ``ids`` from there on followed them."""
        length = len(self.ids)
        for size in self._sizes:
            place = self._first.get(tuple(self.ids[-size:]), length)
            if place < length:
                return place
        return None
