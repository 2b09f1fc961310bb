"""Operation: one method of one path, as the OpenAPI document describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from edgegen.strict_json.schema import COUNT, STRING, Schema, any_of, const, described, object_of, ref

JSON, SSE, TEXT, HTML = "application/json", "text/event-stream", "text/plain", "text/html"
LINES = "application/x-ndjson"
"""A line of JSON for each piece of a stream."""


GENERATION_ERRORS = (400, 404, 408, 413, 500, 503)
"""Statuses of errors of an API that generates text."""

DROPPED_HEADER = "Edgegen-Dropped-Messages"
"""Has a chat's :data:`DROPPED_COUNT`, where that is not none."""

DROPPED_COUNT = described(COUNT, "How many of the oldest messages did not fit the context.")


@dataclass(frozen=True, slots=True)
class Operation:
    """
    Attributes:
        summary: one sentence.
        body: the schema of the JSON object that is sent; None where there is none.
        answers: schemas of the answer with status 200, by media type; None where every request is refused.
        errors: statuses of errors, beside those that every request may be refused with.
        error: the schema of an error's body.
        parameters: of the path and the query, as OpenAPI describes them.
        headers: of the answer, by name, with what they tell.
        open: no key is needed.
    """

    method: Literal["get", "post", "delete"]
    path: str
    summary: str
    answers: Mapping[str, Schema] | None
    _: KW_ONLY
    body: Schema | None = None
    errors: Sequence[int] = ()
    error: Schema = field(default_factory=lambda: ref("Error"))
    parameters: Sequence[Mapping[str, Any]] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    open: bool = False

    @property
    def name(self) -> str:
        """Name that client generators use."""
        words = self.path.replace("{", "").replace("}", "").replace(".", "_").strip("/").split("/")
        return "_".join([self.method, *filter(None, words)])


def posting(
    path: str,
    summary: str,
    body: str,
    answer: Schema,
    errors: Sequence[int] = GENERATION_ERRORS,
    error: Schema | None = None,
) -> Operation:
    """A POST of ``body``, one of the components, which is answered in JSON; ``error``: where it is not OpenAI's."""
    return Operation("post", path, summary, {JSON: answer}, body=ref(body), errors=errors, error=error or ref("Error"))


def chatting(
    path: str,
    summary: str,
    body: str,
    answers: Mapping[str, Schema],
    errors: Sequence[int] = GENERATION_ERRORS,
    error: Schema | None = None,
) -> Operation:
    """As :func:`posting`, with an answer by media type, of whose conversation the oldest messages may be dropped."""
    headers = {DROPPED_HEADER: DROPPED_COUNT["description"]}
    error = error or ref("Error")
    return Operation("post", path, summary, answers, body=ref(body), errors=errors, error=error, headers=headers)


def event(data: str, schema: Schema | None = None) -> dict[str, Any]:
    """A server-sent event; ``schema`` is of the JSON that its data has, unless it is the last one, ``[DONE]``."""
    text: Schema = STRING
    if schema is not None:
        text = any_of(const("[DONE]"), {"type": "string", "contentMediaType": JSON, "contentSchema": schema})
    return object_of({"data": described(text, data)}, {"event": STRING}, more=True)
