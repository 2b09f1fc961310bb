"""PrefillReports: tells the client of a stream how much of each prompt has been read."""

import asyncio
from collections.abc import Sequence

from edgegen.generation.results import PromptProgress
from edgegen.generation.stream import TextStream
from edgegen.server.wire.wire import Event, ProgressWriter, ResponseWriter

_EVERY_SECONDS = 0.1


class PrefillReports:
    """Looks at the counters of the streams, for as long as one of them has not begun its answer."""

    def __init__(self, streams: Sequence[TextStream], writer: ResponseWriter) -> None:
        assert isinstance(writer, ProgressWriter), "a wire that reports progress has a writer for it"
        self._writer = writer
        self._read = dict(enumerate(streams))
        self._told = dict[int, PromptProgress]()
        self._looked_at = asyncio.get_running_loop().time()

    @property
    def due(self) -> float | None:
        """When to look again, by the clock of the event loop."""
        return self._looked_at + _EVERY_SECONDS if self._read else None

    def look(self) -> list[Event]:
        """The events of the prompts of which more has been read."""
        self._looked_at = asyncio.get_running_loop().time()
        return [event for prompt in self._read for event in self._tell(prompt)]

    def end(self, prompt: int) -> list[Event]:
        """The last event of a prompt whose answer begins."""
        events = self._tell(prompt) if prompt in self._read else []
        self._read.pop(prompt, None)
        return events

    def _tell(self, prompt: int) -> list[Event]:
        found, told = self._read[prompt].prompt_progress, self._told.get(prompt)
        if told is not None and told.processed == found.processed:
            return []
        self._told[prompt] = found
        return [*self._writer.progress(found, prompt)]
