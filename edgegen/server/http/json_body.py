"""Request bodies: a JSON object of bounded size, depth and reading time."""

import json
from collections.abc import Callable
from typing import Any, Never, TypeVar, cast

from starlette.requests import ClientDisconnect, Request

from edgegen.errors import one_or_list
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.options import BODY_SECONDS, MOST_BODY_BYTES, MOST_JSON_DEPTH
from edgegen.server.http.time_limit import time_limit
from edgegen.server.http.work import READING, note_long_body

T = TypeVar("T")

_LONG_BODY = 32 << 10
"""Bytes of a body, such as a long chat's, which may take a tenth of a second to prepare."""


async def read_json(request: Request, check: Callable[[dict[str, Any]], T], *, seconds: float = BODY_SECONDS) -> T:
    """Return what ``check`` makes of the object in the body of ``request``; both in a thread, off the event loop.

    ``seconds``: how long the body may take to come.

    Raises:
        ApiError: the body is too large or too slow, is no such object, or its client has left; or ``check`` raises it.
    """
    data = bytearray()
    try:
        async with time_limit(seconds):
            async for piece in request.stream():
                data += piece
                if len(data) > MOST_BODY_BYTES:
                    raise ApiError(413, f"the body has more than {MOST_BODY_BYTES} bytes.", code="body_too_large")
    except TimeoutError:
        raise ApiError(408, f"the body took more than {seconds:g} seconds.", code="body_too_slow") from None
    except ClientDisconnect:  # which is no failure of the server: nothing is sent or logged
        raise ApiError(499, "the client left before its body was whole.", code="client_left") from None
    if len(data) > _LONG_BODY:
        note_long_body()
    return await READING.run(lambda: check(parse_json(data)))


def parse_json(data: bytes | bytearray) -> dict[str, Any]:
    """The JSON object that ``data`` is.

    Raises:
        ApiError: ``data`` is no JSON object, is nested too deeply, or has a number that JSON has not.
    """
    try:
        value: object = json.loads(data.decode(), parse_constant=_refuse_constant)
        if b"\\ud" in data.lower():  # half a character may have been escaped
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise ApiError(400, "the body is not Unicode text in UTF-8.", code="invalid_json") from None
    except json.JSONDecodeError as error:
        raise ApiError(
            400, f"the body is not JSON: {error.msg} at character {error.pos}.", code="invalid_json"
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {one_or_list([str(error)])}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object.", code="invalid_json")
    content = cast(dict[str, Any], value)
    _check_depth(content)
    return content


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is no number of JSON")


def _check_depth(content: object) -> None:
    level = [content]
    for _ in range(MOST_JSON_DEPTH):
        level = [item for one in level for item in _items(one)]
        if not {dict, list} & set(map(type, level)):
            return
    raise _too_deep()


def _items(content: object) -> list[object]:
    if isinstance(content, dict):
        return [*cast(dict[str, object], content).values()]
    return cast(list[object], content) if isinstance(content, list) else []


def _too_deep() -> ApiError:
    return ApiError(400, f"the body is nested more than {MOST_JSON_DEPTH} levels deep.", code="invalid_json")
