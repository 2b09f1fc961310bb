"""Log-probabilities beside stop strings: those of the text that is given out, whole and streamed, and of no other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.generation.shown_logprobs import ShownLogprobs
from edgegen.llm import LLM
from edgegen.sampling.logprobs import TokenLogprob
from tests.runtime.models import EOS, RandomGraphs, fake_llm
from tests.runtime.saying import saying
from tests.runtime.server.material import COMPLETION, client_of, events

SAID = "It ràins a lot; there was rain."


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return fake_llm(tmp_path_factory.mktemp("shown") / "model", RandomGraphs())


def spelled(entries: Sequence[TokenLogprob]) -> str:
    """The text that entries are of; an end of the sequence adds none."""
    return b"".join(entry.utf8 for entry in entries if entry.token_id != EOS).decode("utf-8", "replace")


def entry(token_id: int, token: str | bytes, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
    own = token if isinstance(token, bytes) else None
    text = token.decode("utf-8", "replace") if isinstance(token, bytes) else token
    return TokenLogprob(token_id, text, -1.0, True, top, own)


@pytest.mark.parametrize("options", [{"stop_strings": ["there was"]}, {"stop_regex": "there wa[r-t]"}])
@pytest.mark.parametrize("include", [False, True])
def test_end_with_the_text(tmp_path: Path, options: dict[str, Any], include: bool) -> None:
    llm, _ = saying(tmp_path / "model", SAID)
    result = llm.generate(
        "<assistant>", logprobs=True, max_new_tokens=60, include_stop_str_in_output=include, **options
    )
    assert result.text == ("It ràins a lot; there was" if include else "It ràins a lot; ")
    assert spelled(result.logprobs) == result.text
    assert len(result.token_ids) == len("It ràins a lot; there was".encode())


@settings(max_examples=40, deadline=None)
@given(
    stops=st.lists(st.text("abcdefghij é", min_size=1, max_size=3), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    include=st.booleans(),
)
def test_are_those_of_the_text_whole_and_streamed(llm: LLM, stops: list[str], seed: int, include: bool) -> None:
    options: dict[str, Any] = {"seed": seed, "temperature": 3.0, "top_logprobs": 2, "max_new_tokens": 30}
    options |= {"stop_strings": stops, "include_stop_str_in_output": include}
    result = llm.generate("Once", **options)
    assert spelled(result.logprobs) == result.text
    shown, entries = "", list[TokenLogprob]()
    for chunk in llm.stream("Once", **options):
        shown += chunk.text
        entries += chunk.logprobs
        assert shown.startswith(spelled(entries).rstrip("\ufffd"))  # never ahead of what is given out
    assert (shown, tuple(entries)) == (result.text, result.logprobs)


def test_tokens_and_offsets_agree_on_the_wire(tmp_path: Path) -> None:
    llm, _ = saying(tmp_path / "model", SAID)
    client, body = client_of(llm), {"prompt": "<assistant>", "max_tokens": 60, "stop": ["there was"], "logprobs": 1}
    (choice,) = client.post(COMPLETION, json=body).json()["choices"]
    told = choice["logprobs"]
    assert "there" not in "".join(told["tokens"])
    assert told["text_offset"][-1] < len(choice["text"])
    chunks = [one["choices"][0] for one in events(client.post(COMPLETION, json=body | {"stream": True}).text)]
    assert "".join(one["text"] for one in chunks) == choice["text"]
    for name in told:
        assert [value for one in chunks if one["logprobs"] for value in one["logprobs"][name]] == told[name]


def test_a_token_that_is_half_hidden_is_cut() -> None:
    top = (entry(1, " there"), entry(2, " then"))
    shown = ShownLogprobs()
    assert shown.push([entry(0, ","), entry(1, " there", top)], [1, 7], shown=1) == (entry(0, ","),)
    (cut,) = shown.finish(shown=2, read=7)
    assert (cut.token_id, cut.token, cut.logprob) == (1, " ", -1.0)
    assert [one.token for one in cut.top_logprobs] == [" ", " then"]


def test_part_of_a_character_goes_with_its_rest() -> None:
    first, rest = entry(0, b"\xc3"), entry(1, b"\xa0s")
    shown = ShownLogprobs()
    assert shown.push([first], [0], shown=0) == ()
    assert shown.push([rest], [2], shown=0) == ()
    assert [one.utf8 for one in shown.finish(shown=1, read=2)] == [b"\xc3", b"\xa0"]
    hidden = ShownLogprobs()
    assert hidden.push([first, rest], [0, 2], shown=0) == ()
    assert hidden.finish(shown=0, read=2) == ()


def test_with_nothing_hidden_all_are_there() -> None:
    shown = ShownLogprobs()
    assert shown.push([entry(0, "a")], [1], shown=0) == ()
    assert shown.push([entry(9, "")], [1], shown=1) == (entry(0, "a"),)
    assert shown.finish(shown=1, read=1) == (entry(9, ""),)
