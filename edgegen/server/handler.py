"""Handlers of routes that generate nothing: errors as OpenAI's API has them."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from edgegen.server.api_error import ApiError

Handler = Callable[[Request], Awaitable[Response]]


def answering(handler: Handler) -> Handler:
    """``handler``, with its errors as OpenAI's API has them."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return ApiError.of(error).response()

    return answer
