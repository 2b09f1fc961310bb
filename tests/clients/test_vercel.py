"""Vercel's ``ai`` with its OpenAI-compatible provider: ``vercel/scenarios.mjs`` in Node does what is compared here."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.asked import (
    ASKED,
    ENDING,
    KEY,
    MISSPELT,
    QUESTION,
    SAID_OF_LENGTH,
    SAID_OF_MODEL,
    SAID_OF_PARAMETER,
    TOO_LONG,
    WRONG_MODEL,
)
from tests.clients.conftest import Ask
from tests.clients.model import NAME
from tests.waiting import PATIENCE_S

FOLDER = Path(__file__).parent / "vercel"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NODE is None, reason="Node is not installed"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules").exists(), reason="its packages are not here: npm ci --prefix tests/clients/vercel"
    ),
]

Scenario = Callable[..., Any]


@pytest.fixture(scope="module")
def scenario(base_url: str) -> Scenario:
    def run(name: str, *, model: str = NAME, prompt: str = QUESTION, **more: Any) -> Any:
        asked = {"base_url": base_url, "key": KEY, "model": model, "messages": [{"role": "user", "content": prompt}]}
        command = [str(NODE), str(FOLDER / "scenarios.mjs"), name, json.dumps(asked | more)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_chat(scenario: Scenario, ask: Ask, any_model: str) -> None:
    came = scenario("chat", model=any_model, **ENDING)
    assert came["text"] == ask(ASKED, model=any_model, **ENDING)["content"] != ""
    assert came["next"] in ("stop", "length")


def test_stream(scenario: Scenario, ask: Ask, any_model: str) -> None:
    came = scenario("stream", model=any_model, **ENDING)
    text = ask(ASKED, model=any_model, **ENDING)["content"]
    assert "".join(came["pieces"]) == came["text"] == text != ""
    assert came["tokens"] > 0


@pytest.mark.parametrize("parallel", [True, False])
def test_tools(scenario: Scenario, parallel: bool) -> None:
    came = scenario("tools", parallel=parallel, max_tokens=300)
    assert len(came["calls"]) == (2 if parallel else 1)
    assert came["streamed"] == {"calls": came["calls"], "text": came["text"]}
    assert came["text"] != ""
    assert came["next"] in ("stop", "length")


def test_structured_output(scenario: Scenario) -> None:
    came = scenario("structured_output")
    assert came["pet"].keys() == {"name", "kind", "age"}
    assert came["partial"][-1] == came["streamed"] == came["pet"]


@pytest.mark.parametrize(
    ("status", "said", "asked"),
    [
        (404, SAID_OF_MODEL, {"model": WRONG_MODEL}),
        (400, SAID_OF_PARAMETER, {"more": MISSPELT}),
        (400, SAID_OF_LENGTH, {"prompt": TOO_LONG}),
    ],
)
def test_errors(scenario: Scenario, status: int, said: str, asked: dict[str, Any]) -> None:
    errors = scenario("errors", **asked)
    assert len(errors) == 2
    for error in errors:
        assert (error["own"], error["status"]) == (True, status)
        assert said in error["message"]
