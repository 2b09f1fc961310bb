"""NGramIndex: where the last tokens of a text have stood before."""

from collections.abc import Sequence


class NGramIndex:
    """Knows of every few tokens in a text their place before. One more token takes the same time in any text.

    The place before is the end of the latest earlier occurrence, as a number of tokens. Each place keeps the one before
    it, so that tokens can be taken back.

    Attributes:
        ids: the text.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        """``sizes``: how many tokens are looked for, those that count most first."""
        self.ids: list[int] = []
        self._sizes = tuple(sizes)
        self._ends: dict[tuple[int, ...], int] = {}
        self._earlier: dict[int, list[int]] = {size: [] for size in self._sizes}

    def append(self, token_id: int) -> None:
        """The text has one more token."""
        self.ids.append(token_id)
        for size in self._sizes:
            ngram = tuple(self.ids[-size:])
            self._earlier[size].append(self._ends.get(ngram, 0) if len(ngram) == size else 0)
            if len(ngram) == size:
                self._ends[ngram] = len(self.ids)

    def truncate(self, length: int) -> None:
        """The text has ``length`` tokens only."""
        while len(self.ids) > length:
            for size in self._sizes:
                ngram, earlier = tuple(self.ids[-size:]), self._earlier[size].pop()
                if earlier:
                    self._ends[ngram] = earlier
                elif len(ngram) == size:
                    del self._ends[ngram]
            self.ids.pop()

    def place_before(self) -> int | None:
        """That of the last tokens, so that ``ids`` from there on are what followed; of the first size that has one."""
        for size in self._sizes:
            earlier = self._earlier[size]
            if earlier and earlier[-1]:
                return earlier[-1]
        return None
