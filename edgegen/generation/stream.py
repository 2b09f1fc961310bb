"""TextStream: streams the chunks of one request to a thread or a coroutine."""

from collections.abc import AsyncIterator, Callable, Iterator
from reprlib import repr as shortened
from typing import Self

from edgegen.errors import UsageError
from edgegen.generation.request import Request
from edgegen.generation.results import GenerationChunk, GenerationResult, PromptProgress


class TextStream(Iterator[GenerationChunk], AsyncIterator[GenerationChunk]):
    """Chunks, as they are made: ``for chunk in stream`` or ``async for chunk in stream``.

    ``result`` is there once it has ended; ``close``, leaving ``with``, or forgetting the stream cancels what is left.
    """

    def __init__(self, request: Request, cancel: Callable[[Request], None]) -> None:
        self._request = request
        self._cancel = cancel
        self._text: dict[int, list[str]] = {}
        self._ended = False

    def __repr__(self) -> str:
        return f"TextStream({shortened(self.text)}, {'ended' if self._request.finished else 'running'})"

    def __next__(self) -> GenerationChunk:
        if self._ended:
            raise StopIteration
        try:
            chunk = self._read(self._request.mail.take())
        except BaseException:
            self.close()  # Ctrl-C or a failed step: this request ends, the model stays usable
            raise
        if chunk is None:
            raise StopIteration
        return chunk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GenerationChunk:
        if self._ended:
            raise StopAsyncIteration
        try:
            chunk = self._read(await self._request.mail.take_async())
        except BaseException:
            self.close()  # the task was cancelled, or a step failed
            raise
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is left; does nothing after the end. May be called from any thread."""
        self._ended = True
        if not self._request.finished:
            self._cancel(self._request)

    def wait(self) -> GenerationResult:
        """Read to the end; the result."""
        for _ in self:
            pass
        return self.result

    async def wait_async(self) -> GenerationResult:
        """Read to the end; the result."""
        async for _ in self:
            pass
        return self.result

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of the prompt, known before the first chunk."""
        return self._request.prompt_tokens

    @property
    def prompt_progress(self) -> PromptProgress:
        """How much of the prompt has been read by now, of which no chunk tells; may be asked from any thread."""
        return self._request.prompt_progress

    @property
    def dropped_messages(self) -> int:
        """How many of a chat's oldest messages were left out, as they did not fit the context."""
        return self._request.dropped_messages

    @property
    def text(self) -> str:
        """The text given out so far, of the first answer."""
        return "".join(self._text.get(0, ()))

    @property
    def result(self) -> GenerationResult:
        """The whole answer, after its last piece.

        Raises:
            UsageError: the answer has not ended yet.
        """
        if not self._request.finished:
            raise UsageError("the stream has not ended: read it to its end, or close it, before asking for its result.")
        return self._request.result()

    def _read(self, item: GenerationChunk | BaseException | None) -> GenerationChunk | None:
        if item is None or isinstance(item, BaseException):
            self._ended = True
            self._request.mail.put(None)  # for other readers of this stream
            if isinstance(item, StopIteration | StopAsyncIteration):  # a loop would take it for the stream's end
                raise RuntimeError(f"a function of the caller raised {type(item).__name__}") from item
            if item is not None:
                raise item
            return None
        self._text.setdefault(item.index, []).append(item.text)
        return item
