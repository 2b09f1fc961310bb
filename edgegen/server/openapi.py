"""The OpenAPI 3.1 document of the server, and the route ``/openapi.json`` that returns it."""

from functools import cache
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import edgegen
from edgegen.server.llama import schema as llama
from edgegen.server.messages import schema as messages
from edgegen.server.ollama import schema as ollama
from edgegen.server.openai import schema as openai
from edgegen.server.responses import schema as responses
from edgegen.server.routes import operations as others
from edgegen.server.wire import schemas
from edgegen.server.wire.operation import JSON, Operation
from edgegen.strict_json.schema import STRING, Schema, described, nullable, object_of, published

PATH = "/openapi.json"

_APIS = (openai, responses, messages, ollama, llama, others)

_EVERYWHERE = (401, 403)
"""Statuses of the access rules."""

_REASONS = {
    400: "A parameter is unknown, wrong or beyond its limit; param names it.",
    401: "The API key is missing or wrong.",
    403: "The Host or Origin header is another server's.",
    404: "There is no model of that name.",
    409: "Requests use the model, or another model has its name.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body is of another media type.",
    500: "The server failed on this request.",
    503: "As many requests run or wait as may be; Retry-After says when to try again.",
}

_ERROR: Schema = object_of(
    {
        "error": object_of(
            {
                "message": described(STRING, "One sentence: what is wrong, and what to do."),
                "type": STRING,
                "param": described(nullable(STRING), "The parameter that is wrong."),
                "code": nullable(STRING),
            }
        )
    }
)


def openapi_route() -> Route:
    return Route(PATH, _answer)


async def _answer(request: Request) -> Response:
    return JSONResponse(openapi_document())


@cache
def openapi_document() -> dict[str, Any]:
    """The document: every route, with its parameters, answers and errors."""
    described_paths = dict[str, dict[str, Any]]()
    for operation in (operation for api in _APIS for operation in api.operations()):
        described_paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "edgegen serve",
            "version": edgegen.__version__,
            "description": "OpenAI's, Anthropic's and ollama's APIs over models of edgegen. Every option of a request "
            "is a parameter too; an unknown parameter is an error. A parameter that is null is left out.",
        },
        "security": [{}, {"key": []}],
        "paths": described_paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": published(
                {
                    "Error": _ERROR,
                    **schemas.COMPONENTS,
                    **{name: schema for api in _APIS for name, schema in api.components().items()},
                }
            ),
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    ok: dict[str, Any] = {"description": operation.summary}
    if operation.answers:
        ok["content"] = {media: {"schema": schema} for media, schema in operation.answers.items()}
    if operation.headers:
        ok["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in operation.headers.items()
        }
    refused = (403,) if operation.open else _EVERYWHERE
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": {
            **({} if operation.answers is None else {"200": ok}),
            **{str(status): _error(status, operation) for status in (*refused, *operation.errors)},
        },
    }
    if operation.parameters:
        described["parameters"] = [*operation.parameters]
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": operation.body}}}
    if operation.open:
        described["security"] = []
    return described


def _error(status: int, operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": _REASONS.get(status) or HTTPStatus(status).phrase,
        "content": {JSON: {"schema": operation.error}},
    }
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        described["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
    return described
