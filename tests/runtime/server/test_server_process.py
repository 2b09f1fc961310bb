"""``edgegen serve`` as a process, with the real ``openai`` client: answers, streams, errors, cancellation, the end."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.server.models.installed_models import InstalledModels
from tests.runtime.server.serving import HELLO, KEY, serving
from tests.systems import needs_posix
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.e2e

openai: Any = pytest.importorskip("openai", reason="the openai client is the oracle here, and it is not installed")


@pytest.fixture(scope="module")
def address(int8_bundle: Bundle) -> Iterator[str]:
    arguments = ("-m", str(int8_bundle.path), "--kv", "int8", "--threads", "1")
    with serving(*arguments, EDGEGEN_API_KEY=KEY) as (_, address):
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture(scope="module")
def model(int8_bundle: Bundle) -> str:
    return int8_bundle.path.name


@pytest.fixture(scope="module")
def llm(int8_bundle: Bundle) -> LLM:
    return LLM.load(int8_bundle.path, options=EngineOptions(threads=1, kv="int8"))


def test_models(client: Any, model: str) -> None:
    assert [one.id for one in client.models.list()] == [model, "stories"]
    assert client.models.retrieve(model).owned_by == "edgegen"


def test_a_chat(client: Any, model: str, llm: LLM) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HELLO, max_completion_tokens=8, logprobs=True, top_logprobs=2, seed=3, temperature=0.7
    )
    told = llm.chat(HELLO, max_new_tokens=8, seed=3, temperature=0.7, top_logprobs=2)
    assert answer.choices[0].message.content == told.text
    assert answer.usage.completion_tokens == len(told.token_ids)
    said = answer.choices[0].logprobs.content
    assert [entry.logprob for entry in said] == pytest.approx([entry.logprob for entry in told.logprobs])
    assert [len(entry.top_logprobs) for entry in said] == [2] * len(told.token_ids)


def test_a_completion(client: Any, model: str, llm: LLM) -> None:
    answer = client.completions.create(
        model=model, prompt=["Once", "Two"], max_tokens=6, extra_body={"min_p": 0.1, "seed": 2, "temperature": 1.1}
    )
    told = llm.generate(["Once", "Two"], max_new_tokens=6, min_p=0.1, seed=2, temperature=1.1)
    assert [choice.text for choice in answer.choices] == [one.text for one in told]


def test_eight_streams_at_once_are_those_that_run_alone(client: Any, model: str, llm: LLM) -> None:
    """With an int8 KV cache, whatever else is in the batch."""

    def ask(seed: int) -> str:
        messages = [{"role": "user", "content": f"Tell me {seed} stories."}]
        stream = client.chat.completions.create(
            model=model, messages=messages, max_tokens=24, seed=seed, temperature=0.9, stream=True
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    with ThreadPoolExecutor(8) as pool:
        together = [*pool.map(ask, range(8))]
    for seed, text in enumerate(together):
        messages = [{"role": "user", "content": f"Tell me {seed} stories."}]
        assert text == llm.chat(messages, max_new_tokens=24, seed=seed, temperature=0.9).text


def test_usage_of_a_stream(client: Any, model: str) -> None:
    stream = client.completions.create(
        model=model, prompt="Once", max_tokens=4, stream=True, stream_options={"include_usage": True}
    )
    *_, last = stream
    assert last.choices == []
    assert last.usage.completion_tokens == 4
    assert last.usage.prompt_tokens_details.cached_tokens >= 0


@pytest.mark.parametrize(
    ("error", "settings"),
    [
        ("BadRequestError", {"temperature": -1}),
        ("BadRequestError", {"extra_body": {"temprature": 1}}),
        ("NotFoundError", {"model": "gpt-4"}),
    ],
)
def test_errors(client: Any, model: str, error: str, settings: dict[str, Any]) -> None:
    with pytest.raises(getattr(openai, error)) as raised:
        client.chat.completions.create(**({"model": model, "messages": HELLO} | settings))
    assert raised.value.type == "invalid_request_error"
    assert raised.value.param in ("temperature", "temprature", "model")


def test_a_wrong_key(address: str) -> None:
    wrong = openai.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0)
    with wrong, pytest.raises(openai.AuthenticationError):
        wrong.models.list()


def test_a_stream_that_is_closed_ends_its_request(client: Any, model: str) -> None:
    stream = client.completions.create(
        model=model, prompt="Once", max_tokens=400, stream=True, extra_body={"eos_token_id": []}
    )
    next(iter(stream))
    stream.close()
    with_key = {"Authorization": f"Bearer {KEY}"}
    url = str(client.base_url).removesuffix("v1/") + "metrics"

    def idle() -> bool:
        text = client.with_options().get(url, cast_to=str, options={"headers": with_key})
        return "edgegen_requests_in_progress 0.0" in text

    assert until(idle)


@needs_posix("signals for one process")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_end_lets_running_requests_finish(int8_bundle: Bundle, number: signal.Signals, code: int) -> None:
    with serving("-m", str(int8_bundle.path), "--threads", "1") as (process, address):
        with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
            stream = client.completions.create(
                model=int8_bundle.path.name, prompt="Once", max_tokens=60, stream=True, extra_body={"eos_token_id": []}
            )
            chunks = iter(stream)
            first = next(chunks)
            process.send_signal(number)
            reasons = [chunk.choices[0].finish_reason for chunk in (first, *chunks)]
        assert reasons[-1] == "length"
        assert process.wait(PATIENCE_S) == code


@needs_posix("signals for one process")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_right_behind_the_first_words_ends_it_as_well(number: signal.Signals, code: int) -> None:
    with serving("--threads", "1") as (process, _):
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == code


@needs_posix("signals for one process")
def test_bundles_of_the_store_are_loaded_on_demand(tmp_path: Path, int8_bundle: Bundle) -> None:
    """There is room for two models: the third drives one out."""
    store = tmp_path / "home" / "bundles"
    store.mkdir(parents=True)
    for name in ("two", "three"):
        (store / name).symlink_to(int8_bundle.path)
    budget = InstalledModels({"one": str(int8_bundle.path)}, EngineOptions(kv="int8")).memory("one") * 5 // 2
    arguments = ("-m", "two", "--kv", "int8", "--threads", "1", "--memory-budget", str(budget))
    with serving(*arguments, EDGEGEN_HOME=str(tmp_path / "home")) as (process, address):
        with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as client:
            assert [one.id for one in client.models.list()] == ["two", "stories", "three"]
            texts = [
                client.completions.create(model=name, prompt="Once", max_tokens=8, temperature=0).choices[0].text
                for name in ("two", "three", "stories", "two")
            ]
            assert texts[0] == texts[1] == texts[3] != texts[2]
            assert client.completions.create(model="three", prompt="Once", max_tokens=1).model == "three"
            with pytest.raises(openai.NotFoundError):
                client.completions.create(model=str(int8_bundle.path), prompt="Once")
            states = client.get(f"{address}/models", cast_to=object)
            assert sum(one["status"]["value"] == "loaded" for one in states["data"]) == 2
            assert states["memory_bytes"] <= states["memory_budget_bytes"] == budget
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr
        assert process.stderr.read() == ""


def test_a_key_file_and_a_taken_port(tmp_path: Path, int8_bundle: Bundle) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n\n# ours\nsecond\n", encoding="utf-8-sig")  # as Windows' editors write it
    arguments = ("-m", str(int8_bundle.path), "--no-store", "--api-key-file", str(keys), "--log-level", "info")
    with serving(*arguments) as (process, address):
        assert process.stderr
        for key in ("first", "second"):
            with openai.OpenAI(base_url=f"{address}/v1", api_key=key) as client:
                assert len([*client.models.list()]) == 1
            assert " INFO GET /v1/models 200 " in process.stderr.readline()
        port = address.rpartition(":")[2]
        again = [sys.executable, "-m", "edgegen", "serve", "--port", port]
        done = subprocess.run(again, capture_output=True, text=True)
        assert done.returncode == 1
        assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "add --insecure to serve everyone"),
        (["--port", "70000"], "port: must be between 0 and 65535"),
        (["--api-key-file", "/nowhere"], "cannot read /nowhere"),
        (["--memory-budget", "much"], "'much' is no number of bytes, such as 4GB, 1.5GiB or 1500000000"),
        (["--memory-budget", "0"], "memory_budget: must be at least 1"),
        (["--memory-budget", "1MB"], "stories needs about"),
        (["--allow-pull", "--no-store"], "--allow-pull and --no-store exclude each other"),
        (["--allow-pull", "--expect-sha256", "0" * 64], "--allow-pull and --expect-sha256 exclude each other"),
        (["-m", "stories", "-m", "stories"], "two bundles have the same name"),
    ],
)
def test_invalid_arguments(arguments: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "edgegen", "serve", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
