"""ServedModels: the models of a server by name, and the admission of requests to them."""

import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from edgegen.errors import did_you_mean
from edgegen.llm import LLM
from edgegen.server.api_error import ApiError


class ServedModels:
    """Loaded models; the first is the default. Used by the event loop only."""

    def __init__(self, models: Mapping[str, LLM], capacity: int) -> None:
        self.models = dict(models)
        self.default = next(iter(self.models))
        self.requests = 0
        self._capacity = capacity
        self._created = int(time.time())

    def find(self, name: object) -> tuple[str, LLM]:
        """The model of that name; None is the default.

        Raises:
            ApiError: there is none.
        """
        if name is None:
            return self.default, self.models[self.default]
        if not isinstance(name, str):
            raise ApiError(400, "model: text expected.", param="model")
        if name not in self.models:
            raise ApiError(
                404,
                f"no model named {name!r} is served{did_you_mean(name, self.models)}: there is "
                f"{', '.join(self.models)}.",
                param="model",
                code="model_not_found",
            )
        return name, self.models[name]

    @asynccontextmanager
    async def lease(self, name: object) -> AsyncGenerator[tuple[str, LLM]]:
        """The model of that name, for as long as a request uses it.

        Raises:
            ApiError: there is none.
        """
        yield self.find(name)

    def entry(self, name: str) -> dict[str, Any]:
        """A model as ``/v1/models`` lists it."""
        return {"id": name, "object": "model", "created": self._created, "owned_by": "edgegen"}

    @contextmanager
    def admitted(self) -> Generator[None]:
        """Count a request while it runs or waits.

        Raises:
            ApiError: as many as may be are already there.
        """
        if self.requests >= self._capacity:
            raise ApiError(
                503,
                f"{self.requests} requests run or wait, which is the most: try again later.",
                kind="server_error",
                code="server_overloaded",
                headers={"Retry-After": "1"},
            )
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1
