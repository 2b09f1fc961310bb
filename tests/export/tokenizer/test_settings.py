"""Settings of tokenizer_config.json and the files beside it, and errors for malformed ones."""

import json
from typing import Any

import pytest

from edgegen.errors import CheckpointError
from edgegen_export.tokenizer.added_token import AddedToken
from edgegen_export.tokenizer.settings import TokenizerSettings


def read(**files: Any) -> TokenizerSettings:
    return TokenizerSettings.read({f"{name}.json": json.dumps(content).encode() for name, content in files.items()})


def test_tokenizer_settings_have_no_defaults() -> None:
    settings = TokenizerSettings.read({})
    assert settings.tokenizer_class is None
    assert (settings.specials, settings.added, settings.more_special) == ({}, {}, ())
    assert (settings.add_bos, settings.add_eos, settings.legacy, settings.add_prefix_space) == (None,) * 4
    assert settings.special("bos_token") is None
    assert settings.special("bos_token", "<s>") == AddedToken("<s>", special=True, normalized=False)


def test_a_role_set_to_null_has_no_default() -> None:
    assert read(tokenizer_config={"bos_token": None}).special("bos_token", "<s>") is None


def test_the_config_that_describes_tokens_says_everything() -> None:
    described = {"5": {"content": "<x>", "special": True, "rstrip": True}, "3": {"content": "y", "special": False}}
    settings = read(
        tokenizer_config={"added_tokens_decoder": described, "eos_token": "<x>", "add_bos_token": True},
        special_tokens_map={"eos_token": "<other>"},
        added_tokens={"<z>": 9},
    )
    eos = AddedToken("<x>", special=True, normalized=False, rstrip=True)
    assert settings.added == {3: AddedToken("y", special=False, normalized=True), 5: eos}
    assert list(settings.added) == [3, 5]
    assert settings.special("eos_token") == eos
    assert settings.add_bos


def test_older_files_count_without_it() -> None:
    settings = read(
        tokenizer_config={"eos_token": "<a>"},
        special_tokens_map={"eos_token": {"content": "<x>", "lstrip": True}, "additional_special_tokens": ["<u>"]},
        added_tokens={"<u>": 7, "plain": 8},
    )
    assert settings.special("eos_token") == AddedToken("<x>", special=True, normalized=False, lstrip=True)
    assert settings.added[7].special
    assert not settings.added[8].special  # listed there, but special only if a role says so
    assert settings.added[8].normalized


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tokenizer_config": []}, "tokenizer_config.json: a JSON object is expected, not list"),
        ({"tokenizer_config": {"bos_token": 5}}, "tokenizer_config.json: bos_token: 5 is not a token"),
        ({"tokenizer_config": {"bos_token": {"content": 5}}}, "is not a token"),
        ({"tokenizer_config": {"bos_token": {"content": "x", "special": "yes"}}}, "is not a token"),
        ({"tokenizer_config": {"added_tokens_decoder": []}}, "added_tokens_decoder is not an object"),
        ({"tokenizer_config": {"added_tokens_decoder": {"x": {"content": "a"}}}}, "'x' is not a token id"),
        ({"tokenizer_config": {"added_tokens_decoder": {"-1": {"content": "a"}}}}, "'-1' is not a token id"),
        ({"tokenizer_config": {"added_tokens_decoder": {"1": 7}}}, "added_tokens_decoder: 1: 7 is not a token"),
        ({"tokenizer_config": {"additional_special_tokens": "x"}}, "additional_special_tokens is not a list"),
        ({"tokenizer_config": {"add_bos_token": "yes"}}, "add_bos_token is 'yes', not true or false"),
        ({"tokenizer_config": {"tokenizer_class": 3}}, "tokenizer_class is not a name"),
        ({"tokenizer_config": {"extra_ids": 1e9}}, "extra_ids is not a number of tokens"),
        ({"added_tokens": {"a": True}}, "added_tokens.json: 'a': True is not a token id"),
    ],
)
def test_what_cannot_be_is_refused(files: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(**files)
    assert said in str(caught.value)


def test_every_fault_of_tokenizer_settings_is_listed() -> None:
    with pytest.raises(CheckpointError) as caught:
        TokenizerSettings.read(
            {
                "tokenizer_config.json": b'{"legacy": 1, "add_eos_token": 0, "eos_token": []}',
                "special_tokens_map.json": b"{",
                "added_tokens.json": b"\xff",
            }
        )
    assert str(caught.value).startswith("5 problems:")
