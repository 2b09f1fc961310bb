"""EngineClient: submits requests to the engine's thread, waits for them or streams them, and cancels them."""

from collections.abc import Sequence as Ids

from edgegen.engine.engine_thread import EngineThread
from edgegen.engine.sequence import Client
from edgegen.errors import UsageError
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.request import Request
from edgegen.generation.results import GenerationResult
from edgegen.generation.stream import TextStream


class EngineClient:
    """Runs requests on one engine thread. Safe to use from any thread."""

    def __init__(self, thread: EngineThread) -> None:
        self.thread = thread
        self._closing = CancelToken()

    def run(self, requests: Ids[Request], token: CancelToken | None) -> list[GenerationResult]:
        """Run to the end, as one client; after an error or Ctrl-C the other requests are cancelled."""
        client = Client()
        try:
            for request in requests:
                self._submit(request, token, client)
            for request in requests:
                if isinstance(error := request.mail.take(), BaseException):
                    raise error
            return [request.result() for request in requests]
        finally:
            for request in requests:
                if not request.finished:
                    self._cancel(request)

    def stream(self, requests: Ids[Request], token: CancelToken | None) -> list[TextStream]:
        """Run as one client, and give out chunks as they are made."""
        client, streams = Client(), list[TextStream]()
        for request in requests:
            request.streamed = True
            streams.append(TextStream(request, self._cancel))
            self._submit(request, token, client)
        return streams

    def close(self, reason: str) -> None:
        """Cancel every request, as a :class:`CancelToken` does, refuse others with ``reason``, and end the thread."""
        self._closing.cancel()
        self.thread.close(reason)

    def _submit(self, request: Request, token: object, client: Client) -> None:
        if token is not None and not isinstance(token, CancelToken):
            raise UsageError(f"cancel must be a CancelToken, not {type(token).__name__}.")
        request.tokens = (self._closing,) if token is None else (token, self._closing)
        for one in request.tokens:
            one.attach(request, lambda: self._cancel(request))
        request.group.client = client
        self.thread.submit(request.group)

    def _cancel(self, request: Request) -> None:
        """May run in a finalizer, at any moment of any thread."""
        self.thread.cancel(request.group)
        request.end()
