"""Vocabularies that the tests share, read once."""

from pathlib import Path

import pytest

from tests.runtime.constraint.vocabulary import Vocabulary


@pytest.fixture(scope="session")
def gpt2(test_data: Path) -> Vocabulary:
    return Vocabulary.read(test_data / "tokenizers" / "gpt2" / "tokenizer.json", 50257, "<|endoftext|>")


@pytest.fixture(scope="session")
def qwen(test_data: Path) -> Vocabulary:
    """Padded beyond its tokenizer's 151665 tokens, with two end-of-sequence tokens."""
    file = test_data / "tokenizers" / "qwen2.5" / "tokenizer.json"
    return Vocabulary.read(file, 151936, "<|im_end|>", "<|endoftext|>")


@pytest.fixture(scope="session")
def llama(test_data: Path) -> Vocabulary:
    """SentencePiece with a byte fallback."""
    return Vocabulary.read(test_data / "tokenizers" / "llama2" / "tokenizer.json", 32000, "</s>")


@pytest.fixture(params=["gpt2", "qwen", "llama"])
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    """Each of them, one after the other."""
    return request.getfixturevalue(request.param)
