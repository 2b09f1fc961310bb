"""Chats with a hybrid over the wire: a turn computes only what is new, whatever was asked in between."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from edgegen import LLM, EngineOptions, Session
from edgegen.bundle.bundle import Bundle
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from edgegen.server.models.installed_models import InstalledModels
from tests.families.cases import cases_also
from tests.families.hybrids import BundleOf, judged_families
from tests.runtime.models import END, THE
from tests.runtime.server.material import CHAT, COMPLETION, OWN

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")

FAMILIES = [case.family for case in cases_also("chats")]
"""One for each kind of state, and those that have windows or share."""

ENGINE = EngineOptions(threads=1, kv="int8", prefill_chunk=16)
TURNS = 10
PLAIN, THINKING = "root ::= [a-z]{20}", 'root ::= "<think>" [a-z]{15} "</think>" [a-z]{5}'
ANSWERS = {"plain": (PLAIN, 20, 20), "thinking": (THINKING, 35, 5)}
"""The grammar of an answer, its tokens, which are bytes here, and how many of them the next prompt has."""

UNSEEN = 1
"""The last token of an answer was sampled and never run."""


@pytest.fixture(scope="module", params=judged_families(FAMILIES))
def bundle(request: pytest.FixtureRequest, hybrid: BundleOf) -> Bundle:
    return hybrid(request.param)


@pytest.fixture(scope="module")
def client(bundle: Bundle) -> Iterator[TestClient]:
    """Of a server as the command line makes it."""
    with InstalledModels({"tiny": str(bundle.path)}, ENGINE, store=False) as models:
        yield TestClient(create_app(models.load_given(), ServerOptions(), source=models), base_url=OWN)


def said(turn: int, name: str) -> str:
    return f"Turn {turn} of {name}, and a question?"


@pytest.mark.parametrize("between", [0, 9])
@pytest.mark.parametrize("kind", ANSWERS)
def test_the_tenth_turn_computes_what_is_new(client: TestClient, kind: str, between: int) -> None:
    grammar, tokens, kept = ANSWERS[kind]
    messages, before = list[Any](), 0
    for turn in range(TURNS):
        messages.append({"role": "user", "content": said(turn, f"{kind} {between}")})
        asked = {"grammar": grammar, "suppress_tokens": [END, THE], "max_tokens": tokens, "temperature": 0}
        answer = client.post(CHAT, json={"messages": messages, **asked}).json()
        usage = answer["usage"]
        assert usage["completion_tokens"] == tokens
        content = answer["choices"][0]["message"]["content"]
        assert len(content) == kept
        messages.append({"role": "assistant", "content": content})
        if turn:
            # Where the template leaves thoughts out, the text parts at the end of the prompt before.
            known = before + (tokens - UNSEEN if kind == "plain" else 0)
            assert usage["prompt_tokens_details"]["cached_tokens"] == known
            new = usage["prompt_tokens"] - known
            assert new <= kept + UNSEEN + len(f"\n[user]{said(turn, f'{kind} {between}')}\n[assistant]")
        before = usage["prompt_tokens"]
        for other in range(between):
            client.post(COMPLETION, json={"prompt": f"{other} cats and {turn} dogs met", "max_tokens": 3})


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_session_computes_what_is_new(bundle: Bundle, kind: str) -> None:
    """Of a chat that ends after each turn, and goes on in a process that has seen nothing of it."""
    grammar, tokens, _ = ANSWERS[kind]
    session, messages, before = Session(), list[Any](), 0
    for turn in range(4):
        messages.append({"role": "user", "content": said(turn, kind)})
        options: dict[str, Any] = {"grammar": grammar, "suppress_tokens": [END, THE]}
        options |= {"max_new_tokens": tokens, "do_sample": False}
        with LLM.load(bundle.path, options=ENGINE) as llm:
            result = llm.chat(messages, session=session, **options)
        with LLM.load(bundle.path, options=ENGINE) as llm:
            assert llm.generate(llm.encode_chat(messages), **options).token_ids == result.token_ids
        if turn:
            known = before + (tokens - UNSEEN if kind == "plain" else 0)
            assert result.timings.cached_tokens == known
        before = result.timings.prompt_tokens
        messages = list(session.messages)
