"""PullAnswer: how a model is being pulled, as ollama's API tells it: lines of JSON, or one object at the end."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from edgegen.generation.cancellation import CancelToken
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import error_response, ollama_error
from edgegen.server.http.request_log import LoggedError, request_facts
from edgegen.server.models.pull_order import PullOrder
from edgegen.server.models.pulls import PullProgress, Pulls
from edgegen.server.wire.endpoint import while_connected
from edgegen.server.wire.wire import JSON_LINES, Event

FIRST, SUCCESS = {"status": "pulling manifest"}, {"status": "success"}

_VERIFYING = "verifying"
"""Beginning of a stage that clients know by ollama's words: of a download, and then of the bundle."""


class PullAnswer(Response):
    """Pulls a model while its client, or another one of the same model, is there.

    ``check`` is called when it is pulled; its error is the client's.
    """

    def __init__(
        self, pulls: Pulls, order: PullOrder, check: Callable[[], Awaitable[object]], *, stream: bool, seconds: float
    ) -> None:
        """``seconds``: after them the last line of a stream is sent again: the connection must not look dead."""
        super().__init__()
        self._pulls = pulls
        self._order = order
        self._check = check
        self._stream = stream
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._lines(scope, send) if self._stream else self._whole(scope, receive, send)
        await while_connected(answer, receive, CancelToken())

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._pulls.joined(self._order) as pull:
                async for _ in pull.follow(self._seconds):
                    pass
            await self._check()
            response: Response = JSONResponse(SUCCESS)
        except Exception as error:
            response = error_response(ApiError.of(error), scope)
        await response(scope, receive, send)

    async def _lines(self, scope: Scope, send: Send) -> None:
        headers = [(b"content-type", JSON_LINES.media.encode()), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _say(send, FIRST)
        try:
            async with self._pulls.joined(self._order) as pull:
                async for progress in pull.follow(self._seconds):
                    await _say(send, _line(progress))
            await self._check()
            last: dict[str, Any] = SUCCESS
        except Exception as error:
            found = ApiError.of(error)
            facts = request_facts(scope)
            facts.status, facts.error = found.status, LoggedError.of(found.code, found.param)
            last = ollama_error(found)
        await _say(send, last, more=False)


def _line(progress: PullProgress) -> dict[str, Any]:
    """A line of progress; ``digest`` is the downloaded file's."""
    verifies = progress.stage.partition(" ")[0] == _VERIFYING
    line: dict[str, Any] = {"status": "verifying sha256 digest" if verifies else progress.stage}
    if progress.sha256 is not None:
        line["digest"] = f"sha256:{progress.sha256}"
    if progress.total is not None:
        line |= {"total": progress.total, "completed": progress.completed}
    return line


async def _say(send: Send, line: dict[str, Any], *, more: bool = True) -> None:
    text = JSON_LINES.text(Event.of(line))
    await send({"type": "http.response.body", "body": text.encode(), "more_body": more})
