"""Handlers of routes that generate nothing: errors as OpenAI's API has them, and bodies of known parameters."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgegen.errors import did_you_mean
from edgegen.server.api_error import ApiError
from edgegen.server.json_body import read_json

Handler = Callable[[Request], Awaitable[Response]]


def answering(handler: Handler) -> Handler:
    """``handler``, with its errors as OpenAI's API has them."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return ApiError.of(error).response()

    return answer


def check_names(request: Request, given: Iterable[str], known: tuple[str, ...]) -> None:
    """
    Raises:
        ApiError: a parameter of the body or of the query is not ``known``.
    """
    for name in given:
        if name not in known:
            said = f"{name!r} is not a parameter of {request.url.path}{did_you_mean(name, known)}."
            raise ApiError(400, said, param=name, code="unknown_parameter")


async def known_body(request: Request, known: tuple[str, ...]) -> dict[str, Any]:
    """The parameters of the body that are not null.

    Raises:
        ApiError: it is no JSON object, or has a parameter that is not ``known``.
    """
    body = await read_json(request)
    check_names(request, body, known)
    return {name: value for name, value in body.items() if value is not None}
