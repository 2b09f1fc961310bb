"""Texts end at the token at which transformers' stopping criteria end them, on real tokenizers."""

import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edgegen.stopping.text_watcher import TextWatcher
from edgegen.tokenizer import StreamingDetokenizer, Tokenizer
from tests.oracle import import_torch, import_transformers

pytestmark = pytest.mark.parity


class Model(NamedTuple):
    """A tokenizer, ours and theirs, and a text in its tokens."""

    tokenizer: Tokenizer
    theirs: Any
    ids: list[int]


@pytest.fixture(scope="module", params=["gpt2", "llama2"])
def model(request: pytest.FixtureRequest, test_data: Path) -> Model:
    file = test_data / "tokenizers" / request.param / "tokenizer.json"
    theirs = import_transformers().PreTrainedTokenizerFast(tokenizer_file=str(file))
    text = (test_data / "corpora" / "tinyshakespeare.txt").read_text("utf-8")[2000:8000]
    return Model(Tokenizer.from_file(file), theirs, theirs(text, add_special_tokens=False)["input_ids"])


def answer_length(model: Model, prompt: int, criterion: Any, longest: int = 60) -> int | None:
    """How many tokens there are after a prompt when ``criterion`` ends the text."""
    torch = import_torch()
    for count in range(1, longest + 1):
        if criterion(torch.tensor([model.ids[: prompt + count]]), None).all():
            return count
    return None


def our_answer_length(model: Model, prompt: int, *stops: str, longest: int = 60, **options: Any) -> int | None:
    detokenizer = StreamingDetokenizer(model.tokenizer, prompt_ids=model.ids[:prompt])
    watcher = TextWatcher(detokenizer, stops, options.pop("eos", ()), **options)
    for count, token_id in enumerate(model.ids[prompt : prompt + longest], 1):
        if watcher.watch((token_id,)):
            return count
    return None


def check_stops(model: Model, prompt: int, stops: list[str], criterion: Any) -> bool:
    """Whether theirs ends the answer at one of the stops; if so, ours must do so at the same token in every way."""
    theirs = answer_length(model, prompt, criterion)
    answer = model.tokenizer.decode(model.ids[prompt : prompt + (theirs or 0)])
    if not any(stop in answer for stop in stops):
        return False  # nor where it takes the prompt's last characters for the beginning of one
    for include in (False, True):
        assert our_answer_length(model, prompt, *stops, include_stop_str_in_output=include) == theirs
    assert our_answer_length(model, prompt, stop_regex="|".join(map(re.escape, stops))) == theirs
    return True


def test_a_stop_string_ends_it_at_the_same_token(model: Model) -> None:
    criterion: Any = import_transformers().StopStringCriteria
    rng = random.Random(5)
    ended = 0
    for _ in range(8):
        prompt = rng.randrange(10, len(model.ids) - 60)
        answer = model.tokenizer.decode(model.ids[prompt : prompt + 60])
        begin = rng.randrange(20, len(answer) - 12)
        stop = answer[begin : begin + rng.randint(2, 12)]
        ended += check_stops(model, prompt, [stop], criterion(model.theirs, [stop]))
    assert ended >= 6


def test_several_stop_strings_end_it_at_the_same_token(model: Model) -> None:
    stops = ["\n\n", ":\n", " the ", "not", "; "]  # none is part of another, which ours would wait for
    criterion: Any = import_transformers().StopStringCriteria(model.theirs, stops)
    assert sum(check_stops(model, prompt, stops, criterion) for prompt in range(11, 1000, 60)) >= 12


def test_end_of_sequence_ids_end_it_at_the_same_token(model: Model) -> None:
    criterion: Any = import_transformers().generation.stopping_criteria.EosTokenCriteria
    for prompt in range(10, 1000, 77):
        eos = [model.ids[prompt + 20], model.ids[prompt + 9]]
        theirs = answer_length(model, prompt, criterion(eos_token_id=eos))
        assert our_answer_length(model, prompt, eos=eos) == theirs
        assert our_answer_length(model, prompt, stop_token_ids=eos) == theirs
