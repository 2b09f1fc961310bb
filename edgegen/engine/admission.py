"""Admission: which waiting requests begin to run. Clients take turns, and one with many requests is one of them.

- The best priority begins first; among equals the client with the fewest running sequences, then the one that waited
  longest since it came, or since its last request began.
- At most ``most_sequences`` clients run at once, and a client that runs already begins another request only while fewer
  sequences than that run. So a client with many requests fills the batch where it is alone, and others begin beside it.
- A request of several sequences begins beside others as long as twice that number run with it; one of more sequences
  than ``most_sequences`` does not count there, and begins when no other such request runs.
- What does not fit in memory waits; others of its priority may begin before it, one request of each client and
  ``MOST_OVERTAKING`` in all.
"""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
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
        self._times = count()  # when requests came and began
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
            heappush(self._queues.setdefault(group.client, []), (group.priority, next(self._times), group))

    def admit(self, running: list[SequenceGroup]) -> SequenceGroup | None:
        """Add to ``running`` the next request that may begin, and return it; None where none may."""
        with self._lock:
            begun = self._next(running) if self._queues else None
            if begun is not None:
                running.append(begun)
                begun.client.last_begun = next(self._times)
                self._pop(begun.client)
            return begun

    def _next(self, running: list[SequenceGroup]) -> SequenceGroup | None:
        sizes = Counter[Client]()
        for group in running:
            sizes[group.client] += len(group.active)
        waits, too_long = list[SequenceGroup](), list[SequenceGroup]()
        overtakes_until = inf  # clients that have begun a request since then do not overtake again
        for came, group in self._in_order(sizes):
            if any(one.priority < group.priority for one in waits):
                return None
            if any(one.overtaken >= MOST_OVERTAKING for one in too_long):
                return None
            if group.client.last_begun > overtakes_until or not self._has_place(group, running, sizes):
                waits.append(group)
            elif running and not self._has_room(group, running, sizes):
                waits.append(group)
                too_long.append(group)
                overtakes_until = min(overtakes_until, came)
            else:
                for one in too_long:
                    one.overtaken += 1
                return group
        return None

    def _in_order(self, sizes: Counter[Client]) -> list[tuple[int, SequenceGroup]]:
        """When the next request of each client came, or its client began the one before, and that request."""
        for client in tuple(self._queues):
            while client in self._queues and self._queues[client][0][2].finished:  # cancelled while it waited
                self._pop(client)
        firsts = [queue[0] for queue in self._queues.values()]
        heads = [(max(came, group.client.last_begun), group) for _, came, group in firsts]
        heads.sort(key=lambda head: (head[1].priority, sizes[head[1].client], head[0]))
        return heads

    def _has_place(self, group: SequenceGroup, running: list[SequenceGroup], sizes: Counter[Client]) -> bool:
        most, count = self._most_sequences, len(group.sequences)
        if group.client in sizes:
            return sizes.total() + count <= most
        if len(sizes) >= most:
            return False
        if count > most:
            return all(len(other.sequences) <= most for other in running)
        small = sum(len(other.active) for other in running if len(other.sequences) <= most)
        return count == 1 or small + count <= 2 * most

    def _has_room(self, group: SequenceGroup, running: list[SequenceGroup], sizes: Counter[Client]) -> bool:
        longest = max(group.longest, *(other.longest for other in running))
        return self._fits(sizes.total() + len(group.sequences), longest)

    def _pop(self, client: Client) -> None:
        heappop(self._queues[client])
        if not self._queues[client]:
            del self._queues[client]
