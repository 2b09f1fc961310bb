"""Bytes of a tokenizer's tokens, and the usual tokens of a text that continues another."""

from pathlib import Path

import pytest

from edgegen.constraint.vocabulary import ConstraintVocabulary
from edgegen.errors import UsageError
from edgegen.tokenizer import Tokenizer
from tests.runtime.constraint.vocabulary import Vocabulary

TEXTS = ("Hello, world", " two  spaces", "Zoë 日本語 😀", '{"a": [1, 2]}', "\n\n\tx", "'s don't")


@pytest.fixture
def tokens(vocabulary: Vocabulary) -> ConstraintVocabulary:
    return ConstraintVocabulary(vocabulary.tokenizer, vocabulary.size)


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_of_tokens_are_the_text(vocabulary: Vocabulary, tokens: ConstraintVocabulary, text: str) -> None:
    """Against ``decode``, which the tokenizers library makes."""
    ids = tokens(text)
    assert b"".join(tokens.tokens[i] for i in ids) == text.encode()
    behind = vocabulary.encode("x")
    decoded = vocabulary.tokenizer.decode([*behind, *ids])
    assert decoded == vocabulary.tokenizer.decode(behind) + text


@pytest.mark.parametrize("text", TEXTS)
def test_a_continuation_has_its_usual_tokens(vocabulary: Vocabulary, tokens: ConstraintVocabulary, text: str) -> None:
    whole = vocabulary.encode("1\n" + text)
    if vocabulary.tokenizer.decode(whole) == "1\n" + text and not text.startswith("\n"):
        assert whole[-len(tokens(text)) :] == tokens(text)


def test_what_a_normalizer_would_change_is_spelled_otherwise(qwen: Vocabulary) -> None:
    tokens = ConstraintVocabulary(qwen.tokenizer, qwen.size)
    decomposed = "a\u0308 ok"
    assert b"".join(tokens.tokens[i] for i in tokens(decomposed)) == decomposed.encode()


def test_special_and_padding_tokens_are_marked(qwen: Vocabulary) -> None:
    tokens = ConstraintVocabulary(qwen.tokenizer, qwen.size)
    assert len(tokens.tokens) == 151936
    assert tokens.tokens[qwen.eos[0]] == b"\xff<|im_end|>"
    assert tokens.tokens[151935] == b"\xff[151935]"
    assert qwen.tokenizer.token_bytes(qwen.eos[0]) is None
    assert qwen.tokenizer.token_bytes(151935) is None


def test_tokens_beyond_the_models_are_left_out(gpt2: Vocabulary) -> None:
    assert len(ConstraintVocabulary(gpt2.tokenizer, 1000).tokens) == 1000


def test_a_vocabulary_of_words_has_no_bytes(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text('{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}')
    tokenizer = Tokenizer.from_file(file)
    assert not tokenizer.spells_bytes
    with pytest.raises(UsageError, match="not so many bytes each"):
        tokenizer.token_bytes(0)
