"""The BPE merges of a SentencePiece vocabulary with scores, best first."""

from collections.abc import Iterable, Mapping


def merges_of(ids: Mapping[str, int], scores: Iterable[tuple[str, float]]) -> list[tuple[str, str]]:
    """All merges of two pieces of ``ids`` into a third, in transformers' order.

    The order is by the merged piece's score, then by the lengths of the halves, largest first; ties keep the order of
    the pieces, and within a piece the order of the halves' ids.
    """
    found: list[tuple[float, int, int, str, str]] = []
    for piece, score in scores:
        merges = [
            (ids[left], ids[right], left, right)
            for i in range(1, len(piece))
            if (left := piece[:i]) in ids and (right := piece[i:]) in ids
        ]
        merges.sort()
        found += [(score, len(left), len(right), left, right) for _, _, left, right in merges]
    found.sort(key=lambda merge: merge[:3], reverse=True)
    return [(left, right) for _, _, _, left, right in found]
