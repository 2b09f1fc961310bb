"""Several models: loaded on demand and once, unloaded for room and on request, and only by their names."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from edgegen.bundle.bundle import Bundle
from edgegen.errors import UsageError
from edgegen.llm import LLM
from edgegen.server.app import create_app
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.options import ServerOptions
from edgegen.server.models.served_models import ModelLoadError, ServedModels
from tests.runtime.models import RandomGraphs, fake_llm, write_fake_bundle
from tests.runtime.server.material import COMPLETION, OWN, error_of
from tests.waiting import PATIENCE_S

ASKED: dict[str, Any] = {"prompt": "Once", "max_tokens": 6, "temperature": 0}


class SlowToClose(LLM):
    """A model whose memory is not given back before it is let."""

    may_close: threading.Event

    def close(self) -> None:
        assert self.may_close.wait(PATIENCE_S)
        super().close()


class FakeSource:
    """Models of a few lines, each of which takes 10 bytes.

    Attributes:
        loads: names in the order in which they were asked for.
        failing: what loading a model raises.
        removable: names of those that can be deleted.
        unreadable: names of those whose bundles cannot be read.
        may_load: loading waits for it.
        loading: set when one is being loaded.
    """

    def __init__(self, folder: Path, *names: str, budget: int | None = None) -> None:
        self.budget = budget
        self.sizes = dict.fromkeys(names, 10)
        self.loads = list[str]()
        self.made = dict[str, LLM]()
        self.failing = dict[str, Exception]()
        self.removable, self.unreadable = set[str](), set[str]()
        self.may_load, self.may_close, self.loading = threading.Event(), threading.Event(), threading.Event()
        self.may_load.set()
        self.may_close.set()
        self._folder = folder
        self._count = count()

    def names(self) -> list[str]:
        return [*self.sizes]

    def memory(self, name: str) -> int:
        return self.sizes[name]

    def bundle(self, name: str) -> Bundle:
        if name in self.unreadable:
            raise ModelLoadError(f"cannot load {name!r}.")
        return write_fake_bundle(self._folder / f"{name}-{next(self._count)}")

    def check_removable(self, name: str) -> None:
        if name not in self.removable:
            raise UsageError(f"{name!r} cannot be deleted.")

    def remove(self, name: str) -> None:
        self.check_removable(name)
        del self.sizes[name]

    def load(self, name: str) -> LLM:
        self.loads.append(name)
        self.loading.set()
        assert self.may_load.wait(PATIENCE_S)
        if name in self.failing:
            raise self.failing[name]
        folder = self._folder / f"{name}-{next(self._count)}"
        llm = fake_llm(folder, RandomGraphs(seed=len(name) + ord(name[0])))
        llm.__class__ = SlowToClose
        assert isinstance(llm, SlowToClose)
        llm.may_close = self.may_close
        self.made[name] = llm
        return llm


class Told:
    """Record of what happened to models."""

    def __init__(self) -> None:
        self.events = list[str]()

    def model_loaded(self, model: str, seconds: float) -> None:
        assert seconds >= 0
        self.events.append(f"{model} loaded")

    def model_failed(self, model: str) -> None:
        self.events.append(f"{model} failed")

    def model_unloaded(self, model: str) -> None:
        self.events.append(f"{model} unloaded")


def served_of(source: FakeSource, *loaded: str, options: ServerOptions | None = None) -> tuple[ServedModels, Told]:
    told = Told()
    models = {name: source.load(name) for name in loaded}
    source.loads.clear()
    source.loading.clear()
    return ServedModels(models, options or ServerOptions(), told, source=source), told


def client_over(source: FakeSource, *loaded: str, options: ServerOptions | None = None) -> TestClient:
    models = {name: source.load(name) for name in loaded}
    source.loads.clear()
    return TestClient(create_app(models, options or ServerOptions(), source=source), base_url=OWN)


def in_time(work: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(run())


async def statuses(served: ServedModels) -> dict[str, str]:
    return {model.name: model.status for model in await served.listed()}


async def use(served: ServedModels, name: str) -> LLM:
    async with served.lease(name) as (found, llm):
        assert found == name
        return llm


@asynccontextmanager
async def used(served: ServedModels, *names: str) -> AsyncGenerator[None]:
    """Requests run on these models."""
    leases = [served.lease(name) for name in names]
    for lease in leases:
        await lease.__aenter__()
    yield
    for lease in leases:
        await lease.__aexit__(None, None, None)


async def until_waiting(work: "asyncio.Task[Any]", served: ServedModels, name: str) -> None:
    """Let ``work`` go on until ``name`` is being loaded or waits for room."""
    while (await statuses(served))[name] != "loading":
        assert not work.done()
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_model_is_loaded_by_the_first_request_that_names_it(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "first", "other")
    client = client_over(source, "first")
    before = client.get("/models").json()
    assert [(one["id"], one["status"]) for one in before["data"]] == [
        ("first", {"value": "loaded"}),
        ("other", {"value": "unloaded"}),
    ]
    texts = {
        name: client.post(COMPLETION, json=ASKED | {"model": name}).json()["choices"][0]["text"]
        for name in ("first", "other", "other")
    }
    assert source.loads == ["other"]
    for name, text in texts.items():
        assert source.made[name].generate("Once", max_new_tokens=6, temperature=0).text == text
    assert texts["first"] != texts["other"]
    after = client.get("/models").json()
    other = after["data"][1]
    assert (other["status"], other["memory_bytes"], other["requests"]) == ({"value": "loaded"}, 10, 0)
    assert other["last_used"] >= before["data"][0]["created"]
    assert (after["memory_bytes"], after["memory_budget_bytes"]) == (20, None)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/tokenize", {"model": "other", "content": "a"}), ("/detokenize", {"model": "other", "tokens": [1]})],
)
def test_other_routes_load_models_too(tmp_path: Path, path: str, body: Any) -> None:
    source = FakeSource(tmp_path, "first", "other")
    client = client_over(source, "first")
    assert client.post(path, json=body).status_code == 200
    assert source.loads == ["other"]


def test_props_are_those_of_loaded_models(tmp_path: Path) -> None:
    """A GET loads no model, whichever site makes a browser send it."""
    source = FakeSource(tmp_path, "first", "other")
    client = client_over(source, "first")
    response = client.get("/props?model=other")
    assert (response.status_code, error_of(response)["code"]) == (400, "model_not_loaded")
    assert source.loads == []
    client.post("/models/load", json={"model": "other"})
    assert client.get("/props?model=other").json()["models"] == ["first", "other"]


def test_listing_models_loads_none(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "first", "other")
    client = client_over(source, "first")
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["first", "other"]
    assert client.get("/v1/models/other").json()["id"] == "other"
    source.sizes["new"] = 10
    assert client.get("/v1/models/new").json()["id"] == "new"  # installed since the start
    del source.sizes["other"]
    assert [one["id"] for one in client.get("/models").json()["data"]] == ["first", "new"]
    assert source.loads == []


def test_requests_that_come_together_load_a_model_once(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "first", "other")
    served, told = served_of(source, "first")
    source.may_load.clear()

    async def ask() -> None:
        asking = [asyncio.create_task(use(served, "other")) for _ in range(3)]
        await asyncio.to_thread(source.loading.wait, PATIENCE_S)
        assert (await statuses(served))["other"] == "loading"
        asking.append(asyncio.create_task(use(served, "other")))
        source.may_load.set()
        assert {*await asyncio.gather(*asking)} == {source.made["other"]}

    in_time(ask())
    assert source.loads == ["other"]
    assert told.events == ["other loaded"]


@pytest.mark.parametrize("others", [0, 1])
def test_a_client_that_leaves_does_not_end_a_load(tmp_path: Path, others: int) -> None:
    """The others get the model; if there are none, the next request finds it loaded."""
    source = FakeSource(tmp_path, "first", "other")
    served, _ = served_of(source, "first")
    source.may_load.clear()

    async def leave() -> None:
        leaving = asyncio.create_task(use(served, "other"))
        await asyncio.to_thread(source.loading.wait, PATIENCE_S)
        staying = [asyncio.create_task(use(served, "other")) for _ in range(others)]
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        source.may_load.set()
        await asyncio.gather(*staying)
        assert await use(served, "other") is source.made["other"]

    in_time(leave())
    assert source.loads == ["other"]


def test_the_event_loop_goes_on_while_a_model_is_loaded(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "first", "other")
    llm = source.load("first")
    app = create_app({"first": llm}, ServerOptions(), source=source)
    source.loading.clear()
    source.may_load.clear()

    async def ask() -> None:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=OWN) as client:
            loading = asyncio.create_task(client.post("/models/load", json={"model": "other"}))
            await asyncio.to_thread(source.loading.wait, PATIENCE_S)
            assert (await client.get("/health")).status_code == 200
            assert (await client.post(COMPLETION, json=ASKED)).status_code == 200
            refused = await client.post("/models/unload", json={"model": "other"})
            assert (refused.status_code, error_of(refused)["code"]) == (409, "model_in_use")
            states = (await client.get("/models")).json()["data"]
            assert states[1]["status"] == {"value": "loading"}
            assert states[1]["requests"] == 1
            source.may_load.set()
            done = (await loading).json()
            assert (done["success"], done["model"]["status"]) == (True, {"value": "loaded"})

    in_time(ask())


def test_a_load_that_fails_is_an_error_of_its_requests_only(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "first", "other")
    source.failing["other"] = ModelLoadError("cannot load 'other': it is damaged.")
    client = client_over(source, "first")
    asked = ASKED | {"model": "other"}
    response = client.post(COMPLETION, json=asked)
    assert response.status_code == 500
    error = error_of(response)
    assert (error["message"], error["code"]) == ("cannot load 'other': it is damaged.", "model_load_failed")
    state = client.get("/models").json()["data"][1]
    assert state["status"] == {"value": "unloaded", "failed": True, "error": error["message"]}
    assert state["memory_bytes"] == 0
    assert client.post(COMPLETION, json=ASKED).status_code == 200
    del source.failing["other"]
    assert client.post(COMPLETION, json=asked).status_code == 200
    assert client.get("/models").json()["data"][1]["status"] == {"value": "loaded"}
    assert source.loads == ["other", "other"]


def test_an_unexpected_error_of_a_load_is_not_told(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "first", "other")
    source.failing["other"] = LookupError("secret detail")
    response = client_over(source, "first").post("/models/load", json={"model": "other"})
    assert response.status_code == 500
    assert "secret detail" not in response.text


def test_the_least_recently_used_model_leaves_for_room(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b", "c", budget=25)
    served, told = served_of(source, "a")

    async def ask() -> None:
        await use(served, "b")
        await use(served, "a")
        await use(served, "c")
        assert await statuses(served) == {"a": "loaded", "b": "unloaded", "c": "loaded"}
        assert source.made["b"].closed
        assert not source.made["a"].closed
        assert served.memory == 20
        await use(served, "b")
        assert await statuses(served) == {"a": "unloaded", "b": "loaded", "c": "loaded"}

    in_time(ask())
    assert told.events == ["b loaded", "b unloaded", "c loaded", "a unloaded", "b loaded"]


def test_several_leave_for_a_large_one(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b", "large", budget=30)
    source.sizes["large"] = 25
    served, _ = served_of(source, "a", "b")

    async def ask() -> None:
        await use(served, "large")
        assert await statuses(served) == {"a": "unloaded", "b": "unloaded", "large": "loaded"}

    in_time(ask())


def test_a_model_in_use_is_not_unloaded_and_another_waits_for_it(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b", "c", budget=20)
    served, told = served_of(source, "a", "b")

    async def ask() -> None:
        async with used(served, "a"):
            async with used(served, "b"):
                waiting = asyncio.create_task(use(served, "c"))
                await until_waiting(waiting, served, "c")
                assert told.events == []
            assert await waiting is source.made["c"]
            assert source.made["b"].closed
            assert not source.made["a"].closed

    in_time(ask())


def test_waiting_for_room_ends_with_the_time_of_a_request(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b", budget=10)
    served, _ = served_of(source, "a", options=ServerOptions(request_seconds=0.05))

    async def ask() -> None:
        async with used(served, "a"):
            with pytest.raises(ApiError, match="'b' could not be loaded in time") as raised:
                await use(served, "b")
            assert (raised.value.status, raised.value.code) == (503, "model_load_timeout")
            assert raised.value.headers == {"Retry-After": "5"}
        assert not source.made["a"].closed

    in_time(ask())


def test_a_load_for_which_no_client_waits_any_more_drives_out_no_model(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b", budget=10)
    served, told = served_of(source, "a")

    async def ask() -> None:
        async with used(served, "a"):
            leaving = asyncio.create_task(use(served, "b"))
            await until_waiting(leaving, served, "b")
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            while (await statuses(served))["b"] == "loading":
                pass
        assert await statuses(served) == {"a": "loaded", "b": "unloaded"}
        assert (await served.find("b")).problem is None
        await use(served, "b")

    in_time(ask())
    assert told.events == ["a unloaded", "b loaded"]


def test_a_model_that_never_fits_is_refused_and_drives_out_none(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "large", budget=20)
    source.sizes["large"] = 21
    client = client_over(source, "a")
    response = client.post(COMPLETION, json=ASKED | {"model": "large"})
    assert (response.status_code, error_of(response)["code"]) == (400, "model_too_large")
    assert "--memory-budget" in error_of(response)["message"]
    assert source.loads == []
    assert not source.made["a"].closed


def test_models_are_unloaded_on_request(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b")
    client = client_over(source, "a", "b")
    for _ in range(2):  # doing it again does nothing
        done = client.post("/models/unload", json={"model": "a"}).json()
        assert (done["success"], done["model"]["status"]) == (True, {"value": "unloaded"})
        assert source.made["a"].closed
        assert client.get("/models").json()["memory_bytes"] == 10
    assert client.post(COMPLETION, json=ASKED).status_code == 200  # the default, too, is loaded again
    assert source.loads == ["a"]


def test_a_model_in_use_is_not_unloaded_on_request(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b")
    served, _ = served_of(source, "a")

    async def ask() -> None:
        async with used(served, "a"):
            with pytest.raises(ApiError, match="1 requests run on 'a' or wait for it") as raised:
                await served.unload("a")
            assert (raised.value.status, raised.value.code) == (409, "model_in_use")
        assert (await served.unload("a")).status == "unloaded"

    in_time(ask())


def test_a_request_during_unloading_waits_and_loads_again(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", budget=10)
    served, told = served_of(source, "a")
    before = source.made["a"]
    source.may_close.clear()

    async def ask() -> None:
        unloading = asyncio.create_task(served.unload("a"))
        await asyncio.sleep(0)
        while not before.closed and (await statuses(served))["a"] != "unloading":
            pass
        asking = asyncio.create_task(use(served, "a"))
        await until_waiting(asking, served, "a")
        assert source.loads == []
        assert served.memory == 10  # not given back yet
        source.may_close.set()
        await unloading
        assert await asking is not before

    in_time(ask())
    assert told.events == ["a unloaded", "a loaded"]


def test_without_autoload_models_are_loaded_by_hand(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b")
    client = client_over(source, "a", options=ServerOptions(autoload=False))
    asked = ASKED | {"model": "b"}
    for response in (
        client.post(COMPLETION, json=asked),
        client.post("/tokenize", json={"content": "a", "model": "b"}),
    ):
        assert (response.status_code, error_of(response)["code"]) == (400, "model_not_loaded")
    assert source.loads == []
    assert client.post("/models/load", json={"model": "b"}).status_code == 200
    assert client.post(COMPLETION, json=asked).status_code == 200


def test_models_without_a_source_stay_loaded(tmp_path: Path) -> None:
    llm = fake_llm(tmp_path / "fake", RandomGraphs())
    client = TestClient(create_app({"fake": llm}, ServerOptions()), base_url=OWN)
    assert client.post("/models/load", json={"model": "fake"}).json()["success"] is True
    response = client.post("/models/unload", json={"model": "fake"})
    assert (response.status_code, error_of(response)["code"]) == (400, "model_not_unloadable")
    assert not llm.closed


@pytest.mark.parametrize("path", ["/models/load", "/models/unload"])
@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "model"),
        ({"model": None}, 400, "model"),
        ({"model": 3}, 400, "model"),
        ({"model": ["a"]}, 400, "model"),
        ({"model": True}, 400, "model"),
        ({"model": ""}, 404, "model"),
        ({"model": "x"}, 404, "model"),
        ({"modle": "a"}, 400, "modle"),
        ({"model": "a", "path": "/tmp"}, 400, "path"),
    ],
)
def test_bodies_of_model_routes(tmp_path: Path, path: str, body: Any, status: int, param: str) -> None:
    source = FakeSource(tmp_path, "a")
    response = client_over(source, "a").post(path, json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)
    assert not source.made["a"].closed


def test_each_loaded_model_adds_to_the_requests_that_may_run(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b")
    told = Told()
    served = ServedModels({"a": source.load("a")}, ServerOptions(max_queue=0), told, running=1, source=source)

    async def ask() -> None:
        with served.admitted():
            with pytest.raises(ApiError, match="1 requests run or wait"), served.admitted():
                pass
            await use(served, "b")
            with served.admitted():
                pass

    in_time(ask())


def test_metrics_of_models(tmp_path: Path) -> None:
    source = FakeSource(tmp_path, "a", "b", "c", budget=20)
    source.failing["c"] = ModelLoadError("cannot load 'c': it is damaged.")
    client = client_over(source, "a")
    for name in ("b", "c"):
        client.post("/models/load", json={"model": name})
    text = client.get("/metrics").text
    for line in (
        'edgegen_model_loads_total{model="b",result="loaded"} 1.0',
        'edgegen_model_loads_total{model="c",result="failed"} 1.0',
        'edgegen_model_unloads_total{model="a"} 1.0',
        'edgegen_model_load_seconds_count{model="b"} 1.0',
        "edgegen_models_loaded 1.0",
    ):
        assert line in text.splitlines()
