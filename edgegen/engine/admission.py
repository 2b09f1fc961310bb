"""Admission: which waiting requests begin to run. Clients take turns, and one with many requests is one of them.

- The best priority begins first; among equals the client with the fewest running sequences, then whoever came first.
- At most ``most_sequences`` clients run at once, and a client that runs already begins another request only while fewer
  sequences than that run. So a client with many requests fills the batch where it is alone, and others begin beside it.
- A request of more sequences than that begins when no other such request runs.
- What does not fit in memory waits; others of its priority may begin before it, but only ``MOST_OVERTAKING`` of them.
"""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from threading import Lock

from edgegen.engine.sequence import Client, SequenceGroup

Fits = Callable[[int, int], bool]
"""``fits(count, length)``: whether there is memory for ``count`` sequences of ``length`` positions."""

MOST_OVERTAKING = 16
"""Requests that begin before one that waits for memory."""


class Admission:
    """The queue. Any thread may add at any moment; one at a time may admit."""

    def __init__(self, most_sequences: int, fits: Fits) -> None:
        self._most_sequences = most_sequences
        self._fits = fits
        self._lock = Lock()
        self._arrivals = count()
        self._queues: dict[Client, list[tuple[int, int, SequenceGroup]]] = {}  # heaps; none is empty

    def __bool__(self) -> bool:
        """Whether any request waits."""
        return bool(self._queues)

    @property
    def groups(self) -> tuple[SequenceGroup, ...]:
        """The requests that wait."""
        with self._lock:
            return tuple(group for queue in self._queues.values() for _, _, group in queue)

    def add(self, group: SequenceGroup) -> None:
        with self._lock:
            heappush(self._queues.setdefault(group.client, []), (group.priority, next(self._arrivals), group))

    def admit(self, running: list[SequenceGroup]) -> SequenceGroup | None:
        """Add to ``running`` the next request that may begin, and return it; None where none may."""
        with self._lock:
            begun = self._next(running) if self._queues else None
            if begun is not None:
                running.append(begun)
                self._pop(begun.client)
            return begun

    def _next(self, running: list[SequenceGroup]) -> SequenceGroup | None:
        sizes = Counter[Client]()
        for group in running:
            sizes[group.client] += len(group.active)
        too_long: SequenceGroup | None = None
        for group in self._in_order(sizes):
            if too_long and (too_long.overtaken >= MOST_OVERTAKING or too_long.priority != group.priority):
                return None
            if not self._has_place(group, sizes):
                return None
            if len(group.sequences) > self._most_sequences and any(
                len(other.sequences) > self._most_sequences for other in running
            ):
                continue
            longest = max((other.longest for other in running), default=0)
            together = sizes.total() + len(group.sequences)
            if running and not self._fits(together, max(longest, group.longest)):
                too_long = too_long or group
                continue
            if too_long:
                too_long.overtaken += 1
            return group
        return None

    def _in_order(self, sizes: Counter[Client]) -> list[SequenceGroup]:
        """The next request of each client."""
        for client in tuple(self._queues):
            while client in self._queues and self._queues[client][0][2].finished:  # cancelled while it waited
                self._pop(client)
        heads = [queue[0] for queue in self._queues.values()]
        heads.sort(key=lambda head: (head[0], sizes[head[2].client], head[1]))
        return [group for _, _, group in heads]

    def _has_place(self, group: SequenceGroup, sizes: Counter[Client]) -> bool:
        if group.client in sizes:
            return sizes.total() + len(group.sequences) <= self._most_sequences
        return len(sizes) < self._most_sequences

    def _pop(self, client: Client) -> None:
        heappop(self._queues[client])
        if not self._queues[client]:
            del self._queues[client]
