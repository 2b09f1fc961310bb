"""Handlers of routes that generate nothing: errors as OpenAI's API has them, and bodies of known parameters."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgegen.server.api_error import ApiError
from edgegen.server.json_body import read_json
from edgegen.server.parameters import given_parameters

Handler = Callable[[Request], Awaitable[Response]]


def answering(handler: Handler) -> Handler:
    """``handler``, with its errors as OpenAI's API has them."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return ApiError.of(error).response()

    return answer


async def known_body(request: Request, known: tuple[str, ...]) -> dict[str, Any]:
    """The parameters of the body that are not null.

    Raises:
        ApiError: it is no JSON object, or has a parameter that is not ``known``.
    """
    return given_parameters(await read_json(request), request.url.path, known)
