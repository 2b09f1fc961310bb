"""Parameters of requests, checked against the schema of their API, and left out where they are null."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from edgegen.errors import sentence_or_list
from edgegen.server.http.api_error import ApiError
from edgegen.server.wire.schemas import COMPONENTS
from edgegen.strict_json.check import SchemaCheck
from edgegen.strict_json.schema import Schema


class Parameters:
    """Body of a request to ``url``: an object of ``schema``, whose references name ``components``."""

    def __init__(self, url: str, schema: Schema, components: Mapping[str, Schema] | None = None) -> None:
        self._check = SchemaCheck(schema, {**COMPONENTS, **(components or {})}, url)

    def read(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of ``body`` that are not null, with whole numbers where these are asked for.

        Raises:
            ApiError: lists everything that does not fit the schema; its parameter is the first of them.
        """
        params = cast(dict[str, Any], self._check.with_whole_numbers({**body}))
        found = self._check.problems(params)
        if found:
            first = found[0]
            param, code = str(first.path[0]) if first.path else None, "unknown_parameter" if first.unknown else None
            raise refusal([one.text for one in found], param, code)
        return {name: value for name, value in params.items() if value is not None}


def refusal(problems: Sequence[str], param: str | None = None, code: str | None = None) -> ApiError:
    """The error of a request with these problems."""
    return ApiError(400, sentence_or_list(problems), param=param, code=code)


def check_stream_options(params: Mapping[str, Any]) -> None:
    """Refuse options of a stream where no stream is asked for.

    Raises:
        ApiError: there are options of a stream, and none is asked for.
    """
    if "stream_options" in params and not params.get("stream"):
        raise refusal(["stream_options is for streams: add 'stream': true"], "stream_options")


def several(given: str | list[Any]) -> tuple[str | list[int], ...]:
    """A text, token ids, or a list of such, as a request has them, as the texts and ids that these are."""
    return (given,) if isinstance(given, str) or isinstance(given[0], int) else tuple(given)
