"""ServedModels: the models of a server by name, loaded on demand, unloaded for room, and the admission of requests."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from edgegen.bundle.bundle import Bundle
from edgegen.errors import EdgegenError, UsageError, did_you_mean
from edgegen.llm import LLM
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.options import ServerOptions
from edgegen.server.http.time_limit import time_limit
from edgegen.server.http.work import LOADING, Place
from edgegen.server.models.pull_order import PullOrder

_LATEST = ":latest"
"""The tag that clients of ollama put after a name that has none."""


class ModelLoadError(EdgegenError):
    """A model that is served cannot be loaded."""


class ModelSource(Protocol):
    """Where models are loaded from. The methods block, so they run in threads."""

    @property
    def budget(self) -> int | None:
        """Bytes that loaded models may take together; None is no limit."""
        ...

    def names(self) -> Sequence[str]:
        """All models that there are now."""
        ...

    def memory(self, name: str) -> int:
        """An estimate of the bytes that a model takes once it is loaded.

        Raises:
            ModelLoadError: it cannot be read.
        """
        ...

    def load(self, name: str) -> LLM:
        """Load the model of this name.

        Raises:
            ModelLoadError: it cannot be loaded.
        """
        ...

    def bundle(self, name: str) -> Bundle:
        """The bundle of the model of this name.

        Raises:
            ModelLoadError: it cannot be read.
        """
        ...

    def check_removable(self, name: str) -> None:
        """Do nothing where :meth:`remove` would be allowed.

        Raises:
            UsageError: the bundle of this name is not the source's to delete.
            ModelLoadError: there is none any more.
        """
        ...

    def remove(self, name: str) -> None:
        """Delete the bundle of this name, whose model is not loaded.

        Raises:
            UsageError: it is not the source's to delete.
            ModelLoadError: it cannot be deleted.
        """
        ...


class ModelEvents(Protocol):
    """Is told what happens to models, for metrics."""

    def model_loaded(self, model: str, seconds: float) -> None: ...

    def model_failed(self, model: str) -> None: ...

    def model_unloaded(self, model: str) -> None: ...


@dataclass(slots=True, eq=False)
class ServedModel:
    """
    Attributes:
        llm: None while it is not loaded.
        memory: the estimate, from the begin of loading to the end of unloading.
        users: requests that run on it, or wait for it to be loaded.
        last_used: when the last of them ended, in seconds since 1970.
        problem: why it could not be loaded the last time.
        keep_alive: seconds from then on after which it is unloaded; None, or infinite: it stays until others need room.
    """

    name: str
    llm: LLM | None = None
    memory: int = 0
    users: int = 0
    last_used: float = 0.0
    problem: str | None = None
    keep_alive: float | None = None
    expiry: asyncio.TimerHandle | None = None
    loading: asyncio.Task[None] | None = None
    unloading: asyncio.Task[None] | None = None

    @property
    def status(self) -> Literal["loaded", "loading", "unloading", "unloaded"]:
        if self.llm is not None:
            return "loaded"
        if self.loading is not None:
            return "loading"
        return "unloaded" if self.unloading is None else "unloading"


class ServedModels:
    """Models by name; the first is the default. Used by one event loop only, so nothing is locked but the loading.

    Models are loaded one at a time. If the next one would exceed the memory budget, the least recently used model
    without requests is unloaded; where all are in use, it waits until one is not.
    """

    def __init__(
        self,
        models: Mapping[str, LLM],
        options: ServerOptions,
        events: ModelEvents,
        *,
        running: int = 8,
        source: ModelSource | None = None,
    ) -> None:
        """``models`` are loaded already. Without a ``source`` they stay so, and there are no others.

        ``running``: requests that one model runs together.
        """
        self.default = next(iter(models))
        self.requests = 0
        self._models = {
            name: ServedModel(name, llm, source.memory(name) if source else 0, last_used=time.time())
            for name, llm in models.items()
        }
        self._source = source
        self._options = options
        self._running = running
        self._events = events
        self._created = int(time.time())
        self._one_at_a_time = asyncio.Lock()
        self._changes = list[asyncio.Event]()

    @property
    def loaded(self) -> int:
        """How many are loaded."""
        return sum(model.llm is not None for model in self._models.values())

    @property
    def memory(self) -> int:
        """Bytes that the loaded ones are estimated to take."""
        return sum(model.memory for model in self._models.values())

    @property
    def budget(self) -> int | None:
        """Bytes that they may take; None is no limit."""
        return self._source.budget if self._source else None

    async def listed(self) -> list[ServedModel]:
        """All that can be served now; bundles that were installed since the start are among them."""
        if self._source is not None:
            names = await LOADING.run(self._source.names)
            for name in names:
                self._models.setdefault(name, ServedModel(name))
            for name in self._models.keys() - set(names):
                if self._models[name].status == "unloaded" and not self._models[name].users and name != self.default:
                    del self._models[name]
        return [*self._models.values()]

    async def find(self, name: object, *, exact: bool = False) -> ServedModel:
        """The model of that name or alias, or pulled by that name, loaded or not; None is the default.

        ``exact``: only names of its own, and no alias, whatever ``any_model`` says.

        Raises:
            ApiError: there is none.
        """
        if name is None:
            return self._models[self.default]
        if not isinstance(name, str):
            raise ApiError(400, "model: text expected.", param="model")
        if name.removesuffix(_LATEST) in self._options.aliases:
            if exact:
                said = f"{name!r} is an alias of {self.default!r}, which this would unload for all: name it itself."
                raise ApiError(400, said, param="model", code="model_is_alias")
            name = self.default
        if name not in self._models:
            await self.listed()
        if name not in self._models and name.endswith(_LATEST):
            name = name.removesuffix(_LATEST)
        if name not in self._models and not exact and (pulled := await self.pulled(name)):
            return pulled
        if name not in self._models and self._options.any_model and not exact:
            name = self.default
        if name not in self._models:
            known = [*self._models, *self._options.aliases]
            raise ApiError(
                404,
                f"no model named {name!r} is served{did_you_mean(name, known)}: there is {', '.join(known)}.",
                param="model",
                code="model_not_found",
            )
        return self._models[name]

    async def pulled(self, name: str, *, exact: bool = False) -> ServedModel | None:
        """The model that pulling ``name`` has made, which may be a name of the catalogue or a hub id; None without it.

        ``exact``: only the one that would be pulled, not one in another scheme.
        """
        try:
            orders = PullOrder.candidates(name.removesuffix(_LATEST))
        except UsageError:
            return None
        for order in orders[:1] if exact else orders:
            if order.model in self._models:
                model = self._models[order.model]
                with suppress(ApiError):  # it cannot be read
                    source = (await self.bundle(model)).manifest.source
                    if source.kind == "hub" and source.id == order.hub:
                        return model
        return None

    @asynccontextmanager
    async def lease(
        self, name: object, *, load: bool | None = None, keep_alive: float | None = None
    ) -> AsyncGenerator[tuple[str, LLM]]:
        """The model of that name, for as long as a request uses it; it is not unloaded meanwhile.

        ``load``: whether to load it if need be; None is as ``ServerOptions.autoload`` says. ``keep_alive``: as
        :attr:`ServedModel.keep_alive`; None leaves that as it is.

        Raises:
            ApiError: there is none, or it cannot be loaded.
        """
        model = await self.find(name)
        model.users += 1
        _end_timer(model)
        try:
            llm = await self._loaded(model, load=self._options.autoload if load is None else load)
            if keep_alive is not None:
                model.keep_alive = keep_alive
            yield model.name, llm
        finally:
            model.users -= 1
            model.last_used = time.time()
            self._unload_in_time(model)
            self._changed()

    async def unload(self, name: object) -> ServedModel:
        """Give the memory of a model back, unless that has been done.

        Raises:
            ApiError: there is none, requests use it, or it could not be loaded again.
        """
        model = await self.find(name, exact=True)
        self._movable()
        if model.users or model.loading is not None:
            raise ApiError(
                409,
                f"{model.users} requests run on {model.name!r} or wait for it: unload it when they have ended.",
                param="model",
                code="model_in_use",
            )
        if model.llm is not None:
            self._start_unloading(model, model.llm)
        if model.unloading is not None:
            await asyncio.shield(model.unloading)
        return model

    async def release(self, name: object) -> ServedModel:
        """As :meth:`unload`, but a model that requests use is unloaded when they have ended.

        Raises:
            ApiError: there is none, or it could not be loaded again.
        """
        model = await self.find(name, exact=True)
        self._movable()
        if model.users or model.loading is not None:
            model.keep_alive = 0.0
            return model
        return await self.unload(model.name)

    async def bundle(self, model: ServedModel) -> Bundle:
        """The bundle of a model, loaded or not.

        Raises:
            ApiError: it cannot be read.
        """
        if model.llm is not None:
            return model.llm.bundle
        try:
            return await LOADING.run(self._movable().bundle, model.name)
        except Exception as error:
            raise _load_error(error) from None

    async def remove(self, name: object) -> None:
        """Unload a model and delete its bundle.

        Raises:
            ApiError: there is none, requests use it, or it cannot be deleted.
        """
        model = await self.find(name, exact=True)
        try:
            await LOADING.run(self._movable().check_removable, model.name)
            await self.unload(model.name)
            await LOADING.run(self._movable().remove, model.name)
        except Exception as error:
            raise _load_error(error) from None
        await self.listed()

    def _movable(self) -> ModelSource:
        """Where models come from.

        Raises:
            ApiError: they were all given to the server, and none can be unloaded.
        """
        if self._source is None:
            raise ApiError(400, "the models of this server stay loaded.", param="model", code="model_not_unloadable")
        return self._source

    def entry(self, name: str) -> dict[str, Any]:
        """A model as ``/v1/models`` lists it."""
        entry = {"id": name, "object": "model", "created": self._created, "owned_by": "edgegen"}
        aliases = [*dict.fromkeys(self._options.aliases)] if name == self.default else []
        return entry | ({"aliases": aliases} if aliases else {})

    @contextmanager
    def admitted(self) -> Generator[None]:
        """Count a request while it, or work that it has begun, runs or waits.

        Raises:
            ApiError: as many as may be are already there.
        """
        if self.requests >= self._running * max(1, self.loaded) + self._options.max_queue:
            raise ApiError(
                503,
                f"{self.requests} requests run or wait, which is the most: try again later.",
                kind="server_error",
                code="server_overloaded",
                headers={"Retry-After": "1"},
            )
        self.requests += 1
        place = Place(self._free_place)
        try:
            yield
        finally:
            place.leave()

    def _free_place(self) -> None:
        self.requests -= 1

    async def _loaded(self, model: ServedModel, *, load: bool) -> LLM:
        """``model``, which has a user from now on; requests that come while it is being loaded wait for that.

        Raises:
            ApiError: it cannot be loaded, or not in the time of a request.
        """
        if model.llm is None and model.loading is None and not load:
            message = f"{model.name!r} is not loaded: load it with POST /models/load."
            raise ApiError(400, message, param="model", code="model_not_loaded")
        try:
            async with time_limit(self._options.request_seconds):
                while model.llm is None:
                    if model.loading is None:
                        model.loading = asyncio.create_task(self._load(model))
                        model.loading.add_done_callback(_retrieve)
                    await asyncio.shield(model.loading)  # a client that leaves does not end what others wait for
        except TimeoutError:
            message = (
                f"{model.name!r} could not be loaded in time, as other models are loaded or in use: try again later."
            )
            raise ApiError(
                503, message, kind="server_error", code="model_load_timeout", headers={"Retry-After": "5"}
            ) from None
        return model.llm

    async def _load(self, model: ServedModel) -> None:
        """Load ``model``, after others were unloaded where there is no room.

        Raises:
            ApiError: it cannot be loaded, or its users have left while there was no room.
        """
        source = self._source
        assert source is not None  # or it would still be loaded
        try:
            async with self._one_at_a_time:
                if model.unloading is not None:
                    await asyncio.shield(model.unloading)
                memory = await LOADING.run(source.memory, model.name)
                await self._make_room(model, memory, source.budget)
                model.memory, begin = memory, time.perf_counter()
                model.llm = await LOADING.run(source.load, model.name)
                model.last_used, model.problem = time.time(), None
                self._events.model_loaded(model.name, time.perf_counter() - begin)
        except Exception as error:
            found = _load_error(error)
            if not isinstance(error, _AbandonedError):
                model.problem = found.message
                self._events.model_failed(model.name)
            raise found from None
        finally:
            if model.llm is None:
                model.memory = 0
            model.loading = None
            self._changed()

    async def _make_room(self, model: ServedModel, needed: int, budget: int | None) -> None:
        """Unload least recently used models until ``needed`` bytes fit; waits while all others are in use.

        Raises:
            ApiError: they never fit.
            _AbandonedError: no request waits for the model any more.
        """
        if not model.users:
            raise _AbandonedError
        if budget is None:
            return
        if needed > budget:
            raise ApiError(
                400,
                f"{model.name!r} needs about {needed / 1e6:,.0f} MB, and models may take {budget / 1e6:,.0f} MB here: "
                "start the server with a larger --memory-budget.",
                param="model",
                code="model_too_large",
            )
        while self.memory + needed > budget:
            if not model.users:
                raise _AbandonedError
            idle = [one for one in self._models.values() if one.llm is not None and not one.users]
            if idle:
                oldest = min(idle, key=lambda one: one.last_used)
                assert oldest.llm is not None
                await asyncio.shield(self._start_unloading(oldest, oldest.llm))
            else:
                change = asyncio.Event()
                self._changes.append(change)
                await change.wait()

    def _start_unloading(self, model: ServedModel, llm: LLM) -> asyncio.Task[None]:
        """From here on ``model`` is not loaded; its memory counts until it is given back."""
        _end_timer(model)
        model.llm = None
        model.unloading = asyncio.create_task(self._unload(model, llm))
        model.unloading.add_done_callback(_retrieve)
        return model.unloading

    def _unload_in_time(self, model: ServedModel) -> None:
        """Begin the time that a model without requests stays loaded."""
        seconds = model.keep_alive
        if self._source is None or seconds is None or math.isinf(seconds) or model.users or model.llm is None:
            return
        if seconds:
            model.expiry = asyncio.get_running_loop().call_later(seconds, self._expire, model)
        else:
            self._start_unloading(model, model.llm)

    def _expire(self, model: ServedModel) -> None:
        model.expiry = None
        if model.llm is not None and not model.users:
            self._start_unloading(model, model.llm)

    async def _unload(self, model: ServedModel, llm: LLM) -> None:
        try:
            await LOADING.run(llm.close)
        finally:
            model.memory, model.unloading, model.keep_alive = 0, None, None
            self._events.model_unloaded(model.name)
            self._changed()

    def _changed(self) -> None:
        """Wake a load that waits for room."""
        for change in self._changes:
            change.set()
        self._changes.clear()


class _AbandonedError(Exception):
    """All who waited for a model have left before there was room for it."""


def _load_error(error: Exception) -> ApiError:
    if isinstance(error, _AbandonedError):
        return ApiError(503, "the load was given up.", kind="server_error", headers={"Retry-After": "1"})
    if isinstance(error, ModelLoadError):
        return ApiError(500, str(error), kind="server_error", param="model", code="model_load_failed")
    return ApiError.of(error)


def _end_timer(model: ServedModel) -> None:
    if model.expiry is not None:
        model.expiry.cancel()
        model.expiry = None


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve the error of a load that no caller waits for; ``ServedModel.problem`` has it."""
    if not task.cancelled():
        task.exception()
