"""Tokenizers that take the longest token at each place: RWKV's rule, applied to bytes, is the oracle."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.errors import CheckpointError
from edgegen.tokenizer import Tokenizer
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.tokenizer.files import tokenizer_files
from edgegen_export.tokenizer.gguf_tokenizer import tokenizer_from_gguf
from edgegen_export.tokenizer.longest_match import END_OF_TEXT, longest_match, read_world
from tests.export.checkpoint.layouts import write_gpt2
from tests.export.tokenizer.gguf_vocabulary import metadata_of
from tests.export.tokenizer.material import load

FILE = "rwkv_vocab_v20230424.txt"
NORMAL, CONTROL, UNUSED = 1, 3, 5
WORDS = (
    *("ab", "abc", "abcde", "bc", "cd", " a", " ab", "  ", "    ", "\n\n", "\r\n", "\t\t", "a b", "a]", "^-", "\\n"),
    *(
        "é",
        "éa",
        "ü",
        "你",
        "你好",
        "好。\n",
        "。\n",
        "😀",
        "👍🏽",
        "[a]",
        "(b)",
        "a|b",
        "{c}",
        "/]",
        "$^",
        "x-y",
        "&&",
    ),
    *(chr(0x4E00 + 2 * k) for k in range(60)),
    *(chr(0x430 + k) + letter for k in range(24) for letter in "ab"),
)
"""Characters of two to four bytes, those that regular expressions know, and a place with many continuations."""
PARTS = (b"\xe4\xb8", b"\xf0\x9f", b"\xa6\x82", b"\x82\xac", b"\x99\x82", b"\xc3\xa8")
"""Bytes within characters, among them such as continue each other; the last is a character."""
SINGLE = [bytes([byte]) for byte in range(256)]
TOKENS = dict(enumerate([*SINGLE, *map(str.encode, WORDS), *PARTS], 1))


def written(tokens: Mapping[int, bytes]) -> bytes:
    """As RWKV publishes it: what is text as such, other bytes as bytes."""
    lines = list[str]()
    for i, token in tokens.items():
        try:
            literal = repr(token.decode())
        except UnicodeDecodeError:
            literal = repr(token)
        lines.append(f"{i} {literal} {len(token)}\n")
    return "".join(lines).encode()


def longest(text: str) -> list[int]:
    """The ids, by RWKV's rule."""
    ids, data, id_of = list[int](), text.encode(), {token: i for i, token in TOKENS.items()}
    while data:
        size = next(size for size in range(min(len(data), 20), 0, -1) if data[:size] in id_of)
        ids.append(id_of[data[:size]])
        data = data[size:]
    return ids


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_gpt2(tmp_path_factory.mktemp("world") / "checkpoint", layout="trainer", n_layer=1)
    (folder / FILE).write_bytes(written(TOKENS))
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load(tokenizer_files(Checkpoint.open(str(folder))), tmp_path_factory.mktemp("world"))


ALPHABET = st.sampled_from([*"abcde xy-^$|[](){}/\\&\n\r\t", *"éüè你好。丁万丂不世😀👍🏽𦂬𦂂𙂂", *"абвгдежз"])


@given(text=st.text(ALPHABET, max_size=40) | st.text(max_size=20))
def test_a_text_gets_the_longest_tokens(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == longest(text)
    assert tokenizer.decode(ids) == text


def test_every_character_gets_the_longest_tokens(tokenizer: Tokenizer) -> None:
    """Characters of three bytes and the first of four; alone, and side by side."""
    points = [*range(0x800, 0x3000, 7), *range(0x4E00, 0x4F00), *range(0x1F300, 0x1F700, 3), *range(0x26080, 0x260C0)]
    text = "".join(map(chr, points))
    for one in (text, "x".join(text)):
        assert tokenizer.encode(one) == longest(one)


def test_a_long_text_takes_no_time(tokenizer: Tokenizer) -> None:
    """Without a place to split it: each token is found from where it starts."""
    assert len(tokenizer.encode("b" * 200_000)) == 200_000


def test_the_end_of_a_text_has_the_first_id(folder: Path, tmp_path: Path) -> None:
    made = json.loads(tokenizer_files(Checkpoint.open(str(folder)))["tokenizer.json"])
    assert made["model"]["vocab"][END_OF_TEXT] == 0
    named = write_gpt2(tmp_path / "checkpoint", layout="trainer", n_layer=1)
    (named / FILE).write_bytes(written(TOKENS))
    special = {"tokenizer_class": "RwkvTokenizer", "bos_token": "<s>", "eos_token": "<s>", "unk_token": "<s>"}
    (named / "tokenizer_config.json").write_text(json.dumps(special))
    made = json.loads(tokenizer_files(Checkpoint.open(str(named)))["tokenizer.json"])
    assert [(token["id"], token["content"]) for token in made["added_tokens"]] == [(0, "<s>")]


def test_a_gguf_file_has_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    rows = [("<s>", 0.0, CONTROL), *((repr(token)[2:-1], 0.0, NORMAL) for token in TOKENS.values())]
    rows += [(f"[PAD{i}]", 0.0, UNUSED) for i in range(len(rows), len(rows) + 5)]
    made = load(tokenizer_from_gguf(metadata_of("rwkv", "default", rows, bos=0, eos=0)), tmp_path)
    for text in ("abc 你好。\n\n\\n'\"é丁x", "".join(WORDS)):
        assert made.encode(text) == tokenizer.encode(text) == longest(text)


BYTES = dict(enumerate(SINGLE))


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (dict(enumerate(SINGLE[:255])), "the byte 0xff has no token"),
        (BYTES | {256: b"a"}, "token 256 is b'a' again, as token 97"),
        (BYTES | {256: b"\xe4\xb8\xad\xe5"}, "neither text nor two bytes of a character"),
        (BYTES | {256: b"a\xe4"}, "neither text nor two bytes of a character"),
        (BYTES | {256: b"\x82\xac", 257: b"\xac\x82"}, "tokens of two bytes that follow each other in a circle"),
        (BYTES | {256: b""}, "neither text nor two bytes of a character"),
    ],
)
def test_what_a_tokenizer_json_cannot_say_is_refused(tokens: dict[int, bytes], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        longest_match(tokens, {})
    assert said in str(caught.value)


@pytest.mark.parametrize("line", ["1 'a'", "1 'a' 2", "x 'a' 1", "1 a 1", "1 5 1", "1 'a 1", ""])
def test_a_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(CheckpointError, match="line 2 is not an id, a token, and how many bytes it has"):
        read_world(f"1 'a' 1\n{line}\n2 'b' 1\n".encode(), FILE)


def test_a_special_token_that_is_a_word_is_refused(folder: Path, tmp_path: Path) -> None:
    named = write_gpt2(tmp_path / "checkpoint", layout="trainer", n_layer=1)
    (named / FILE).write_bytes(written(TOKENS))
    config: dict[str, Any] = {"tokenizer_class": "RwkvTokenizer", "eos_token": "\n\n"}
    (named / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="is a word of the vocabulary, too"):
        tokenizer_files(Checkpoint.open(str(named)))
