"""SentencePiece models as tokenizer.json: same ids and texts as transformers, the library and original files."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from edgegen.errors import CheckpointError
from edgegen.tokenizer import StreamingDetokenizer, Tokenizer
from edgegen_export.tokenizer.sentencepiece_tokenizer import merges_of
from tests.export.tokenizer.material import files_of, golden_cases, load, texts, transformersjs_cases, write_folder
from tests.export.tokenizer.sentencepieces import (
    NORMAL,
    TINY,
    USER_DEFINED,
    import_sentencepiece,
    model_bytes,
    train,
)
from tests.oracle import import_transformers

MODEL = "tokenizer.model"
FILES = (MODEL, "tokenizer_config.json", "special_tokens_map.json")
CONFIG = "tokenizer_config.json"
CONFIGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "the space is not mentioned": {"add_prefix_space": ...},
    "no space": {"add_prefix_space": False},
    "not legacy": {"legacy": False, "add_prefix_space": ...},
    "not legacy, a space": {"legacy": False, "add_prefix_space": True},
    "not legacy, no space": {"legacy": False, "add_prefix_space": False},
    "an end, no begin": {"add_bos_token": False, "add_eos_token": True, "add_prefix_space": ...},
    "a token of the config": {"pad_token": "[PAD]", "add_prefix_space": ...},
    "added tokens": {
        "add_prefix_space": True,
        "added_tokens_decoder": {
            "0": {"content": "<unk>", "special": True},
            "512": {"content": "<|user|>", "special": True, "rstrip": True},
            "513": {"content": "the light", "special": False, "normalized": True},
        },
    },
    "Code Llama": {"tokenizer_class": "CodeLlamaTokenizer", "add_prefix_space": ...},
}
GEMMA_IDS: dict[str, Any] = {
    "pad_id": 0,
    "eos_id": 1,
    "bos_id": 2,
    "unk_id": 3,
    "pad_piece": "<pad>",
    "bos_piece": "<bos>",
    "eos_piece": "<eos>",
}
PLAIN: dict[str, Any] = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}


def assert_same(made: Tokenizer, oracle: Any, cases: list[str]) -> None:
    """Ids with and without special tokens, and texts of them, are those of transformers' fast tokenizer."""
    for text in cases:
        for special in (True, False):
            assert made.encode(text, add_special_tokens=special) == oracle.encode(text, add_special_tokens=special), (
                text
            )
        ids = oracle.encode(text)
        for skip in (True, False):
            expected = oracle.backend_tokenizer.decode(ids, skip_special_tokens=skip)
            assert made.decode(ids, skip_special_tokens=skip) == expected, text


def auto(folder: Path) -> Any:
    import_sentencepiece()
    return import_transformers().AutoTokenizer.from_pretrained(str(folder))


def test_llama2_becomes_its_own_tokenizer_json(test_data: Path, tmp_path: Path) -> None:
    source = test_data / "tokenizers" / "llama2"
    made = json.loads(files_of(write_folder(tmp_path / "x", source, FILES))["tokenizer.json"])
    original = json.loads((source / "tokenizer.json").read_bytes())
    for token in (*made["added_tokens"], *original["added_tokens"]):
        token["flags"] = sorted(token.items())
    assert made == original


@pytest.mark.parametrize("name", ["llama-spm", "phi-3"])
def test_hard_texts_have_the_golden_ids(test_data: Path, tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "x", test_data / "tokenizers" / "llama2", FILES)
    if name == "phi-3":  # Llama 2's vocabulary and more after it; its tokenizer.json is legacy whatever its config says
        write_folder(folder, test_data / "tokenizers" / "phi-3", [CONFIG], {CONFIG: {"legacy": True}})
    made = load(files_of(folder), tmp_path)
    for text, ids in golden_cases(test_data, name):
        assert made.encode(text, add_special_tokens=False) == ids, text
        assert made.decode(ids) == text


def test_the_golden_ids_of_transformersjs(test_data: Path, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "x", test_data / "tokenizers" / "llama2", FILES)
    made = load(files_of(folder), tmp_path)
    for case in transformersjs_cases(test_data, "llama", "Xenova/llama-tokenizer"):
        assert made.encode(case["text"]) == case["ids"], case["text"]


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "as it is"])
def test_llama_as_transformers_converts_it(test_data: Path, tmp_path: Path, name: str) -> None:
    source = test_data / "models" / "stories260K"
    folder = write_folder(tmp_path / "x", source, FILES, {CONFIG: CONFIGS[name]}, model_type="llama")
    assert_same(load(files_of(folder), tmp_path), auto(folder), texts(test_data))


def test_a_space_that_is_null_is_the_default(test_data: Path, tmp_path: Path) -> None:
    """As the checkpoint's own tokenizer.json has it; transformers 4.57 converts such a model without the space."""
    source = test_data / "models" / "stories260K"
    made = load(files_of(write_folder(tmp_path / "x", source, FILES, model_type="llama")), tmp_path)
    original = Tokenizer.from_file(source / "tokenizer.json")
    for text in texts(test_data):
        assert made.encode(text) == original.encode(text)


@pytest.mark.parametrize("form", ["the model alone", "older files"])
def test_without_a_config_the_models_type_decides(test_data: Path, tmp_path: Path, form: str) -> None:
    older = {
        "added_tokens.json": {"<pad>": 512, "lighthouse": 513},
        "special_tokens_map.json": {"pad_token": "<pad>", "bos_token": "<s>"},
    }
    source = test_data / "models" / "stories260K"
    edits = older if form == "older files" else {}
    folder = write_folder(tmp_path / "x", source, [MODEL], edits, model_type="mistral")
    made = load(files_of(folder), tmp_path)
    assert made.token_to_id("lighthouse") == (513 if edits else None)
    assert_same(made, auto(folder), texts(test_data))


@pytest.mark.parametrize(
    "symbols",
    [["<start_of_turn>", "<end_of_turn>", "\n", "▁▁", "▁▁▁"], ["\t"], []],
    ids=["turns and spaces", "a tab", "no tab"],
)
def test_gemma_as_transformers_converts_it(test_data: Path, tmp_path: Path, symbols: list[str]) -> None:
    model = train(
        test_data,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        add_dummy_prefix=False,
        user_defined_symbols=symbols,
        **GEMMA_IDS,
        **PLAIN,
    )
    folder = write_folder(tmp_path / "x", tmp_path, [], {CONFIG: {"tokenizer_class": "GemmaTokenizer"}})
    (folder / MODEL).write_bytes(model)
    made, cases = load(files_of(folder), tmp_path), texts(test_data)
    assert_same(made, auto(folder), cases)
    assert all(made.decode(made.encode(text)) == text for text in cases if "<" not in text)


@pytest.mark.parametrize("legacy", [True, False, None])
def test_t5_as_transformers_converts_it(test_data: Path, tmp_path: Path, legacy: bool | None) -> None:
    ids: dict[str, Any] = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "pad_piece": "<pad>"}
    settings = {"tokenizer_class": "T5Tokenizer", "legacy": legacy, "extra_ids": 10}
    folder = write_folder(tmp_path / "x", tmp_path, [], {CONFIG: settings})
    model = train(test_data, model_type="unigram", normalization_rule_name="nmt_nfkc", **ids)
    (folder / "spiece.model").write_bytes(model)  # T5's own name for the file
    made = load(files_of(folder), tmp_path)
    assert_same(made, auto(folder), texts(test_data))
    for text in texts(test_data):
        ids_of_text = made.encode(text)
        stream = StreamingDetokenizer(made)
        assert "".join([stream.push(i) for i in ids_of_text]) + stream.finish() == made.decode(ids_of_text)


@pytest.mark.parametrize("named", [True, False], ids=["its class is named", "its type is known"])
def test_gpt_sw3_as_transformers_reads_it(test_data: Path, tmp_path: Path, named: bool) -> None:
    settings = {"eos_token": "<|endoftext|>", "pad_token": "<pad>", "bos_token": "<s>", "unk_token": "<unk>"}
    edits = {CONFIG: {"tokenizer_class": "GPTSw3Tokenizer", **settings}} if named else {}
    folder = write_folder(tmp_path / "x", tmp_path, [], edits, model_type="gpt-sw3")
    model = train(
        test_data,
        model_type="bpe",
        byte_fallback=True,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        pad_id=0,
        eos_piece="<|endoftext|>",
        normalization_rule_name="identity",
    )
    (folder / "spiece.model").write_bytes(model)
    import_sentencepiece()
    oracle: Any = import_transformers().GPTSw3Tokenizer(str(folder / "spiece.model"))
    made = load(files_of(folder), tmp_path)
    spaces = [f"a{space}b{space}{space}c" for space in "\t\x01\x84\u00a0\u00ad\u2002\u2009\u200b\u202f\u3000\ufffc"]
    for text in [*texts(test_data), *spaces, "Cafe\u0301", "\u212b\n\n a"]:
        for special in (True, False):
            assert made.encode(text, add_special_tokens=special) == oracle.encode(text, add_special_tokens=special), (
                text
            )


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc"},
        {"model_type": "bpe", "byte_fallback": True, **PLAIN},
        {"model_type": "bpe", "byte_fallback": True, "add_dummy_prefix": False, **PLAIN},
        {"model_type": "bpe", "normalization_rule_name": "nfkc_cf"},
        {"model_type": "unigram"},
        {"model_type": "unigram", "byte_fallback": True, **PLAIN},
    ],
    ids=str,
)
def test_a_model_of_no_class_as_the_library_reads_it(test_data: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    model = train(test_data, **settings)
    folder = write_folder(tmp_path / "x", tmp_path, [])
    (folder / MODEL).write_bytes(model)
    made = load(files_of(folder), tmp_path)
    oracle: Any = import_sentencepiece().SentencePieceProcessor(model_proto=model)
    for text in texts(test_data):
        if "<s>" in text or "</s>" in text:
            continue  # the library has no special tokens in texts
        ids = oracle.encode(text)
        assert made.encode(text) == ids, text
        if oracle.unk_id() not in ids:
            assert made.decode(ids) == oracle.decode(ids)


def test_user_defined_symbols_come_first(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "x", tmp_path, [])
    (folder / MODEL).write_bytes(model_bytes([*TINY, ("aa", -0.5, NORMAL), ("a▁a", 0.0, USER_DEFINED)]))
    made = load(files_of(folder), tmp_path)
    assert made.encode("aa") == [3, 5]
    assert made.encode("a▁a") == [6]
    assert made.decode([6]) == "a a"


def test_merges_are_ordered_by_score_and_length() -> None:
    pieces = [("a", 0.0), ("b", 0.0), ("ab", -1.0), ("ba", -1.0), ("aba", -1.0), ("abab", -0.5)]
    found = merges_of({piece: i for i, (piece, _) in enumerate(pieces)}, pieces)
    assert found == [("aba", "b"), ("ab", "ab"), ("ab", "a"), ("a", "ba"), ("a", "b"), ("b", "a")]


def test_two_tokens_of_one_name_are_refused(tmp_path: Path) -> None:
    decoder = {"1": {"content": "a", "special": True}}
    config = {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": decoder}
    folder = write_folder(tmp_path / "x", tmp_path, [], {CONFIG: config})
    (folder / MODEL).write_bytes(model_bytes(TINY))
    with pytest.raises(CheckpointError, match="two tokens of the vocabulary have the same name"):
        files_of(folder)


def test_a_large_vocabulary_takes_seconds(tmp_path: Path) -> None:
    """64,000 pieces, a quarter of Gemma's, with a quarter of a million merges."""
    letters = {ord(digit): chr(ord("a") + i) for i, digit in enumerate("0123456789abcdef")}
    words = [f"{i:x}".translate(letters) for i in range(64_000)]
    pieces = [*TINY[:4], *((word, -float(i), NORMAL) for i, word in enumerate(words))]
    folder = write_folder(tmp_path / "x", tmp_path, [], model_type="gemma")
    (folder / MODEL).write_bytes(model_bytes(pieces))
    begin = time.process_time()
    files = files_of(folder)
    assert time.process_time() - begin < 10  # 2 s as it is; a list searched for every piece would take an hour
    assert len(json.loads(files["tokenizer.json"])["model"]["merges"]) > 150_000
