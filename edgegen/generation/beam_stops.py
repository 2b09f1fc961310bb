"""BeamStops: applies the stop conditions of a text to every beam of a beam search."""

from collections.abc import Sequence

from edgegen.stopping.text_watcher import TextWatcher


class BeamStops:
    """A watcher for every beam, forked from its parent's: an id costs the same however long the beam."""

    def __init__(self, watcher: TextWatcher) -> None:
        """``watcher`` has seen no id yet."""
        self._parents: dict[tuple[int, ...], TextWatcher | None] = {}  # None of those that have ended
        self._beams: dict[tuple[int, ...], TextWatcher | None] = {(): watcher}

    def __call__(self, ids: Sequence[int]) -> bool:
        """Whether the beam of ``ids`` has ended; its parent was asked about before."""
        beam = tuple(ids)
        if beam[:-1] in self._beams:  # the first of a new length
            self._parents, self._beams = self._beams, {}
        parent = self._parents[beam[:-1]]
        watcher = parent and parent.fork()
        ended = watcher is None or watcher.watch(beam[-1:]) is not None
        self._beams[beam] = None if ended else watcher
        return ended
