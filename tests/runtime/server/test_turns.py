"""The next turn of a chat over the wire: prefix caching has the former turns, whatever was asked in between."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen.bundle.bundle import Bundle
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from edgegen.server.models.installed_models import InstalledModels
from tests.runtime.models import END, THE
from tests.runtime.server.material import CHAT, COMPLETION, OWN, client_of, events

RECOMPUTED = 1
"""The last token of the former turn was sampled and never run."""

ANSWER: dict[str, Any] = {
    "grammar": 'root ::= " " [a-z]{29}',
    "suppress_tokens": [END, THE],
    "max_tokens": 30,
    "temperature": 0,
}
"""Tokens are bytes here, and the transcript has a space before an answer: such an answer is tokenized in the next
prompt as it was sampled."""


@pytest.fixture(scope="module")
def client(int8_bundle: Bundle) -> Iterator[TestClient]:
    """Of a server as the command line makes it."""
    engine = EngineOptions(threads=1, kv="int8")
    with InstalledModels({"tiny": str(int8_bundle.path)}, engine, store=False) as models:
        yield TestClient(create_app(models.load_given(), ServerOptions(), source=models), base_url=OWN)


def turn(client: TestClient, messages: list[Any], *, stream: bool = False) -> dict[str, Any]:
    """Ask for the next turn, which is added to ``messages``; returns its usage."""
    body = {"messages": messages, **ANSWER}
    if stream:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        *chunks, last = events(client.post(CHAT, json=body | options).text)
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        usage = last["usage"]
    else:
        answer = client.post(CHAT, json=body).json()
        text, usage = answer["choices"][0]["message"]["content"], answer["usage"]
    messages.append({"role": "assistant", "content": text})
    return usage


def cached(usage: dict[str, Any]) -> int:
    return usage["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("between", [0, 1, 10])
def test_a_turn_prefills_what_is_new(client: TestClient, between: int, stream: bool) -> None:
    messages, former = list[Any](), 0
    for number in range(4):
        messages.append({"role": "user", "content": f"Chat {between} {stream}, story {number} of a ball."})
        usage = turn(client, messages, stream=stream)
        if number:
            assert cached(usage) >= former - RECOMPUTED
        former = usage["total_tokens"]
        for other in range(between):
            client.post(COMPLETION, json={"prompt": f"{other} cats and {number} dogs met", "max_tokens": 20})


def test_two_chats_that_take_turns_keep_their_prefixes(client: TestClient) -> None:
    chats: dict[str, list[Any]] = {"A cat": [], "The dog": []}
    former = dict.fromkeys(chats, 0)
    for number in range(3):
        for name, messages in chats.items():
            messages.append({"role": "user", "content": f"{name} wants story {number}."})
            usage = turn(client, messages)
            if number:
                assert cached(usage) >= former[name] - RECOMPUTED
            former[name] = usage["total_tokens"]


def test_cached_tokens_tell_the_truth(int8_bundle: Bundle) -> None:
    """Without prefix caching there are none, nor without bytes for prefixes after one request of another client."""
    for prefix_cache in (0, None):
        with LLM.load(int8_bundle.path, options=EngineOptions(threads=1, kv="int8", prefix_cache=prefix_cache)) as llm:
            client, messages = client_of({"tiny": llm}), list[Any]()
            messages.append({"role": "user", "content": "Tell me a story about a ball in the park."})
            turn(client, messages)
            if prefix_cache is None:
                client.post(COMPLETION, json={"prompt": "One cat and two dogs met", "max_tokens": 20})
            messages.append({"role": "user", "content": "And another."})
            assert cached(turn(client, messages)) == 0


def test_a_session_id_is_not_taken(client: TestClient) -> None:
    """It would do nothing: a parameter that does nothing is an error."""
    response = client.post(CHAT, json={"messages": [{"role": "user", "content": "a"}], "session_id": "mine"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "session_id")
