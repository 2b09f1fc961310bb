"""Handlers of routes that generate nothing: errors as the API of the path has them."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import error_response

Handler = Callable[[Request], Awaitable[Response]]


def answering(handler: Handler) -> Handler:
    """``handler``, with its errors as the API of the request's path has them."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return error_response(ApiError.of(error), request.scope)

    return answer
