"""docs/published.md lists the models and tokenizers that the tests walk."""

from docs.make_published import PAGE, names, rows
from tests.published.models import MODELS


def test_page_lists_every_model_and_tokenizer() -> None:
    assert [row[0] for row in rows(PAGE.read_text("utf-8"))] == names(), "run python docs/make_published.py"


def test_page_says_which_tokenizers_stand_in() -> None:
    said = {row[0]: row[1] for row in rows(PAGE.read_text("utf-8"))}
    for model in MODELS:
        assert said[model.name] == (f"stand-in: {model.stand_in}" if model.stand_in else "the model's own")


def test_page_says_why_there_is_no_gguf_file() -> None:
    text = PAGE.read_text("utf-8")
    assert all(f"- {model.name}: {model.no_gguf}\n" in text for model in MODELS if model.gguf is None)


def test_there_are_at_least_twenty_models() -> None:
    assert len(MODELS) >= 20
