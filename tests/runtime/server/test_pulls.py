"""Pulls over HTTP: one process a model for all who wait for it, progress, errors, the end, and the catalogue."""

import asyncio
import json
import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.catalogue import catalogue
from edgegen.bundle.manifest import Source
from edgegen.errors import EdgegenError, UsageError
from edgegen.llm import LLM
from edgegen.server.app import create_app
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.options import ServerOptions
from edgegen.server.models.pull_order import PullOrder
from edgegen.server.models.pulls import MOST_PULLS, WAITING, PullProgress, Pulls
from edgegen.server.ollama.schema import CHAT, DELETE, PULL, SHOW
from edgegen.server.openapi import openapi_document
from edgegen.server.routes.model_routes import CATALOGUE
from tests.runtime.server.material import HELLO, OWN
from tests.runtime.server.test_models import FakeSource, in_time
from tests.runtime.server.test_openapi import validator
from tests.waiting import PATIENCE_S

NAME, REPO = "smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"
ORDER = PullOrder(f"{NAME}-int8", NAME, "int8", REPO)
OTHER = PullOrder("other-int8", "org/other", "int8", "org/other")
DOWNLOAD = '{"stage": "downloading", "file": "a", "sha256": "ab", "completed": %d, "total": 10}'
SLOW = 1000.0


class FakeRunner:
    """A pull that says what a test has it say; a number is its exit code."""

    def __init__(self, *said: str | int) -> None:
        self._said = queue.Queue[str | int]()
        self._code = 0
        self.ends = 0
        self.say(*said)

    def say(self, *said: str | int) -> None:
        for one in said:
            self._said.put(one)

    def lines(self) -> Iterator[str]:
        while isinstance(one := self._said.get(timeout=PATIENCE_S), str):
            yield one
        self._code = one

    def wait(self) -> int:
        return self._code

    def end(self) -> None:
        self.ends += 1
        self.say(130)


class Started:
    """Gives the runners of a test, and remembers what they were started for."""

    def __init__(self, *runners: FakeRunner) -> None:
        self.orders = list[PullOrder]()
        self._runners = iter(runners)

    def __call__(self, order: PullOrder) -> FakeRunner:
        self.orders.append(order)
        return next(self._runners)


class Follower:
    """One who waits for a pull, and what it has heard."""

    def __init__(self, pulls: Pulls, order: PullOrder = ORDER) -> None:
        self.heard = list[PullProgress]()
        self._task = asyncio.create_task(self._follow(pulls, order))

    async def _follow(self, pulls: Pulls, order: PullOrder) -> None:
        async with pulls.joined(order) as pull:
            async for progress in pull.follow(SLOW):
                self.heard.append(progress)

    @property
    def stages(self) -> list[str]:
        return [progress.stage for progress in self.heard]

    async def hears(self, stage: str) -> None:
        while stage not in self.stages:
            assert not self._task.done(), self._task
            await asyncio.sleep(0.001)

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def end(self) -> None:
        await self._task

    async def error(self) -> ApiError:
        with pytest.raises(ApiError) as caught:
            await self._task
        return caught.value


def test_two_clients_hear_of_one_process_whenever_they_come() -> None:
    runner = FakeRunner('{"stage": "opening"}', DOWNLOAD % 3)
    started = Started(runner)

    async def work() -> None:
        pulls = Pulls(started)
        first = Follower(pulls)
        await first.hears("downloading")
        second = Follower(pulls)
        await second.hears("downloading")
        assert pulls.models == {ORDER.model}
        runner.say(DOWNLOAD % 10, '{"stage": "quantizing", "completed": 1, "total": 2}', 0)
        await first.end()
        await second.end()
        for follower in (first, second):
            assert follower.heard[-2:] == [
                PullProgress("downloading", "ab", 10, 10),
                PullProgress("quantizing", None, 1, 2),
            ]
        assert second.stages[0] == "opening"
        assert pulls.models == set()

    in_time(work())
    assert (started.orders, runner.ends) == ([ORDER], 0)


def test_it_goes_on_until_the_last_client_has_left_and_then_ends(caplog: pytest.LogCaptureFixture) -> None:
    first_run, second_run = FakeRunner('{"stage": "one"}'), FakeRunner('{"stage": "two"}', 0)
    started = Started(first_run, second_run)

    async def work() -> None:
        pulls = Pulls(started)
        first, second = Follower(pulls), Follower(pulls)
        await first.hears("one")
        await first.leave()
        await second.hears("one")
        assert first_run.ends == 0
        await second.leave()
        assert first_run.ends == 1
        third = Follower(pulls)  # which may come before the process has ended
        await third.end()
        assert third.stages == ["two"]

    in_time(work())
    assert started.orders == [ORDER, ORDER]
    assert caplog.text == ""


def test_the_last_word_is_said_again() -> None:
    runner = FakeRunner('{"stage": "one"}')

    async def work() -> None:
        async with Pulls(Started(runner)).joined(ORDER) as pull:
            said = list[str]()
            async for progress in pull.follow(0.001):
                said.append(progress.stage)
                if len(said) == 3:
                    runner.say(0)
            assert {*said} == {"one"}

    in_time(work())


def test_one_model_is_pulled_at_a_time() -> None:
    runner, other = FakeRunner('{"stage": "one"}'), FakeRunner('{"stage": "two"}', 0)
    started = Started(runner, other)

    async def work() -> None:
        pulls = Pulls(started)
        first = Follower(pulls)
        await first.hears("one")
        waiting, leaving = Follower(pulls, OTHER), Follower(pulls, replace(OTHER, model="third"))
        for follower in (waiting, leaving):
            await follower.hears(WAITING.stage)
        await leaving.leave()
        while pulls.models != {ORDER.model, OTHER.model}:
            await asyncio.sleep(0.001)
        assert started.orders == [ORDER]
        runner.say(0)
        await waiting.end()
        assert waiting.stages == [WAITING.stage, "two"]

    in_time(work())


def test_no_more_than_a_few_models_wait() -> None:
    async def work() -> None:
        pulls = Pulls(Started(FakeRunner('{"stage": "one"}')))
        followers = [Follower(pulls, replace(ORDER, model=f"{n}")) for n in range(MOST_PULLS)]
        await followers[0].hears("one")
        error = await Follower(pulls).error()
        assert (error.status, error.code) == (503, "too_many_pulls")
        for follower in reversed(followers):
            await follower.leave()

    in_time(work())


@pytest.mark.parametrize(
    ("said", "status", "message"),
    [
        (("edgegen: error: the disk is full.", 1), 500, "the disk is full."),
        (("edgegen: error: no such name.", 2), 400, "no such name."),
        (("edgegen: error: none", "edgegen: note: there is a list", 1), 500, "none; there is a list."),
        (("{", "Traceback", "Killed", -9), 500, f"the process that pulled '{NAME}' ended with code -9; the"),
    ],
)
def test_what_a_process_says_is_the_error(
    said: tuple[str | int, ...], status: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        error = await Follower(Pulls(Started(FakeRunner(*said)))).error()
        assert error.status == status
        assert error.message.startswith(message)

    in_time(work())
    assert ("Killed" in caplog.text) == ("Killed" in said)


def test_no_error_tells_where_the_server_has_its_files(edgegen_home: Path) -> None:
    place = edgegen_home / "bundles" / ORDER.model
    said = f"edgegen: error: {place} is a file, beside {edgegen_home / 'bundles'}, for {Path.home()}."

    async def work() -> None:
        error = await Follower(Pulls(Started(FakeRunner(said, 1)))).error()
        assert error.message == f"'{ORDER.model}' is a file, beside the store, for ~."

    in_time(work())


def test_a_process_that_cannot_be_started_is_an_error() -> None:
    def start(order: PullOrder) -> FakeRunner:
        raise EdgegenError("a frozen app pulls no models.")

    async def work() -> None:
        pulls = Pulls(start)
        assert (await Follower(pulls).error()).message == "a frozen app pulls no models."
        assert pulls.models == set()

    in_time(work())


def test_the_end_of_the_server_ends_what_runs() -> None:
    runner = FakeRunner('{"stage": "one"}')

    async def work() -> None:
        with Pulls(Started(runner)) as pulls:
            running = Follower(pulls)
            await running.hears("one")
            waiting = Follower(pulls, OTHER)
            await waiting.hears(WAITING.stage)
            pulls.end()
            late = Follower(pulls, replace(OTHER, model="late"))
            for follower in (running, waiting, late):
                assert (await follower.error()).code == "server_stopped"

    in_time(work())
    assert runner.ends == 1


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "model", "source", "scheme"),
    [
        (NAME, f"{NAME}-int8", NAME, "int8"),
        ("SmolLM2:135m", f"{NAME}-int8", NAME, "int8"),
        (REPO, f"{NAME}-int8", NAME, "int8"),
        (f"hf.co/{REPO}", f"{NAME}-int8", NAME, "int8"),
        (f"{NAME}-int4", f"{NAME}-int4", NAME, "int4"),
        ("smollm2:135m-int8", f"{NAME}-int8", NAME, "int8"),
        ("org/Model_1", "Model_1-int8", "org/Model_1", "int8"),
        ("gpt2-int4", "gpt2-int4-int8", "gpt2-int4", "int8"),
    ],
)
def test_what_a_name_means(name: str, model: str, source: str, scheme: str) -> None:
    order = PullOrder.of(name)
    assert (order.model, order.source, order.scheme) == (model, source, scheme)
    assert order.hub == (REPO if source == NAME else source)


@pytest.mark.parametrize("name", ["", "..", "../x", "a/../b", "-x", "/etc/passwd", "a/b/c", "a:4b", "x\n", "~", "é/a"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(UsageError, match="is on no list and no hub id"):
        PullOrder.of(name)


# ---------------------------------------------------------------- HTTP


class HubSource(FakeSource):
    """Models of which some were pulled.

    Attributes:
        origin: hub ids by name.
    """

    def __init__(self, folder: Path, *names: str) -> None:
        super().__init__(folder, *names)
        self.origin = dict[str, str]()

    def bundle(self, name: str) -> Bundle:
        return self._of_origin(name, super().bundle(name))

    def load(self, name: str) -> LLM:
        llm = super().load(name)
        llm.bundle = self._of_origin(name, llm.bundle)
        return llm

    def _of_origin(self, name: str, bundle: Bundle) -> Bundle:
        if name not in self.origin:
            return bundle
        return replace(bundle, manifest=replace(bundle.manifest, source=Source("hub", self.origin[name], "main")))


@pytest.fixture
def source(tmp_path: Path) -> HubSource:
    return HubSource(tmp_path, "a")


def client_over(source: HubSource, *runners: FakeRunner, any_model: bool = False) -> TestClient:
    options = ServerOptions(any_model=any_model)
    pulls = Pulls(Started(*runners)) if runners else None
    return TestClient(create_app({"a": source.load("a")}, options, source=source, pulls=pulls), base_url=OWN)


def pulled_by(source: HubSource, name: str = ORDER.model, hub: str = REPO) -> None:
    source.sizes[name] = 10
    source.origin[name] = hub


class Installing(FakeRunner):
    """A pull that makes a bundle."""

    def __init__(self, source: HubSource) -> None:
        super().__init__('{"stage": "opening"}', DOWNLOAD % 4, DOWNLOAD % 10, '{"stage": "verifying"}', 0)
        self._source = source

    def wait(self) -> int:
        pulled_by(self._source)
        return super().wait()


def test_a_pull_is_lines_and_the_model_is_served_at_once(source: HubSource) -> None:
    with client_over(source, Installing(source)) as client:
        answer = client.post(PULL, json={"model": "smollm2:135m", "insecure": True})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert lines[0] == {"status": "pulling manifest"}
        assert {"status": "downloading", "digest": "sha256:ab", "total": 10, "completed": 10} in lines
        assert lines[-2:] == [{"status": "verifying sha256 digest"}, {"status": "success"}]
        for line in lines:
            validator(openapi_document(), "OllamaStatus").validate(line)
        for name in (ORDER.model, NAME, "smollm2:135m", "smollm2:135m:latest", REPO):
            asked = {"model": name, "messages": HELLO, "stream": False, "options": {"num_predict": 2}}
            assert client.post(CHAT, json=asked).status_code == 200, name
            assert client.post(PULL, json={"model": name, "stream": False}).json() == {"status": "success"}


def test_without_a_stream_it_is_one_object(source: HubSource) -> None:
    with client_over(source, Installing(source), FakeRunner("edgegen: error: the disk is full.", 1)) as client:
        assert client.post(PULL, json={"model": NAME, "stream": False}).json() == {"status": "success"}
        answer = client.post(PULL, json={"model": "org/other", "stream": False})
        assert (answer.status_code, answer.json()) == (500, {"error": "the disk is full."})


def test_an_error_is_the_last_line(source: HubSource) -> None:
    with client_over(source, FakeRunner('{"stage": "opening"}', "edgegen: error: the disk is full.", 1)) as client:
        answer = client.post(PULL, json={"model": NAME})
        assert answer.status_code == 200
        assert json.loads(answer.text.splitlines()[-1]) == {"error": "the disk is full."}


def test_a_bundle_that_is_not_there_in_the_end_is_an_error(source: HubSource) -> None:
    with client_over(source, FakeRunner(0)) as client:
        answer = client.post(PULL, json={"model": NAME, "stream": False})
        assert answer.json()["error"].startswith(f"model '{ORDER.model}' not found")


@pytest.mark.parametrize("name", ["../x", "qwen2.5:7b", "/etc/passwd"])
def test_no_name_starts_a_process_but_that_of_a_model(source: HubSource, name: str) -> None:
    with client_over(source, FakeRunner(0)) as client:
        answer = client.post(PULL, json={"model": name})
        assert (answer.status_code, "is on no list and no hub id" in answer.json()["error"]) == (400, True)


def test_a_name_that_another_model_has(source: HubSource) -> None:
    pulled_by(source, "model-int8", "me/model")
    with client_over(source, FakeRunner(0)) as client:
        answer = client.post(PULL, json={"model": "you/model"})
        assert answer.status_code == 409
        said = "'model-int8' is there already, and was not pulled from you/model: delete it first."
        assert answer.json() == {"error": said}
        assert client.post(SHOW, json={"model": "me/model"}).status_code == 200
        assert client.post(SHOW, json={"model": "you/model"}).status_code == 404


def test_a_model_in_another_scheme_is_meant_but_not_pulled_or_deleted(source: HubSource) -> None:
    pulled_by(source, f"{NAME}-int4")
    source.removable = {f"{NAME}-int4"}
    with client_over(source, Installing(source)) as client:
        assert client.post(SHOW, json={"model": NAME}).status_code == 200
        assert client.request("DELETE", DELETE, json={"model": NAME}).status_code == 404
        assert client.post(PULL, json={"model": NAME, "stream": False}).status_code == 200
        assert ORDER.model in source.sizes


def test_a_pulled_model_comes_before_any_model(source: HubSource) -> None:
    pulled_by(source)
    asked = {"prompt": "a", "max_tokens": 1}
    with client_over(source, any_model=True) as client:
        assert client.post("/v1/completions", json={**asked, "model": NAME}).json()["model"] == ORDER.model
        assert client.post("/v1/completions", json={**asked, "model": "gpt-4"}).json()["model"] == "a"


def test_a_server_without_the_option_pulls_and_lists_nothing(source: HubSource) -> None:
    with client_over(source) as client:
        for name in (NAME, "../x"):
            answer = client.post(PULL, json={"model": name})
            assert answer.status_code == 400
            assert answer.json()["error"] == (
                f"pull: {name!r} is not here, and this server pulls no models: start it with --allow-pull, or run "
                "`edgegen pull` on its machine."
            )
        assert client.get(CATALOGUE).json() == {"object": "list", "pulls_allowed": False, "data": []}


def test_the_catalogue_tells_sizes_and_what_is_there(source: HubSource) -> None:
    pulled_by(source)
    with client_over(source, FakeRunner()) as client:
        answer = client.get(CATALOGUE).json()
    validator(openapi_document(), "Catalogue").validate(answer)
    offer = next(offer for offer in catalogue() if offer.name == NAME)
    assert [one["name"] for one in answer["data"]] == [one.name for one in catalogue()]
    told = answer["data"][0]
    assert (told["hub"], told["licence"], told["gated"], told["download_bytes"]) == (
        *(REPO, offer.licence, offer.gated, offer.download),
    )
    int8, int4 = told["bundles"]
    assert int8 == {
        "model": ORDER.model,
        "quantization": "int8",
        "disk_bytes": offer.int8.bundle,
        "memory_bytes": offer.int8.memory,
        "installed": True,
        "pulling": False,
    }
    assert (int4["model"], int4["installed"]) == (f"{NAME}-int4", False)
