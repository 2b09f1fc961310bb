"""Tokenizers from GGUF metadata: same ids as the original tokenizers and llama.cpp, and clear errors."""

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tokenizers

from edgegen.bundle.manifest import Source
from edgegen.errors import CheckpointError
from edgegen.tokenizer import Tokenizer
from edgegen_export.checkpoint import Checkpoint, Listing
from edgegen_export.tokenizer.files import tokenizer_files
from edgegen_export.tokenizer.gguf_tokenizer import has_tokenizer, tokenizer_from_gguf
from edgegen_export.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from edgegen_export.tokenizer.sentencepiece_tokenizer import merges_of
from tests.byte_level import LETTER_OF_BYTE
from tests.export.tokenizer.gguf_vocabulary import GGML, byte_level_metadata, metadata_of, sentencepiece_metadata
from tests.export.tokenizer.material import golden_cases, load, texts, transformersjs_cases
from tests.export.tokenizer.sentencepieces import (
    BYTE,
    CONTROL,
    NORMAL,
    TINY,
    UNKNOWN,
    USER_DEFINED,
    import_sentencepiece,
    train,
)

BYTE_LEVEL = {
    "gpt-2": ("gpt2", "gpt-2", {"bos": 50256, "eos": 50256, "size": 50304}),
    "llama-bpe": ("llama3", "llama-bpe", {"bos": 128000, "eos": 128009}),
    "qwen2": ("qwen2.5", "qwen2", {"bos": 151643, "eos": 151645, "padding": 151643, "size": 151936}),
}


@pytest.fixture(scope="module", params=BYTE_LEVEL)
def byte_level(request: pytest.FixtureRequest, test_data: Path) -> tuple[str, Path, dict[str, bytes]]:
    """A golden's name, the original tokenizer's file, and what becomes of its metadata."""
    folder, pre, ids = BYTE_LEVEL[request.param]
    original = test_data / "tokenizers" / folder / "tokenizer.json"
    return request.param, original, tokenizer_from_gguf(byte_level_metadata(original, pre, **ids))


def test_byte_level_vocabularies_have_the_golden_ids(
    byte_level: tuple[str, Path, dict[str, bytes]], test_data: Path, tmp_path: Path
) -> None:
    name, file, files = byte_level
    made, original = load(files, tmp_path), Tokenizer.from_file(file)
    for text, ids in golden_cases(test_data, name):
        assert made.encode(text, add_special_tokens=False) == ids, text
        assert made.decode(ids) == text
    for text in texts(test_data, name):
        ids = original.encode(text, add_special_tokens=False)
        assert made.encode(text, add_special_tokens=False) == ids
        for skip in (True, False):
            assert made.decode(ids, skip_special_tokens=skip) == original.decode(ids, skip_special_tokens=skip)
    assert made.decode([made.vocab_size + 5]) == ""
    begin = [128000] if name == "llama-bpe" else []
    assert made.encode("x") == begin + original.encode("x", add_special_tokens=False)


@pytest.mark.parametrize("name", ["llama-spm", "phi-3"])
def test_sentencepiece_vocabularies_have_the_golden_ids(test_data: Path, tmp_path: Path, name: str) -> None:
    model = (test_data / "tokenizers" / "llama2" / "tokenizer.model").read_bytes()
    folder = "phi-3" if name == "phi-3" else "llama2"
    config = json.loads((test_data / "tokenizers" / folder / "tokenizer_config.json").read_bytes())
    added = {int(i): token for i, token in config["added_tokens_decoder"].items()}
    made = load(tokenizer_from_gguf(sentencepiece_metadata(model, added, bos=1, eos=2, unknown=0)), tmp_path)
    original = Tokenizer.from_file(test_data / "tokenizers" / folder / "tokenizer.json")
    for text, ids in golden_cases(test_data, name):
        assert made.encode(text) == [1, *ids], text
        assert made.decode(ids) == text
    for text in texts(test_data):
        if folder == "phi-3" or "<" not in text:  # Llama 2's special tokens are matched after the first space
            ids = original.encode(text, add_special_tokens=False)
            assert made.encode(text, add_special_tokens=False) == ids, text
            assert made.decode(ids, skip_special_tokens=False) == original.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("first", [UNKNOWN, CONTROL])
@pytest.mark.parametrize("ids", [{"bos": 1, "eos": 2, "unknown": 0}, {"bos": 1, "eos": 2}])
def test_padding_that_is_typed_unknown_is_read_as_control_tokens(
    test_data: Path, tmp_path: Path, first: int, ids: dict[str, int]
) -> None:
    """llama.cpp's own vocabulary of Phi-3 has it so: 32,064 tokens, those from 32,011 on "[PAD32011]" and unknown."""
    model = (test_data / "tokenizers" / "llama2" / "tokenizer.model").read_bytes()
    config = json.loads((test_data / "tokenizers" / "phi-3" / "tokenizer_config.json").read_bytes())
    added = {int(i): token for i, token in config["added_tokens_decoder"].items()}
    metadata = sentencepiece_metadata(model, added, **ids)
    metadata[f"{GGML}.token_type"][0] = first
    for i in range(32_011, 32_064):
        for key, value in (("tokens", f"[PAD{i}]"), ("scores", -10_000.0), ("token_type", UNKNOWN)):
            metadata[f"{GGML}.{key}"].append(value)
    made = load(tokenizer_from_gguf(metadata), tmp_path)
    assert made.vocab_size == 32_064
    for text, expected in golden_cases(test_data, "phi-3"):
        assert made.encode(text) == [1, *expected], text
    assert made.encode("[PAD32011]", add_special_tokens=False)[-1:] == [32_011]
    assert made.decode([32_011, 32_063]) == ""


def test_the_file_of_stories260k(test_data: Path, tmp_path: Path) -> None:
    gguf: Any = import_module("gguf")
    folder = test_data / "models" / "stories260K"
    fields = gguf.GGUFReader(str(folder / "stories260K-f32.gguf")).fields
    metadata = {name: field.contents() for name, field in fields.items()}
    checkpoint = Checkpoint(Listing.read(folder), Source("folder", "stories260K"), {}, {}, metadata=metadata)
    files = tokenizer_files(checkpoint)
    made, original = load(files, tmp_path), Tokenizer.from_file(folder / "tokenizer.json")
    for text in texts(test_data):
        assert made.encode(text) == original.encode(text), text
        assert made.decode(original.encode(text)) == original.decode(original.encode(text))
    assert json.loads(files["tokenizer_config.json"])["eos_token"] == "</s>"


def test_a_control_token_that_is_typed_as_a_word_is_found_anywhere(tmp_path: Path) -> None:
    """Old converters typed added tokens so, and no merge makes them."""
    rows = [(letter, 0.0, NORMAL) for letter in LETTER_OF_BYTE.values()]
    rows += [("<|im_start|>", 0.0, NORMAL), ("<|im_end|>", 0.0, CONTROL), ("hi", 0.0, NORMAL)]
    metadata = metadata_of("gpt2", "gpt-2", rows, eos=257) | {f"{GGML}.merges": ["h i"]}
    made = load(tokenizer_from_gguf(metadata), tmp_path)
    assert made.encode("<|im_start|>hi<|im_end|><|im_start|>") == [256, 258, 257, 256]
    assert made.decode([256, 258, 257]) == "<|im_start|>hi"


def test_gemmas_spaces_are_tokens(test_data: Path, tmp_path: Path) -> None:
    """Runs of spaces are user-defined symbols there, and the conversion writes them as spaces."""
    symbols = ["\n", "▁▁", "▁▁▁"]
    model = train(
        test_data,
        model_type="bpe",
        byte_fallback=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        allow_whitespace_only_pieces=True,
        user_defined_symbols=symbols,
    )
    added = {3 + i: {"content": text} for i, text in enumerate(symbols)}
    metadata = sentencepiece_metadata(model, added, bos=1, eos=2) | {f"{GGML}.add_space_prefix": False}
    made = load(tokenizer_from_gguf(metadata), tmp_path)
    oracle: Any = import_sentencepiece().SentencePieceProcessor(model_proto=model)
    for text in texts(test_data):
        if "<" not in text:
            assert made.encode(text) == [1, *oracle.encode(text)], text
            assert made.decode(made.encode(text)) == text


@pytest.mark.parametrize("unknown", [UNKNOWN, CONTROL])
def test_the_vocabulary_of_gemma_4(test_data: Path, tmp_path: Path, unknown: int) -> None:
    """Merges of letters, with marks for spaces; of tokens with the same text the later one is used."""
    model = train(
        test_data,
        model_type="bpe",
        byte_fallback=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        allow_whitespace_only_pieces=True,
    )
    spm = sentencepiece_metadata(model, bos=1, eos=2, unknown=0)
    tokens, scores = spm[f"{GGML}.tokens"], spm.pop(f"{GGML}.scores")
    merges = merges_of({text: i for i, text in enumerate(tokens)}, list(zip(tokens, scores, strict=True)))
    tokens[3 + 256 :] = ["e", *tokens[3 + 256 :]]  # the first is never used
    types = spm[f"{GGML}.token_type"]
    types[3 + 256 :] = [NORMAL, *types[3 + 256 :]]
    types[0] = unknown
    metadata = spm | {f"{GGML}.model": "gemma4", f"{GGML}.merges": [" ".join(pair) for pair in merges]}
    made = load(tokenizer_from_gguf(metadata), tmp_path)
    oracle: Any = import_sentencepiece().SentencePieceProcessor(model_proto=model)
    for text in texts(test_data):
        if "<" not in text:
            expected = [i + (i >= 3 + 256) for i in oracle.encode(text)]
            assert made.encode(text) == [1, *expected], text
            assert made.decode(made.encode(text)) == text


@pytest.mark.parametrize("prefix", [True, False])
def test_unigram_as_the_library_reads_it(test_data: Path, tmp_path: Path, prefix: bool) -> None:
    model = train(
        test_data,
        model_type="unigram",
        normalization_rule_name="nmt_nfkc",
        add_dummy_prefix=prefix,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
    )
    library: Any = import_sentencepiece()
    oracle = library.SentencePieceProcessor(model_proto=model)
    pb2: Any = pytest.importorskip("sentencepiece.sentencepiece_model_pb2", reason="protobuf is the oracle here")
    charsmap = pb2.ModelProto.FromString(model).normalizer_spec.precompiled_charsmap
    metadata = sentencepiece_metadata(model, eos=1, unknown=2, padding=0) | {
        f"{GGML}.model": "t5",
        f"{GGML}.add_space_prefix": prefix,
        f"{GGML}.remove_extra_whitespaces": True,
        f"{GGML}.precompiled_charsmap": np.frombuffer(charsmap, np.int8).tolist(),
        f"{GGML}.scores": [oracle.get_score(i) for i in range(oracle.get_piece_size())],
    }
    made = load(tokenizer_from_gguf(metadata), tmp_path)
    for text in texts(test_data):
        if "<" not in text:
            assert made.encode(text) == [*oracle.encode(text), 1], text


TOKENS_OF_OTHERS = [
    ("starcoder", "gpt2", "bigcode/santacoder"),
    ("gpt-2", "gpt2", "Xenova/gpt2"),
    ("gpt-4o", "gpt2", "Xenova/gpt-4o"),
    ("llama-bpe", "gpt2", "Xenova/gpt-4"),
    ("llama-bpe", "llama", "Xenova/llama3-tokenizer"),
    ("deepseek-coder", "llama", "Xenova/deepseek-coder-1.3b-instruct"),
    ("qwen2", "qwen2", "Xenova/Qwen1.5-0.5B-Chat"),
]


@pytest.mark.parametrize(("name", "file", "model"), TOKENS_OF_OTHERS)
def test_no_golden_token_crosses_a_word(test_data: Path, name: str, file: str, model: str) -> None:
    """Without vocabularies: tokens from other libraries end where words end."""
    seen = 0
    for case in transformersjs_cases(test_data, file, model):
        tokens = case["tokens"]
        if tokens and tokens[0].startswith("<"):
            tokens = tokens[1:]
        words = words_of(case["text"], name)
        if "".join(tokens) != "".join(words):
            continue  # a text with special tokens
        seen += 1
        assert ends(words) <= ends(tokens), case["text"]
    assert seen >= 3


@cache
def splitter(name: str) -> Any:
    """Return a splitter of text into words as ``name`` has it, out of a vocabulary that does not matter."""
    letters = [(letter, 0.0, NORMAL) for letter in LETTER_OF_BYTE.values()]
    metadata = metadata_of("gpt2", name, [*letters, ("aa", 0.0, NORMAL)], bos=0, eos=0) | {f"{GGML}.merges": ["a a"]}
    return cast(Any, tokenizers.Tokenizer).from_buffer(tokenizer_from_gguf(metadata)["tokenizer.json"]).pre_tokenizer


def words_of(text: str, name: str) -> list[str]:
    """The words, their bytes as letters."""
    return [word for word, _ in splitter(name).pre_tokenize_str(text)]


def ends(words: list[str]) -> set[int]:
    places: set[int] = set()
    for word in words:
        places.add(max(places, default=0) + len(word))
    return places


MIXED = "abc DEF'LL 1234567!?\n\nx"
WORDS: dict[str, list[str]] = {
    "llama-bpe": ["abc", " DEF", "'LL", " ", "123", "456", "7", "!?\n\n", "x"],
    "qwen2": ["abc", " DEF", "'LL", " ", *"1234567", "!?\n\n", "x"],
    "gpt-2": ["abc", " DEF", "'", "LL", " 1234567", "!?", "\n", "\n", "x"],
    "starcoder": ["abc", " DEF", "'", "LL", " ", *"1234567", "!?", "\n", "\n", "x"],
    "falcon": ["abc", " DEF", "'", "LL", " ", "123", "456", "7", "!?", "\n", "\n", "x"],
    "tekken": ["abc", " DEF", "'LL", " ", *"1234567", "!?\n\n", "x"],
    "gpt-4o": ["abc", " DEF'LL", " ", "123", "456", "7", "!?\n\n", "x"],
    "deepseek-llm": ["abc", " DEF", "'", "LL", " ", "1234567", "!?", "\n", "\n", "x"],
    "deepseek-v3": ["abc", " DEF", "'LL", " ", "123", "456", "7", "!?\n\n", "x"],
    "bloom": ["abc", " DEF'LL", " 1234567", "!?\n\n", "x"],
    "lfm2": ["abc", " DEF", "'LL", " ", "123", "456", "7", "!?\n\n", "x"],
    "glm4": ["abc", " DEF", "'LL", " ", "123", "456", "7", "!?\n\n", "x"],
    "hunyuan-dense": ["abc", " DEF", "'LL", " ", "123", "456", "7", "!?\n\n", "x"],
    "seed-coder": ["abc", " DEF", "'LL", " ", *"1234567", "!?", "\n\n", "x"],
    "jais-2": ["abc", " DEF", "'LL", " ", "123", "456", "7", "!?\n\n", "x"],
    "qwen35": ["abc", " DEF", "'LL", " ", *"1234567", "!?\n\n", "x"],
    "hunyuan": ["abc", " DEF", "'LL", " ", *"1234567", "!?\n\n", "x"],
    "minimax-m2": ["abc", " DEF'LL", " ", "123", "456", "7", "!?\n\n", "x"],
    "bailingmoe2": ["abc", " DEF", "'LL", " ", *"1234567", "!?\n\n", "x"],
    "exaone-moe": ["abc DEF", "'LL", " ", *"1234567", "!?\n", "\n", "x"],
    "afmoe": ["abc", " DEF", "'LL", " ", "1", "234", "567", "!?\n\n", "x"],
}


def test_marks_belong_to_their_letters_or_not() -> None:
    """Marks of Devanagari and others are letters to Qwen3.5 only."""
    text = "का जि"
    by_name = {"qwen35": ["का", " जि"], "qwen2": ["क", "ा", " ज", "ि"]}
    for name, words in by_name.items():
        assert words_of(text, name) == ["".join(LETTER_OF_BYTE[byte] for byte in word.encode()) for word in words]


def test_white_space_of_jais2_comes_in_powers_of_two() -> None:
    space = LETTER_OF_BYTE[ord(" ")]
    by_count = {5: [4], 7: [4, 2], 4: [2], 12: [8, 2], 1000: [512, 256, 128, 64, 32, 4, 2]}
    for count, pieces in by_count.items():  # the last space belongs to the word after it
        rest = count - 1 - sum(pieces)
        assert words_of("a" + " " * count + "b", "jais-2") == [
            "a",
            *(space * n for n in (*pieces, *[1] * rest)),
            f"{space}b",
        ]


def test_digits_of_trinity_come_by_three_from_the_right() -> None:
    for number in ("1", "12", "123", "1234", "12345", "123456", "1234567"):
        grouped = f"{int(number):,}".split(",")
        assert words_of(f"a{number}b", "afmoe") == ["a", *grouped, "b"]


def test_scripts_of_asia_are_words_of_their_own_to_trinity() -> None:
    """Kanji with kana, Hangul, Lao."""
    for text in ("日本語です", "한국어", "ລາວ"):
        letters = "".join(LETTER_OF_BYTE[byte] for byte in text.encode())
        assert words_of(f"a{text}b", "afmoe") == ["a", letters, "b"]


@pytest.mark.parametrize("name", WORDS)
def test_words_by_hand(name: str) -> None:
    assert words_of(MIXED, name) == ["".join(LETTER_OF_BYTE[byte] for byte in word.encode()) for word in WORDS[name]]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_way_to_split_keeps_every_letter(test_data: Path, name: str) -> None:
    for text in texts(test_data):
        assert "".join(words_of(text, name)) == "".join(LETTER_OF_BYTE[byte] for byte in text.encode())


@pytest.mark.parametrize(
    ("bos", "eos", "ids"), [(True, True, [1, 3, 4, 2]), (False, False, [3, 4]), (None, None, [1, 3, 4])]
)
def test_what_stands_around_a_text(tmp_path: Path, bos: bool | None, eos: bool | None, ids: list[int]) -> None:
    flags = {f"{GGML}.add_bos_token": bos, f"{GGML}.add_eos_token": eos}
    metadata = metadata_of("llama", None, TINY) | {key: flag for key, flag in flags.items() if flag is not None}
    files = tokenizer_from_gguf(metadata)  # without ids: a llama's own, 1 and 2
    assert load(files, tmp_path).encode("a") == ids
    config = json.loads(files["tokenizer_config.json"])
    assert (config["add_bos_token"], config["add_eos_token"]) == (bos is not False, bool(eos))


def test_user_defined_tokens_are_text_and_control_tokens_are_not(tmp_path: Path) -> None:
    rows = [*TINY, ("<tool>", 0.0, USER_DEFINED), ("<|end|>", 0.0, CONTROL), ("<0x0A>", 0.0, BYTE)]
    made = load(tokenizer_from_gguf(metadata_of("llama", None, rows)), tmp_path)
    assert made.encode("<tool><|end|>", add_special_tokens=False) == [5, 6]
    assert made.decode([5, 6, 7]) == "<tool>\n"


@pytest.mark.parametrize(
    ("templates", "carried"),
    [
        ({}, None),
        ({"": "T"}, "T"),
        (
            {"": "T", "tool_use": "U"},
            [{"name": "default", "template": "T"}, {"name": "tool_use", "template": "U"}],
        ),
        ({"rag": "R"}, [{"name": "rag", "template": "R"}]),
    ],
)
def test_chat_templates_are_carried(templates: dict[str, str], carried: Any) -> None:
    metadata = metadata_of("llama", None, TINY)
    metadata |= {f"tokenizer.chat_template{'.' if name else ''}{name}": text for name, text in templates.items()}
    if names := [name for name in templates if name]:
        metadata["tokenizer.chat_templates"] = names
    assert json.loads(tokenizer_from_gguf(metadata)["tokenizer_config.json"]).get("chat_template") == carried


@pytest.mark.parametrize("metadata", [{}, {f"{GGML}.model": "none"}, {f"{GGML}.model": "no_vocab"}])
def test_a_file_may_have_none(metadata: dict[str, Any]) -> None:
    assert not has_tokenizer(metadata)
    assert tokenizer_files(Checkpoint(Listing(Path("nowhere")), Source("folder", "x"), {}, {}, metadata=metadata)) == {}


def test_a_whole_tokenizer_is_used_as_it_is(test_data: Path) -> None:
    whole = (test_data / "models" / "stories260K" / "tokenizer.json").read_text("utf-8")
    metadata = {"tokenizer.huggingface.json": whole, f"{GGML}.bos_token_id": 1, f"{GGML}.model": "rwkv"}
    files = tokenizer_from_gguf(metadata)
    assert files["tokenizer.json"] == whole.encode()
    assert json.loads(files["tokenizer_config.json"])["bos_token"] == "<s>"


LETTERS = [(letter, 0.0, NORMAL) for letter in LETTER_OF_BYTE.values()]
MERGES: dict[str, Any] = {f"{GGML}.merges": ["a b"]}
AB = [*LETTERS, ("ab", 0.0, NORMAL)]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({f"{GGML}.model": "bert"}, "tokenizer.ggml.model is 'bert', which is not supported: only gpt2"),
    ({f"{GGML}.model": 5}, "tokenizer.ggml.model: a text expected, found 5"),
    ({f"{GGML}.model": "llama"}, "there is no tokenizer.ggml.tokens"),
    ({"tokenizer.huggingface.json": "{"}, "tokenizer.huggingface.json is not a readable tokenizer"),
    (
        metadata_of("gpt2", "kimi-k2", AB) | MERGES,
        "tokenizer.ggml.pre is 'kimi-k2', which is not supported: only",
    ),
    (
        metadata_of("gpt2", "qwen-2", AB) | MERGES,
        "tokenizer.ggml.pre is 'qwen-2', which is not supported",
    ),
    (metadata_of("gpt2", "gpt-2", AB), "there is no tokenizer.ggml.merges"),
    (metadata_of("gpt2", "gpt-2", LETTERS) | MERGES, "the merges name 'ab', which the vocabulary lacks"),
    (metadata_of("gpt2", "gpt-2", [*AB, ("ab", 0.0, NORMAL)]) | MERGES, "piece 257 is 'ab' again, as piece 256"),
    (
        metadata_of("gpt2", "gpt-2", AB, bos=999) | MERGES,
        "tokenizer.ggml.bos_token_id is 999, and there is no such token",
    ),
    (metadata_of("gpt2", "llama-bpe", AB) | MERGES, "every text is to have the bos_token, and there is no"),
    (
        metadata_of("llama", None, TINY) | {f"{GGML}.scores": [0.0]},
        "tokenizer.ggml.scores has 1 values for 5 tokens",
    ),
    (metadata_of("llama", None, TINY) | {f"{GGML}.scores": []}, "there is no tokenizer.ggml.scores"),
    (metadata_of("llama", None, TINY) | {f"{GGML}.token_type": [1]}, "token_type has 1 values for 5 tokens"),
    (metadata_of("llama", None, TINY) | {f"{GGML}.token_type": [2, 3, 3, 1, 9]}, "unknown types: 9"),
    (metadata_of("llama", None, TINY) | {f"{GGML}.tokens": "abc"}, "tokens: a list of texts expected, found 'abc'"),
    (
        metadata_of("llama", None, TINY) | {f"{GGML}.tokens": [1] * 5},
        "tokens: a list of texts expected, found [1, 1, 1, 1, 1]",
    ),
    (metadata_of("llama", None, TINY) | {f"{GGML}.add_bos_token": 1}, "add_bos_token: true or false expected, found 1"),
    (
        metadata_of("llama", None, TINY) | {f"{GGML}.bos_token_id": True},
        "bos_token_id: a whole number expected, found True",
    ),
    (metadata_of("llama", None, TINY[1:], unknown=7), "token 7 is to stand for the unknown, and there are only 4"),
    (metadata_of("llama", None, [*TINY, ("a", 0.0, NORMAL)]), "piece 5 is 'a' again, as piece 4"),
    (
        metadata_of("llama", None, [*TINY, ("?", 0.0, UNKNOWN)], unknown=6),
        "token 6 is to stand for the unknown, and there are only 6",
    ),
]


@pytest.mark.parametrize(("metadata", "said"), REFUSED)
def test_what_does_not_fit_is_refused(metadata: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        tokenizer_from_gguf(metadata)
    assert said in str(caught.value)


def test_every_fault_of_a_gguf_tokenizer_is_listed() -> None:
    wrong = {f"{GGML}.scores": [0.0], f"{GGML}.token_type": [1, 7], f"{GGML}.add_space_prefix": "no"}
    with pytest.raises(CheckpointError) as caught:
        tokenizer_from_gguf(metadata_of("llama", None, TINY) | wrong)
    for said in (
        "scores has 1 values",
        "token_type has 2 values",
        "unknown types: 7",
        "add_space_prefix: true or false expected, found 'no'",
    ):
        assert said in str(caught.value)
