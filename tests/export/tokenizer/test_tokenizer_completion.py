"""Completion of a tokenizer.json as in transformers: special tokens of the config, BOS and EOS."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgegen.errors import CheckpointError
from tests.export.tokenizer.material import files_of, golden_cases, load, texts, write_folder
from tests.oracle import import_transformers

JSON = "tokenizer.json"
CONFIG = "tokenizer_config.json"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama, an end too": ("models/stories260K", {"add_eos_token": True}),
    "Llama, nothing around": ("models/stories260K", {"add_bos_token": False}),
    "Llama, fast by name": ("models/stories260K", {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": ...}),
    "Gemma's rule": (
        "models/stories260K",
        {"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "pad_token": None},
    ),
    "Cohere's rule": (
        "models/stories260K",
        {"tokenizer_class": "CohereTokenizerFast", "add_eos_token": True, "bos_token": "<s>", "eos_token": "</s>"},
    ),
    "NeoX has no begin": ("models/stories260K", {"tokenizer_class": "GPTNeoXTokenizerFast", "add_bos_token": ...}),
    "another class keeps the file's": ("models/stories260K", {"tokenizer_class": "PreTrainedTokenizerFast"}),
    "GPT-2 keeps the file's": ("tokenizers/gpt2", {"add_bos_token": True}),
    "a first space": ("tokenizers/gpt2", {"add_prefix_space": True}),
    "a token of a role": (
        "tokenizers/gpt2",
        {"pad_token": "[PAD]", "sep_token": "", "additional_special_tokens": ["<|user|>", "lighthouse"]},
    ),
    "other flags": (
        "tokenizers/gpt2",
        {
            "added_tokens_decoder": {
                "50256": {"content": "<|endoftext|>", "special": True, "lstrip": True, "normalized": False},
                "50257": {"content": "lighthouse", "special": False, "normalized": False},
            }
        },
    ),
    "Phi-3": ("tokenizers/phi-3", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_as_transformers_completes_it(test_data: Path, tmp_path: Path, name: str) -> None:
    place, changes = CASES[name]
    changes = {"add_prefix_space": ..., **changes}  # set, it would have Llama's made of the tokenizer.model
    folder = write_folder(tmp_path / "x", test_data / place, [JSON, CONFIG], {CONFIG: changes}, model_type="gpt2")
    made = load(files_of(folder), tmp_path)
    oracle: Any = import_transformers().AutoTokenizer.from_pretrained(str(folder))
    for text in texts(test_data):
        for special in (True, False):
            ids = oracle.encode(text, add_special_tokens=special)
            assert made.encode(text, add_special_tokens=special) == ids, text
        for skip in (True, False):
            expected = oracle.backend_tokenizer.decode(ids, skip_special_tokens=skip)
            assert made.decode(ids, skip_special_tokens=skip) == expected, text


def test_phi3_gets_the_begin_that_its_file_lacks(test_data: Path, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "x", test_data / "tokenizers" / "phi-3", [JSON, CONFIG], model_type="phi3")
    made = load(files_of(folder), tmp_path)
    for text, ids in golden_cases(test_data, "phi-3"):
        assert made.encode(text) == [1, *ids]


@pytest.mark.parametrize("place", ["gpt2", "llama2", "mistral/hf-v1", "qwen2.5"])
def test_a_complete_file_is_carried_as_it_is(test_data: Path, tmp_path: Path, place: str) -> None:
    source = test_data / "tokenizers" / place
    folder = write_folder(tmp_path / "x", source, [JSON, CONFIG], model_type="llama")
    files = files_of(folder)
    assert files == {name: (source / name).read_bytes() for name in (JSON, CONFIG)}


def test_a_set_space_has_llamas_file_made_anew(test_data: Path, tmp_path: Path) -> None:
    """As transformers does; without the SentencePiece model there is nothing to convert."""
    source, changes = test_data / "models" / "stories260K", {CONFIG: {"add_prefix_space": False}}
    with_model = write_folder(tmp_path / "x", source, [JSON, "tokenizer.model", CONFIG], changes)
    without = write_folder(tmp_path / "y", source, [JSON, CONFIG], changes)
    assert load(files_of(with_model), tmp_path).encode("a") != load(files_of(without), tmp_path).encode("a")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"added_tokens_decoder": {"5": {"content": "<new>"}}}, "'<new>' cannot have the id 5, that of '<0x02>'"),
        ({"bos_token": None, "add_prefix_space": ...}, "every text is to have the bos_token, and there is none"),
    ],
)
def test_what_does_not_fit_is_refused(test_data: Path, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    source = test_data / "models" / "stories260K"
    folder = write_folder(tmp_path / "x", source, [JSON, CONFIG], {CONFIG: changes})
    with pytest.raises(CheckpointError) as caught:
        files_of(folder)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"model": {}}',
        '{"model": {"vocab": {}}, "added_tokens": [1]}',
        '{"model": {"vocab": {}}, "decoder": 5}',
    ],
)
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    folder = write_folder(tmp_path / "x", tmp_path, [])
    (folder / JSON).write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not a readable tokenizer: "):
        files_of(folder)


def test_tokens_behind_a_gap_keep_their_ids(test_data: Path, tmp_path: Path) -> None:
    decoder = {"50300": {"content": "<|user|>", "special": True}, "50257": {"content": "<|bot|>", "special": True}}
    source = test_data / "tokenizers" / "gpt2"
    folder = write_folder(tmp_path / "x", source, [JSON], {CONFIG: {"added_tokens_decoder": decoder}})
    files = files_of(folder)
    made = load(files, tmp_path)
    assert made.encode("a<|user|>b<|bot|>") == [64, 50300, 65, 50257]
    assert made.decode([64, 50300, 65, 50257], skip_special_tokens=False) == "a<|user|>b<|bot|>"
    assert json.loads(files[JSON])["model"]["vocab"]["<|user|>"] == 50300
