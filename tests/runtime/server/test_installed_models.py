"""Bundles of the store and of the command line: which there are, what they take, and that no name is a path."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.bundle.store import BundleStore
from edgegen.errors import BundleNotFoundError, UsageError
from edgegen.model.loading import LoadProgress
from edgegen.options.engine import EngineOptions
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from edgegen.server.models import installed_models
from edgegen.server.models.installed_models import InstalledModels
from edgegen.server.models.served_models import ModelLoadError
from tests.runtime.models import write_fake_bundle
from tests.runtime.server.material import COMPLETION, OWN, error_of
from tests.waiting import PATIENCE_S, until

ENGINE = EngineOptions(threads=1)


@pytest.fixture
def store(edgegen_home: Path, int8_bundle: Bundle) -> Path:
    """A store with the bundles ``one`` and ``two``."""
    folder = edgegen_home / "bundles"
    folder.mkdir(parents=True)
    for name in ("one", "two"):
        shutil.copytree(int8_bundle.path, folder / name)
    return folder


@pytest.fixture
def models(store: Path) -> Iterator[InstalledModels]:
    with InstalledModels({"one": "one"}, ENGINE) as models:
        yield models


def test_given_models_come_first_then_those_of_the_store(store: Path, int8_bundle: Bundle) -> None:
    (store / "damaged").mkdir()
    (store / "damaged" / MANIFEST_NAME).write_text("{}")
    (store / "empty").mkdir()
    given = {"two": "two", "mine": str(int8_bundle.path)}
    assert InstalledModels(given, ENGINE).names() == ["two", "mine", "stories", "one"]
    assert InstalledModels(given, ENGINE, store=False).names() == ["two", "mine"]


def test_a_given_path_is_meant_by_its_name_whatever_the_store_has(store: Path, int8_bundle: Bundle) -> None:
    shutil.rmtree(store / "one")
    (store / "one").mkdir()
    (store / "one" / MANIFEST_NAME).write_text("{}")
    with InstalledModels({"one": str(int8_bundle.path)}, ENGINE) as models:
        assert models.load("one").bundle.path == int8_bundle.path


def test_bundles_that_come_and_go(store: Path, models: InstalledModels) -> None:
    shutil.copytree(store / "one", store / "three")
    assert models.names() == ["one", "stories", "three", "two"]
    shutil.rmtree(store / "two")
    assert models.names() == ["one", "stories", "three"]
    for ask in (models.load, models.memory):
        with pytest.raises(ModelLoadError, match=r"^cannot load 'two': it has been removed\.$"):
            ask("two")


def test_an_error_is_one_line_without_the_servers_paths(store: Path, models: InstalledModels) -> None:
    content = Bundle.open(store / "two").content
    for name in ("tokenizer.json", "weights.data"):
        with (content / name).open("ab") as file:
            file.write(b"more")
    with pytest.raises(ModelLoadError) as raised:
        models.load("two")
    said = str(raised.value)
    assert said.startswith("cannot load 'two': the bundle 'two' is damaged: 2 problems:")
    assert str(store) not in said
    assert "\n" not in said


def test_an_error_of_a_bundle_that_was_given_by_a_relative_path(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its letters are also those of the words of the message."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(store / "one", "a")
    with InstalledModels({"one": "one", "a": "a"}, ENGINE) as models:
        (Bundle.open(tmp_path / "a").content / "tokenizer.json").unlink()
        with pytest.raises(ModelLoadError, match=r"^cannot load 'a': the bundle 'a' is damaged: tokenizer\.json"):
            models.load("a")


def test_a_draft_model_of_another_vocabulary(store: Path) -> None:
    draft = BundleStore().resolve("one")
    with InstalledModels({"one": "one"}, EngineOptions(threads=1, draft=draft)) as models:
        assert models.memory("one") > InstalledModels({"one": "one"}, ENGINE, budget=models.budget).memory("one")
        with pytest.raises(ModelLoadError, match="'one' cannot be the draft model of 'stories': token 0") as raised:
            models.load("stories")
        assert str(store) not in str(raised.value)


def test_the_default_budget_is_most_of_what_is_free(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the first model is served, whatever was measured; without a measurement there is no limit."""
    found = list[int | None]()
    for free in (10**12, 10**6, None):
        monkeypatch.setattr(installed_models, "available_memory", lambda free=free: free)
        models = InstalledModels({"one": "one"}, ENGINE)
        found.append(models.budget)
        if free == 10**6:
            assert models.budget == models.memory("one")
    assert (found[0], found[2]) == (8 * 10**11, None)


def test_a_variant_that_is_missing_is_an_error_of_the_model(store: Path) -> None:
    """``--kv int8`` suits the given model, and not another of the store."""
    write_fake_bundle(store / "other")
    with InstalledModels({"one": "one"}, EngineOptions(threads=1, kv="int8")) as models:
        for ask in (models.memory, models.load):
            with pytest.raises(
                ModelLoadError, match=r"^cannot load 'other': 'other' has no variant with a KV cache in"
            ):
                ask("other")
    with pytest.raises(UsageError, match="has no variant"):
        InstalledModels({"one": "one", "other": "other"}, EngineOptions(kv="int8"))


def test_what_a_model_takes(store: Path, int8_bundle: Bundle) -> None:
    """Stock operators pack int8 weights to 1.46 times their size; a token's KV cache has 2 · layers · hidden size
    numbers, and half as much is for prefixes."""
    stock = EngineOptions(max_batch_size=3, kv="int8", kernels="stock")
    models = InstalledModels({"one": "one"}, stock, budget=10**9)
    tokenizer = int8_bundle.manifest.files["tokenizer.json"].size
    vocab_size = int8_bundle.manifest.model.vocab_size
    activations = 19_000_000 + 4 * (256 * 64 * 13 + 4 * vocab_size)
    table = int8_bundle.manifest.model.max_context * (64 + 2)  # of positions, whose rows are looked up
    weights = int((int8_bundle.weights_size - table) * 1.46) + 8 * tokenizer + activations
    assert models.memory("one") == pytest.approx(weights + 3 * 512 * 2 * 3 * 64 * 1.5, abs=1)
    smaller = InstalledModels(
        {"one": "one"}, EngineOptions(kv_budget=1000, prefix_cache=500, kernels="stock"), budget=10**9
    )
    assert smaller.memory("one") == pytest.approx(weights + 1500, abs=1)


def test_a_kv_cache_gets_a_share_of_the_budget(tmp_path: Path) -> None:
    """A sixth, and half as much for prefixes; but 64 MiB at least, and no more than a full batch takes: 2 GiB of 8
    bytes a token."""
    path = write_fake_bundle(tmp_path / "long", max_context=1 << 22).path
    engine = EngineOptions(max_batch_size=64)
    small, middle, large = (
        InstalledModels({"long": str(path)}, engine, budget=budget).memory("long")
        for budget in (130 << 20, 3 << 29, 1 << 40)
    )
    fixed = small - (96 << 20)
    assert 19_000_000 < fixed < 20_000_000
    assert middle == fixed + (256 << 20) + (128 << 20)
    assert large == fixed + (3 << 30)


def test_given_models_are_loaded_as_far_as_they_fit(store: Path, tmp_path: Path) -> None:
    given = {name: name for name in ("one", "two")}
    with InstalledModels(given, ENGINE) as models:
        assert [*models.load_given()] == ["one", "two"]
        needed = models.memory("one")
    large = {"one": "one", "large": str(write_fake_bundle(tmp_path / "large", max_context=1 << 22).path), "two": "two"}
    with InstalledModels(large, ENGINE, budget=2 * needed) as models:
        loaded = models.load_given()
        assert [*loaded] == ["one", "two"]
    assert loaded["one"].closed
    with InstalledModels(given, ENGINE, budget=2 * needed - 1) as models:
        loaded = models.load_given()
        assert [*loaded] == ["one"]
    assert loaded["one"].closed


def test_arguments_that_are_wrong(store: Path) -> None:
    with pytest.raises(
        UsageError, match=r"one needs about \d\d MB, and --memory-budget allows 1 MB: give a larger one"
    ):
        InstalledModels({"one": "one"}, ENGINE, budget=10**6)
    for given, engine in (({"one": "one", "x": "x"}, ENGINE), ({"one": "one"}, EngineOptions(draft="x"))):
        with pytest.raises(BundleNotFoundError, match="no bundle named or at 'x'"):
            InstalledModels(given, engine)


def test_the_end_closes_models_and_ends_a_load(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = InstalledModels({"one": "one"}, ENGINE)
    one = models.load("one")
    reached, problems = threading.Event(), list[Exception]()

    def wait(progress: LoadProgress, tell: Any = models._refuse_when_closed) -> None:  # pyright: ignore[reportPrivateUsage]
        reached.set()
        assert until(lambda: models._closed)  # pyright: ignore[reportPrivateUsage]
        tell(progress)

    monkeypatch.setattr(models, "_refuse_when_closed", wait)

    def load() -> None:
        try:
            models.load("two")
        except ModelLoadError as error:
            problems.append(error)

    loading = threading.Thread(target=load)
    loading.start()
    assert reached.wait(PATIENCE_S)
    models.close()
    loading.join()
    assert one.closed
    assert [str(problem) for problem in problems] == ["cannot load 'two': the server is being stopped."]


@pytest.fixture
def client(models: InstalledModels) -> TestClient:
    return TestClient(create_app(models.load_given(), ServerOptions(), source=models), base_url=OWN)


def test_a_bundle_of_the_store_answers(client: TestClient, models: InstalledModels) -> None:
    asked = {"prompt": "Once", "max_tokens": 4, "temperature": 0, "model": "two"}
    said = client.post(COMPLETION, json=asked).json()
    assert (said["model"], said["usage"]["completion_tokens"]) == ("two", 4)
    states = {one["id"]: one["status"]["value"] for one in client.get("/models").json()["data"]}
    assert states == {"one": "loaded", "stories": "unloaded", "two": "loaded"}
    assert client.get("/props?model=two").json()["models"] == ["one", "stories", "two"]


def paths(store: Path, outside: Path) -> list[str]:
    return [
        str(outside),
        f"{outside}/",
        "../../../outside",
        "../bundles/two",
        "./two",
        "two/",
        "two/.",
        "/two",
        "two\x00",
        "TWO",
        f"file://{outside}",
        "..",
        ".",
        "/",
        "",
        "~",
        "%2e%2e/outside",
        "..\\outside",
        str(store / "two"),
        "two/v1",
    ]


def test_no_name_of_a_client_is_a_path(client: TestClient, store: Path, tmp_path: Path) -> None:
    """Every route that takes a model: only names that are listed are there."""
    outside = tmp_path / "outside"
    shutil.copytree(store / "two", outside)
    for path in paths(store, outside):
        asked: list[tuple[str, Any]] = [
            (COMPLETION, {"prompt": "a", "model": path}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "model": path}),
            ("/tokenize", {"content": "a", "model": path}),
            ("/detokenize", {"tokens": [1], "model": path}),
            ("/models/load", {"model": path}),
            ("/models/unload", {"model": path}),
        ]
        for url, body in asked:
            response = client.post(url, json=body)
            assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found"), (url, path)
        assert client.get("/props", params={"model": path}).status_code == 404, path
    for path in ("../bundles/two", "%2e%2e/bundles/two", "%2fetc%2fpasswd", "two%2fv1"):
        assert client.get(f"/v1/models/{path}").status_code == 404, path
    states = {one["id"]: one["status"]["value"] for one in client.get("/models").json()["data"]}
    assert states == {"one": "loaded", "stories": "unloaded", "two": "unloaded"}
