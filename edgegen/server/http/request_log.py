"""RequestLog: one line of the log for each request, without anything of its prompt or its answer."""

import logging
import re
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, Self, cast
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgegen.server.http.log import REQUEST_FIELDS

_LOG = logging.getLogger("edgegen.server.requests")
_FACTS = "edgegen.request_facts"

_UNREMARKABLE = ("/", "/health", "/metrics")
"""Paths that are asked for again and again, two of them without a key."""

_REFUSED = (401, 403, 431)
"""Answered to those who may connect and no more: they could fill a log otherwise."""

_MOST_PATH = 200
_PLACE = re.compile(r"[a-z][a-zA-Z0-9_]{0,39}([.\[][a-zA-Z0-9_]{0,39}\]?){0,8}")
_CLIENT_LEFT = 499

_SHORT = {
    "model": "model",
    "prompt_tokens": "in",
    "cached_tokens": "cached",
    "completion_tokens": "out",
    "seconds": "seconds",
    "first_token_seconds": "first",
    "code": "code",
    "param": "param",
}
"""Fields that follow method, path and status in a line of text, with their names there."""


class LoggedError(NamedTuple):
    """Why a request failed: its error's code and parameter, None where there is none or it is no plain name."""

    code: str | None
    param: str | None

    @classmethod
    def of(cls, code: str | None, param: str | None) -> Self:
        """Of a parameter only its name and places in it, as clients could put any text into a name."""
        return cls(code, param if param is not None and _PLACE.fullmatch(param) else None)


@dataclass(slots=True)
class RequestFacts:
    """Facts about a request that its endpoint learns for the log; None where unknown.

    Attributes:
        model: the name of one that is served, or pulled.
        status: of an error that ended a stream, whose HTTP status was sent before.
        error: what the request was answered with, or its stream ended with.
    """

    model: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    first_token_seconds: float | None = None
    status: int | None = None
    error: LoggedError | None = None


def request_facts(scope: Scope) -> RequestFacts:
    """The facts of the request of that scope."""
    return cast(RequestFacts, scope.setdefault(_FACTS, RequestFacts()))


class RequestLog:
    """Logs a request when it has ended: on the level info, or debug where it is unremarkable.

    A client that leaves before it has the whole answer has the status 499.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _LOG.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        facts, begin = request_facts(scope), perf_counter()
        begun = ended = _CLIENT_LEFT

        async def watched(message: Message) -> None:
            nonlocal begun, ended
            await send(message)
            if message["type"] == "http.response.start":
                begun = message["status"]
            elif message["type"] == "http.response.body" and not message.get("more_body", False):
                ended = begun

        try:
            await self._app(scope, receive, watched)
        except Exception:
            ended = 500
            raise
        finally:
            _log(scope, facts, facts.status or ended, perf_counter() - begin)


def _log(scope: Scope, facts: RequestFacts, status: int, seconds: float) -> None:
    unremarkable = scope["path"] in _UNREMARKABLE or status in _REFUSED
    level = logging.DEBUG if unremarkable else logging.INFO
    if not _LOG.isEnabledFor(level):
        return
    path = quote(scope["path"][:_MOST_PATH], safe="/:@")  # a client's, so that it could have lines of its own
    known = {
        "model": facts.model,
        "prompt_tokens": facts.prompt_tokens,
        "cached_tokens": facts.cached_tokens,
        "completion_tokens": facts.completion_tokens,
        "seconds": round(seconds, 3),
        "first_token_seconds": None if facts.first_token_seconds is None else round(facts.first_token_seconds, 3),
        "code": facts.error and facts.error.code,
        "param": facts.error and facts.error.param,
    }
    told = {name: value for name, value in known.items() if value is not None}
    fields: dict[str, Any] = {"method": scope["method"], "path": path, "status": status, **told}
    text = " ".join(f"{_SHORT[name]}={value}" for name, value in told.items())
    _LOG.log(level, "%s %s %d %s", scope["method"], path, status, text, extra={REQUEST_FIELDS: fields})
