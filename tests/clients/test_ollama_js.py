"""npm's ``ollama``, unchanged: ``ollama/scenarios.mjs`` in Node does what is compared here."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.asked import ASKED, ENDING, OLLAMA_CALLING, OLLAMA_ENDING, PET, WEATHER, WRONG_MODEL
from tests.clients.conftest import Ask
from tests.clients.model import NAME
from tests.waiting import PATIENCE_S

FOLDER = Path(__file__).parent / "ollama"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NODE is None, reason="Node is not installed"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules").exists(), reason="its packages are not here: npm ci --prefix tests/clients/ollama"
    ),
]

Scenario = Callable[..., Any]


@pytest.fixture(scope="module")
def scenario(base_url: str) -> Scenario:
    def run(name: str, **body: Any) -> Any:
        asked = {"host": base_url.removesuffix("/v1"), "body": {"model": NAME, "messages": ASKED, **body}}
        command = [str(NODE), str(FOLDER / "scenarios.mjs"), name, json.dumps(asked)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_chat(scenario: Scenario, ask: Ask, any_model: str) -> None:
    came = scenario("chat", model=any_model, options=OLLAMA_ENDING)
    assert came["text"] == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    assert came["next"] in ("stop", "length")
    assert came["models"] == [f"{NAME}:latest", "stories:latest"]
    assert came["version"]


def test_stream(scenario: Scenario, ask: Ask, any_model: str) -> None:
    came = scenario("stream", model=any_model, options=OLLAMA_ENDING)
    assert came["text"] == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    assert came["last"]["done"] is True
    assert came["last"]["eval_count"] > 0


def test_tools(scenario: Scenario) -> None:
    came = scenario("tools", tools=[WEATHER], options=OLLAMA_CALLING)
    (call,) = came["calls"]
    assert (call["name"], call["arguments"]) == ("get_weather", {"city": "Oslo", "days": 2})
    assert came["next"] in ("stop", "length")


def test_structured_output(scenario: Scenario, ask: Ask) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "Pet", "schema": PET, "strict": True}}
    pet = json.loads(ask(ASKED, response_format=schema)["content"])
    assert scenario("structured_output", format=PET, options={"temperature": 0}) == pet


@pytest.mark.parametrize(
    ("status", "said", "body"),
    [
        (404, f"model '{WRONG_MODEL}' not found", {"model": WRONG_MODEL}),
        (400, "did you mean 'temperature'?", {"options": {"temprature": 0.5}}),
    ],
)
def test_errors(scenario: Scenario, status: int, said: str, body: dict[str, Any]) -> None:
    errors = scenario("errors", **body)
    assert [error["status"] for error in errors] == [status, status]
    assert all(said in error["message"] for error in errors)
