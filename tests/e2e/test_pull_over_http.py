"""`edgegen serve --allow-pull`, with the ollama client and a hub on this machine: pulled, served, left, stopped."""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.export.checkpoint.layouts import write_gpt2
from tests.root import ROOT
from tests.runtime.server.serving import serving
from tests.standin_hub import Answer, StandInHub
from tests.systems import needs_posix
from tests.waiting import PATIENCE_S, until

ollama: Any = pytest.importorskip("ollama", reason="the ollama client is not installed")

NAME, REPO = "smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"
HELLO = [{"role": "user", "content": "Hello"}]
SHORT = {"num_predict": 3, "temperature": 0}
FIRST_PART = 10 << 20
"""Bytes that huggingface_hub writes at a time."""

pytestmark = pytest.mark.slow


@pytest.fixture
def hub() -> Iterator[StandInHub]:
    """The embedded model's checkpoint, 10.8 MB, under the id of a model of the catalogue."""
    with StandInHub({REPO: ROOT / "models/stories"}) as running:
        yield running


@pytest.fixture
def server(hub: StandInHub, tmp_path: Path) -> Iterator["tuple[subprocess.Popen[str], str]"]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "export")])
    own = {"PYTHONPATH": path, "EDGEGEN_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    environment = hub.environment(tmp_path / "hf") | own
    with serving("--allow-pull", "--threads", "1", **environment) as found:
        yield found


@pytest.fixture
def client(server: "tuple[subprocess.Popen[str], str]") -> Iterator[Any]:
    with ollama.Client(host=server[1], timeout=PATIENCE_S) as made:
        yield made


def pull_whole(client: Any, stream: bool) -> str:
    """The last word of a pull."""
    said = client.pull(NAME, stream=stream)
    return [*said][-1].status if stream else said.status


def is_pulling(address: str) -> bool:
    told = httpx2.get(f"{address}/models/catalogue").json()["data"]
    return any(bundle["pulling"] for model in told for bundle in model["bundles"])


def test_a_pulled_model_is_served_at_once(
    server: "tuple[subprocess.Popen[str], str]", client: Any, hub: StandInHub, tmp_path: Path
) -> None:
    tokenizer = ROOT / "models/stories/tokenizer.json"
    hub.repos[REPO] = write_gpt2(tmp_path / "tiny", layout="original", vocab_size=2048, tokenizer=tokenizer)
    said = [*client.pull("smollm2:135m", stream=True)]
    statuses = [one.status for one in said]
    assert statuses[0] == "pulling manifest"
    assert statuses[-2:] == ["verifying sha256 digest", "success"]
    assert statuses.count("verifying sha256 digest") == 2  # of the download, and of the bundle that was made of it
    (size,) = {one.total for one in said if one.digest}
    assert [one.completed for one in said if one.digest][-1] == size > 0
    assert f"{NAME}-int8:latest" in [model.model for model in client.list().models]
    answers = [client.chat(name, messages=HELLO, options=SHORT) for name in ("smollm2:135m", f"{NAME}-int8")]
    assert answers[0].message == answers[1].message
    asked = len(hub.requests)
    assert client.pull(NAME).status == "success"
    assert len(hub.requests) == asked


def test_errors_are_the_sentence_of_the_command(client: Any, hub: StandInHub) -> None:
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError, match=r"shows no model of that id.*did you mean 'smollm2-135m'"):
            _ = [*client.pull("smollm2-13m", stream=stream)]
    hub.stop()
    with pytest.raises(ollama.ResponseError, match=rf"cannot be reached and {REPO} is not in the cache"):
        client.pull(NAME)


def test_a_hub_that_lies_is_told_and_believed_once_it_does_not(client: Any, hub: StandInHub, tmp_path: Path) -> None:
    tokenizer = ROOT / "models/stories/tokenizer.json"
    hub.repos[REPO] = write_gpt2(tmp_path / "tiny", layout="original", vocab_size=2048, tokenizer=tokenizer)

    def corrupt(answer: Answer) -> Answer:
        is_weights = answer.request.path.endswith("/model.safetensors") and answer.status == 200
        return answer._replace(body=answer.body[:-1] + bytes([answer.body[-1] ^ 1])) if is_weights else answer

    hub.lie = corrupt
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError, match=r"model\.safetensors has the SHA-256 .*; it has been deleted"):
            _ = [*client.pull(NAME, stream=stream)]
    hub.lie = lambda answer: answer
    assert client.pull(NAME).status == "success"


def test_clients_that_leave_end_a_pull_which_a_later_one_resumes(
    server: "tuple[subprocess.Popen[str], str]", client: Any, hub: StandInHub
) -> None:
    hub.stalls_after = FIRST_PART + (100 << 10)
    streams = [client.pull(name, stream=True) for name in (NAME, REPO)]
    for stream in streams:
        assert any(one.completed == FIRST_PART for one in stream)
    assert hub.downloads.count(f"{REPO}/model.safetensors") == 1
    streams[0].close()
    assert next(streams[1]).completed == FIRST_PART  # the last word, said again
    assert is_pulling(server[1])
    streams[1].close()
    assert until(lambda: not is_pulling(server[1]))

    hub.stalls_after = None
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(pull_whole, client, stream) for stream in (False, True)]
        assert [one.result() for one in asked] == ["success", "success"]
    assert hub.ranges == [0, FIRST_PART]


@needs_posix("signals for one process")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_of_the_server_ends_the_process(
    server: "tuple[subprocess.Popen[str], str]", client: Any, hub: StandInHub, tmp_path: Path, number: signal.Signals
) -> None:
    hub.stalls_after = FIRST_PART
    stream = client.pull(NAME, stream=True)
    assert any(one.digest for one in stream)
    (child,) = children_of(server[0].pid)
    server[0].send_signal(number)
    with pytest.raises(ollama.ResponseError, match="the server is being stopped"):
        _ = [*stream]
    assert server[0].wait(PATIENCE_S) == (0 if number == signal.SIGTERM else 130)
    assert not Path(f"/proc/{child}").exists()
    assert not (tmp_path / "home" / "bundles" / f"{NAME}-int8").exists()


def children_of(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task")
    if not tasks.exists():
        pytest.skip("only Linux tells of a process in /proc")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]
