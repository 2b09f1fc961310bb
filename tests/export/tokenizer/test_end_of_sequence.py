"""An end-of-sequence token that only the tokenizer's files name completes the generation settings."""

import json
from typing import Any

import pytest

from edgegen_export.output.generation_config import generation_config
from edgegen_export.tokenizer.files import end_of_sequence

TOKENIZER: dict[str, Any] = {"model": {"type": "BPE", "vocab": {"a": 0, "<end>": 1}, "merges": []}, "added_tokens": []}


def files(**config: object) -> dict[str, bytes]:
    return {"tokenizer.json": json.dumps(TOKENIZER).encode(), "tokenizer_config.json": json.dumps(config).encode()}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"eos_token": "<end>"}, ("<end>", 1)),
        ({"eos_token": {"content": "<end>", "lstrip": False}}, ("<end>", 1)),
        ({"eos_token": None}, None),
        ({"eos_token": "<other>"}, None),
        ({}, None),
    ],
)
def test_the_token_that_tokenizer_files_name(config: dict[str, object], found: tuple[str, int] | None) -> None:
    assert end_of_sequence(files(**config)) == found


def test_a_bundle_without_a_tokenizer_has_none() -> None:
    assert end_of_sequence({}) is None


@pytest.mark.parametrize(
    ("from_file", "config", "eos"),
    [({}, {}, 1), ({"eos_token_id": [5]}, {}, [5]), ({}, {"eos_token_id": 6}, 6), ({"eos_token_id": None}, {}, 1)],
)
def test_the_end_token_of_the_configs(from_file: dict[str, object], config: dict[str, object], eos: object) -> None:
    completed, _ = generation_config(from_file, config, 64, 1)
    assert completed["eos_token_id"] == eos
