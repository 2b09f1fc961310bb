"""vocab.json and merges.txt as tokenizer.json: the ids and texts of transformers' converted tokenizers."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgegen.errors import CheckpointError
from edgegen.tokenizer import Tokenizer
from edgegen_export.tokenizer.vocabulary_files import read_vocabulary
from tests.export.tokenizer.material import files_of, golden_cases, load, texts, transformersjs_cases, write_folder
from tests.oracle import import_transformers

FILES = ("vocab.json", "merges.txt")
CONFIG = "tokenizer_config.json"
END = {"content": "</s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
OPT = {
    **{role: {**END, "__type": "AddedToken"} for role in ("bos_token", "eos_token", "unk_token")},
    "pad_token": {**END, "content": "<pad>", "__type": "AddedToken"},
    "add_prefix_space": False,
    "add_bos_token": True,
    "tokenizer_class": "GPT2Tokenizer",
}
KINDS: dict[str, tuple[str, dict[str, Any] | None, dict[str, int] | None]] = {
    "GPT-2, nothing else": ("gpt2", None, None),
    "GPT-2 with a begin": (
        "gpt2",
        {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": True},
        None,
    ),
    "OPT": ("opt", OPT, None),
    "Phi": (
        "phi",
        {"tokenizer_class": "CodeGenTokenizer", "add_prefix_space": False},
        {" " * (31 - i): 1024 + i for i in range(30)},
    ),
    "StarCoder 2": ("starcoder2", {"tokenizer_class": "GPT2TokenizerFast", "eos_token": "<|endoftext|>"}, None),
    "Qwen2, nothing else": ("qwen2", None, None),
}


def write_stories(folder: Path, test_data: Path, *, end: bool) -> None:
    """The vocabulary of 1024 tokens of a small model as slow files; without its ``end`` it has one less."""
    content = json.loads((test_data / "models" / "gpt2-stories-0.9m" / "tokenizer.json").read_bytes())
    vocab: dict[str, int] = content["model"]["vocab"]
    first = vocab.pop("<|endoftext|>")
    vocab = {"<|endoftext|>": first, **vocab} if end else {token: i - 1 for token, i in vocab.items()}
    (folder / "vocab.json").write_text(json.dumps(vocab), "utf-8")
    merges = [" ".join(pair) for pair in content["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), "utf-8")


def auto(folder: Path) -> Any:
    return import_transformers().AutoTokenizer.from_pretrained(str(folder))


def assert_same(made: Tokenizer, oracle: Any, cases: list[str]) -> None:
    for text in cases:
        ids = oracle.encode(text)
        assert made.encode(text) == ids, text
        for skip in (True, False):
            expected = oracle.backend_tokenizer.decode(ids, skip_special_tokens=skip)
            assert made.decode(ids, skip_special_tokens=skip) == expected, text


@pytest.mark.parametrize("name", KINDS)
def test_as_transformers_converts_it(test_data: Path, tmp_path: Path, name: str) -> None:
    model_type, config, added = KINDS[name]
    edits = {CONFIG: config, "added_tokens.json": added}
    written = {name: content for name, content in edits.items() if content is not None}
    folder = write_folder(tmp_path / "x", tmp_path, [], written, model_type=model_type)
    write_stories(folder, test_data, end=model_type != "qwen2")
    assert_same(load(files_of(folder), tmp_path), auto(folder), texts(test_data))


@pytest.fixture(scope="module")
def qwen2(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Qwen2.5's files, of its vocabulary, merges and config."""
    folder = tmp_path_factory.mktemp("qwen2") / "x"
    return files_of(write_folder(folder, test_data / "tokenizers" / "qwen2.5", [*FILES, CONFIG]))


def test_qwen2_with_its_config_becomes_its_own_tokenizer_json(test_data: Path, qwen2: dict[str, bytes]) -> None:
    made = json.loads(qwen2["tokenizer.json"])
    original = json.loads((test_data / "tokenizers" / "qwen2.5" / "tokenizer.json").read_bytes())
    assert made["added_tokens"] == original["added_tokens"]
    assert made["normalizer"] == original["normalizer"]
    assert made["pre_tokenizer"]["pretokenizers"][0] == original["pre_tokenizer"]["pretokenizers"][0]
    for key in ("vocab", "merges"):
        assert made["model"][key] == original["model"][key]


def test_qwen2_has_the_golden_ids(test_data: Path, tmp_path: Path, qwen2: dict[str, bytes]) -> None:
    made = load(qwen2, tmp_path)
    for text, ids in golden_cases(test_data, "qwen2"):
        assert made.encode(text) == ids, text
        assert made.decode(ids) == text
    for case in transformersjs_cases(test_data, "qwen2", "Xenova/Qwen1.5-0.5B-Chat"):
        assert made.encode(case["text"]) == case["ids"], case["text"]


def test_gpt2_has_the_golden_ids(test_data: Path, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "x", test_data / "tokenizers" / "gpt2", FILES, model_type="gpt2")
    made = load(files_of(folder), tmp_path)
    for text, ids in golden_cases(test_data, "gpt-2"):
        assert made.encode(text) == ids, text
        assert made.decode(ids) == text


def test_the_first_gpt_as_transformers_converts_it(test_data: Path, tmp_path: Path) -> None:
    source, folder = test_data / "tokenizers" / "openai-gpt", tmp_path / "x"
    write_folder(folder, source, [], model_type="openai-gpt")
    shutil.copyfile(source / "encoder_bpe_40000.json", folder / "vocab.json")
    shutil.copyfile(source / "vocab_40000.bpe", folder / "merges.txt")
    made = load(files_of(folder), tmp_path)
    assert_same(made, auto(folder), [*texts(test_data), "Café déjà VU, don't!"])
    assert made.decode(made.encode("Hello, World!")) == "hello , world !"


def test_neox_composes_characters(test_data: Path, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "x", test_data / "tokenizers" / "gpt2", FILES, model_type="gpt_neox")
    made, gpt2 = load(files_of(folder), tmp_path), Tokenizer.from_file(test_data / "tokenizers/gpt2/tokenizer.json")
    assert made.encode("cafe\u0301") == gpt2.encode("caf\u00e9") != gpt2.encode("cafe\u0301")
    for text, ids in golden_cases(test_data, "gpt-2"):
        if "\u0301" not in text:
            assert made.encode(text) == ids


VOCABULARY = b'{"a": 0, "b": 1, "ab": 2}'


def test_only_a_first_line_may_be_a_version() -> None:
    vocabulary = b'{"#version:": 0, "x": 1, "#version:x": 2}'
    assert read_vocabulary(VOCABULARY, b"#version: 0.2\na b\n").merges == (("a", "b"),)
    assert read_vocabulary(VOCABULARY, b"a b\r\n\r\n").merges == (("a", "b"),)
    assert read_vocabulary(vocabulary, b"#version: 0.2\n#version: x\n").merges == (("#version:", "x"),)


@pytest.mark.parametrize(
    ("vocabulary", "merges", "said"),
    [
        (b"[]", b"", "do not make a tokenizer: vocab.json is not ids by token"),
        (b'{"a": -1}', b"", "do not make a tokenizer: vocab.json is not ids by token"),
        (b'{"a": "x"}', b"", "do not make a tokenizer: vocab.json is not ids by token"),
        (b"{", b"", "vocab.json and merges.txt do not make a tokenizer: Expecting"),
        (VOCABULARY, b"\xff", "vocab.json and merges.txt do not make a tokenizer: 'utf-8'"),
        (VOCABULARY, b"a b\na\n", "line 2 is not two tokens"),
        (VOCABULARY, b"b a", "the merges name 'ba', which the vocabulary lacks"),
        (b'{"a": 0, "b": 0}', b"", "vocab.json gives two tokens the same id"),
    ],
)
def test_what_does_not_fit_is_refused(vocabulary: bytes, merges: bytes, said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_vocabulary(vocabulary, merges)
    assert said in str(caught.value)


def test_every_fault_of_vocabulary_files_is_listed() -> None:
    many = "\n".join(f"x{i} y" for i in range(10))
    with pytest.raises(CheckpointError) as caught:
        read_vocabulary(VOCABULARY, f"a\n{many}".encode())
    assert len(str(caught.value).split("\n")) == 1 + 1 + 5 + 1
    assert "… and 16 more like this" in str(caught.value)
