"""The merges of a BPE whose pieces have scores: which two pieces make a third, the best first."""

from collections.abc import Iterable, Mapping


def merges_of(ids: Mapping[str, int], scores: Iterable[tuple[str, float]]) -> list[tuple[str, str]]:
    """Every way to put a piece together from two of ``ids``, ordered as transformers orders them.

    By the score of the whole, then by the lengths of the halves, the larger first; what is still equal stays in the
    order of the pieces, and for one piece in the order of the halves' ids.
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
