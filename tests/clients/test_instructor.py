"""``instructor``: answers as Pydantic models, whole, partial and as they are corrected."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.clients.asked import (
    ASKED,
    ENDING,
    KEY,
    MISSPELT,
    SAID_OF_LENGTH,
    SAID_OF_MODEL,
    SAID_OF_PARAMETER,
    TOO_LONG,
    WRONG_MODEL,
)
from tests.clients.conftest import Ask
from tests.clients.model import NAME
from tests.waiting import PATIENCE_S

instructor: Any = pytest.importorskip("instructor", reason="instructor is not installed")
core: Any = pytest.importorskip("instructor.core")
openai: Any = pytest.importorskip("openai")


@pytest.fixture
def client_of(base_url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=PATIENCE_S) as client:
        yield lambda mode: instructor.from_openai(client, mode=instructor.Mode[mode])  # pyright: ignore


def test_chat(client_of: Any, ask: Ask, any_model: str) -> None:
    completions = client_of("TOOLS").chat.completions
    answer = completions.create(model=any_model, messages=ASKED, response_model=None, temperature=0, **ENDING)
    assert answer.choices[0].message.content == ask(ASKED, model=any_model, **ENDING)["content"] != ""


def test_stream(client_of: Any, ask: Ask, any_model: str) -> None:
    completions = client_of("TOOLS").chat.completions
    asked: dict[str, Any] = {"model": any_model, "messages": ASKED, "response_model": None, "temperature": 0, **ENDING}
    pieces = [chunk.choices[0].delta.content or "" for chunk in completions.create(**asked, stream=True)]
    assert "".join(pieces) == ask(ASKED, model=any_model, **ENDING)["content"] != ""


def test_tools(client_of: Any) -> None:
    """Each call of an answer is a model."""
    from tests.clients.typed import Pet

    asked: dict[str, Any] = {"model": NAME, "messages": ASKED, "response_model": Iterable[Pet], "temperature": 0}
    asked["extra_body"] = {"tool_choice": "required"}  # the client itself asks for "auto"
    pets = [*client_of("PARALLEL_TOOLS").chat.completions.create(**asked)]
    assert [type(pet) for pet in pets] == [Pet, Pet]


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_tools_asked_again(client_of: Any, mode: str) -> None:
    """An answer that is not valid goes back with what is wrong."""
    from pydantic import ValidationInfo, field_validator

    from tests.clients.typed import Pet

    seen = list[int]()

    class Checked(Pet):
        @field_validator("age")
        @classmethod
        def second_time(cls, age: int, info: ValidationInfo) -> int:
            seen.append(age)
            if len(seen) == 1:
                raise ValueError("too old")
            return age

    completions = client_of(mode).chat.completions
    pet = completions.create(model=NAME, messages=ASKED, response_model=Checked, temperature=0, max_retries=2)
    assert pet.age == seen[-1]
    assert len(seen) >= 2


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_structured_output(client_of: Any, ask: Ask, mode: str) -> None:
    from tests.clients.typed import Pet

    client, sent = client_of(mode), list[dict[str, Any]]()
    asked: dict[str, Any] = {"model": NAME, "messages": ASKED, "response_model": Pet, "temperature": 0}
    assert isinstance(client.chat.completions.create(**asked), Pet)
    client.on("completion:kwargs", lambda **settings: sent.append(settings))  # pyright: ignore
    *pieces, partial = client.chat.completions.create_partial(**asked)
    assert any(piece.name and piece.kind is None for piece in pieces)
    (same,) = ({name: value for name, value in one.items() if name != "stream"} for one in sent)
    whole = ask(**same)
    text = whole["tool_calls"][0]["function"]["arguments"] if mode == "TOOLS" else whole["content"]
    assert Pet(**partial.model_dump()) == Pet.model_validate_json(text)


@pytest.mark.parametrize(
    ("said", "settings"),
    [
        (SAID_OF_MODEL, {"model": WRONG_MODEL}),
        (SAID_OF_PARAMETER, {"extra_body": MISSPELT}),
        (SAID_OF_LENGTH, {"messages": [{"role": "user", "content": TOO_LONG}]}),
    ],
)
def test_errors(client_of: Any, said: str, settings: dict[str, Any]) -> None:
    from tests.clients.typed import Pet

    asked: dict[str, Any] = {"model": NAME, "messages": ASKED, "response_model": Pet, "max_retries": 0}
    with pytest.raises(core.InstructorRetryException) as raised:
        client_of("TOOLS").chat.completions.create(**asked | settings)
    assert said in str(raised.value)
