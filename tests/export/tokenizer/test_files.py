"""Tokenizer files of a bundle: copied, or converted from vocab.json and merges.txt."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from edgegen.bundle.bundle import Bundle
from edgegen.errors import CheckpointError
from edgegen.tokenizer import Tokenizer
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.pipeline import export
from edgegen_export.tokenizer.files import TOKENIZER, tokenizer_files
from tests.export.bundles import LITTLE, Listener, compared_on
from tests.export.checkpoint.layouts import write_gpt2
from tests.oracle import import_transformers

COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json")
HARD_TEXTS = [
    "Hello<|endoftext|>world <|endoftext|>",
    "don't  you'LL\t\n\n  we've 1234567 ½ x² 東京 🦙🇨🇭 e\u0301 \u200b \ufeff",
    "   leading\r\ntrailing   ",
    "",
    " ",
    "\x00\x01\x7f",
    "<|endoftext",
    "a" * 300,
]


def bundle_tokenizer(bundle: Bundle) -> Tokenizer:
    assert bundle.manifest.tokenizer is not None
    return Tokenizer.from_file(bundle.file(bundle.manifest.tokenizer))


def made_tokenizer(folder: Path) -> Tokenizer:
    """The bundle's tokenizer for the checkpoint in ``folder``."""
    made = folder / "made.json"
    made.write_bytes(tokenizer_files(Checkpoint.open(str(folder)))["tokenizer.json"])
    return Tokenizer.from_file(made)


@pytest.fixture(scope="module")
def gpt2_files(test_data: Path) -> Path:
    return test_data / "tokenizers" / "gpt2"


@pytest.fixture(scope="module")
def checkpoint(gpt2_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of GPT-2's vocabulary with vocab.json and merges.txt only, as old fine-tunes have."""
    folder = tmp_path_factory.mktemp("bpe") / "checkpoint"
    write_gpt2(folder, layout="original", n_layer=1, n_embd=16, n_head=2, vocab_size=50257, n_positions=64)
    for name in ("vocab.json", "merges.txt"):
        shutil.copyfile(gpt2_files / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def converted(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    with compared_on(LITTLE):
        bundle, report = export(str(checkpoint), tmp_path_factory.mktemp("bpe") / "bundle")
    assert report.text == "sample text"
    bundle.verify()
    return bundle_tokenizer(bundle)


def texts(test_data: Path) -> list[str]:
    golden = json.loads((test_data / "tokenizers" / "goldens" / "transformersjs_gpt2.json").read_text())
    vocab_texts = (test_data / "tokenizers" / "ggml-vocab" / "ggml-vocab-gpt-2.gguf.inp").read_text("utf-8")
    corpus = (test_data / "corpora" / "wikitext2").glob("valid.*")
    wiki = "".join(path.read_text("utf-8") for path in corpus)[:20_000]
    return [
        *HARD_TEXTS,
        *(case["text"] for case in golden["Xenova/gpt2"].values()),
        *vocab_texts.split("\n__ggml_vocab_test__\n"),
        wiki,
    ]


def test_vocabulary_and_merges_give_the_ids_of_transformers(
    test_data: Path, gpt2_files: Path, converted: Tokenizer
) -> None:
    oracle: Any = import_transformers().GPT2Tokenizer(str(gpt2_files / "vocab.json"), str(gpt2_files / "merges.txt"))
    for text in texts(test_data):
        assert converted.encode(text) == oracle.encode(text), text


def test_vocabulary_and_merges_give_the_ids_of_the_original_file(
    test_data: Path, gpt2_files: Path, converted: Tokenizer
) -> None:
    original = Tokenizer.from_file(gpt2_files / "tokenizer.json")
    assert converted.vocab_size == original.vocab_size == 50257
    for text in texts(test_data):
        ids = original.encode(text)
        assert converted.encode(text) == ids
        assert converted.decode(ids) == original.decode(ids)
        assert converted.decode(ids, skip_special_tokens=False) == original.decode(ids, skip_special_tokens=False)


def test_vocabulary_and_merges_give_the_golden_ids(test_data: Path, converted: Tokenizer) -> None:
    folder = test_data / "tokenizers" / "ggml-vocab"
    cases = (folder / "ggml-vocab-gpt-2.gguf.inp").read_text("utf-8").split("\n__ggml_vocab_test__\n")
    lines = (folder / "ggml-vocab-gpt-2.gguf.out").read_text("utf-8").splitlines()
    for text, line in zip(cases, lines, strict=False):
        assert converted.encode(text) == [int(i) for i in line.split()], text


@pytest.mark.parametrize("prefix_space", [True, False])
def test_the_space_before_the_first_word_is_as_the_config_says(
    checkpoint: Path, tmp_path: Path, prefix_space: bool
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix_space}))
    tokenizer = made_tokenizer(folder)
    assert (tokenizer.encode("Hello") == tokenizer.encode(" Hello")) == prefix_space


def test_a_tokenizer_json_stays_the_same_tokenizer_and_its_companions_are_copied(
    test_data: Path, gpt2_files: Path, tmp_path: Path
) -> None:
    folder = write_gpt2(tmp_path / "checkpoint", layout="trainer", n_layer=1, tokenizer=gpt2_files)
    bundle, _ = export(str(folder), tmp_path / "bundle")
    read: Any = tokenizers.Tokenizer
    written, given = (read.from_file(str(path)) for path in (bundle.file(TOKENIZER), gpt2_files / TOKENIZER))
    assert written.to_str() == given.to_str()
    for name in COMPANIONS:
        assert bundle.file(name).read_bytes() == (gpt2_files / name).read_bytes()
    assert not {"vocab.json", "merges.txt"} & bundle.manifest.files.keys()


def test_a_vocabulary_larger_than_the_model_is_said(gpt2_files: Path, tmp_path: Path) -> None:
    heard = Listener()
    folder = write_gpt2(tmp_path / "checkpoint", layout="trainer", n_layer=1, vocab_size=96, tokenizer=gpt2_files)
    export(str(folder), tmp_path / "bundle", progress=heard)
    assert any("50257 tokens, but the model only 96" in text for text in heard.warnings)


def saved_slow(checkpoint: Path, folder: Path, tokenizer: Any) -> Path:
    """The checkpoint with what the slow tokenizer's ``save_pretrained`` writes: no ``tokenizer.json``."""
    shutil.copytree(checkpoint, folder)
    tokenizer.save_pretrained(str(folder))
    assert not (folder / "tokenizer.json").exists()
    return folder


def with_added_tokens(files: Path, **settings: Any) -> Any:
    tokenizer: Any = import_transformers().GPT2Tokenizer(
        str(files / "vocab.json"), str(files / "merges.txt"), **settings
    )
    tokenizer.add_special_tokens({"pad_token": "<|pad|>", "additional_special_tokens": ["<|user|>", "<|bot|>"]})
    tokenizer.add_tokens(["lighthouse", "Größe"])
    return tokenizer


CHATS = ["<|user|>Hello there<|bot|> Hi <|pad|><|endoftext|>", "the lighthouse stood", "die Größe des Lighthouse"]


@pytest.mark.parametrize("form", ["today's", "older"])
def test_added_tokens_keep_their_ids(checkpoint: Path, gpt2_files: Path, tmp_path: Path, form: str) -> None:
    oracle = with_added_tokens(gpt2_files)
    folder = saved_slow(checkpoint, tmp_path / "checkpoint", oracle)
    if form == "older":
        (folder / "tokenizer_config.json").write_text("{}")
    tokenizer = made_tokenizer(folder)
    for text in CHATS:
        ids = tokenizer.encode(text)
        assert ids == oracle.encode(text)
        if "Größe" in text:
            continue  # the library reads letters of an added token as bytes, in its own fast tokenizers too
        for skip in (True, False):
            expected = oracle.decode(ids, skip_special_tokens=skip, spaces_between_special_tokens=False)
            assert tokenizer.decode(ids, skip_special_tokens=skip) == expected


def test_a_token_that_begins_every_text_is_kept(checkpoint: Path, gpt2_files: Path, tmp_path: Path) -> None:
    oracle = with_added_tokens(gpt2_files, add_bos_token=True)
    tokenizer = made_tokenizer(saved_slow(checkpoint, tmp_path / "checkpoint", oracle))
    for text in CHATS:
        assert tokenizer.encode(text) == oracle.encode(text)


def test_added_tokens_whose_ids_leave_a_gap_keep_them(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, folder)
    (folder / "added_tokens.json").write_text('{"<|user|>": 50300, "<|bot|>": 50257}')
    oracle: Any = import_transformers().GPT2Tokenizer.from_pretrained(str(folder))
    text = "a<|user|>b<|bot|>"
    assert made_tokenizer(folder).encode(text) == oracle.encode(text) == [64, 50300, 65, 50257]


def test_an_added_token_with_the_id_of_another_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, folder)
    (folder / "added_tokens.json").write_text('{"<|user|>": 64}')
    with pytest.raises(CheckpointError, match=r"'<\|user\|>' cannot have the id 64, that of 'a'"):
        made_tokenizer(folder)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"tokenizer_class": "GPT4Tokenizer"},
            r"how GPT4Tokenizer \(did you mean 'GPT2Tokenizer'\?\) reads",
        ),
        ({"tokenizer_class": "LlamaTokenizerFast"}, r"how LlamaTokenizer reads merges.txt and vocab.json is not known"),
        ({}, r"no config names the class that reads merges.txt and vocab.json: add the tokenizer.json"),
    ],
)
def test_files_that_nobody_says_how_to_read_are_refused(
    checkpoint: Path, tmp_path: Path, config: dict[str, str], said: str
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    opened = replace(Checkpoint.open(str(folder)), config={"model_type": "unheard of"})
    with pytest.raises(CheckpointError, match=said):
        tokenizer_files(opened)


def test_a_checkpoint_without_a_vocabulary_has_no_files(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "checkpoint", layout="trainer", n_layer=1)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert tokenizer_files(Checkpoint.open(str(folder))) == {}


@pytest.mark.parametrize("name", ["qwen.tiktoken", "tekken.json", "tokenizer.model.v3"])
def test_a_vocabulary_of_another_program_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = write_gpt2(tmp_path / "checkpoint", layout="trainer", n_layer=1)
    (folder / name).write_bytes(b"IQ== 0\n")
    with pytest.raises(CheckpointError) as caught:
        tokenizer_files(Checkpoint.open(str(folder)))
    assert f"has the vocabulary {name}, which is not read" in str(caught.value)
    assert "add the tokenizer.json that transformers saves" in str(caught.value)
