"""A ``tokenizer.json`` is judged before the tokenizers library reads it: refused, or read as the library reads it."""

import json
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import BundleError, PromptTooLongError
from edgegen.tokenizer import LibraryBackend, Tokenizer
from edgegen.tokenizer.charsmap import charsmap_growth
from edgegen.tokenizer.panic import without_panic_text
from edgegen.tokenizer.tokenizer_check import check_tokenizer
from tests.runtime.test_tokenizer import KINDS, TEXTS, byte_level
from tests.runtime.tokenizer_mutations import added, charsmap, mutated, replace, split, template


def changed(**parts: Any) -> dict[str, Any]:
    return {**byte_level(), **parts}


def encoded(spec: dict[str, Any]) -> bytes:
    return json.dumps(spec).encode()


LIBRARY: Any = tokenizers
NO_WORDS: dict[str, Any] = {"pre_tokenizer": None}
HIGHEST = len(byte_level()["model"]["vocab"])


FAULTS: list[tuple[dict[str, Any], str]] = [
    (
        {"normalizer": {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 20}} | NO_WORDS,
        r"normalizers and pre-tokenizers can make 1\.049e\+06 bytes of each byte of a text, at most 256",
    ),
    (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 9}} | NO_WORDS,
        "can make 512 bytes",
    ),
    ({"normalizer": {"type": "Prepend", "prepend": "x" * 300}} | NO_WORDS, "can make 301 bytes"),
    ({"normalizer": replace({"String": ""}, "x")}, "normalizer Replace: it looks for nothing at all"),
    ({"normalizer": replace({"Regex": "b*|c"}, "x")}, "normalizer Replace: .* may match nothing at all"),
    (
        {"normalizer": replace({"Regex": "(a+)+b"}, "x")},
        "normalizer Replace: .* may take too long: what it repeats",
    ),
    ({"normalizer": {"type": "Lowercased"}}, r"Lowercased: there is no such type \(did you mean 'Lowercase'\?\)"),
    ({"normalizer": {"normalizers": []}}, "a step of its normalizer has no type"),
    ({"normalizer": charsmap(b"\x04\0\0\0\0\xff\xff\xff")}, "Precompiled: its trie leads out of itself"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}}, "Precompiled: it is not base64"),
    ({"pre_tokenizer": split("(a|a)*b")}, "pre_tokenizer Split: the regular expression"),
    ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split("a")] * 101}}, "has 101 steps, at most 100"),
    ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "pieces of the length 0 have no end"),
    ({"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 2}}, "stop must be 0"),
    (
        {"decoder": {"type": "Sequence", "decoders": [replace({"String": "a"}, "aa")] * 9}},
        "decoders can make 512 bytes of each byte of a token",
    ),
    *(
        ({"decoder": {"type": "Sequence", "decoders": [doubling] * 20}}, "decoders can make .* bytes of each byte")
        for doubling in (
            {"type": "BPEDecoder", "suffix": ""},
            {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
            {"type": "WordPiece", "prefix": "", "cleanup": True},
        )
    ),
    ({"post_processor": template([5] * 5000)}, "puts 5000 ids around each text, at most 1000"),
    ({"post_processor": template([HIGHEST + 9])}, f"puts the id {HIGHEST + 9} around a text, and there are"),
    ({"post_processor": template([1], texts=2)}, "has the text 2 times"),
    ({"post_processor": template([1], texts=0)}, "has the text 0 times"),
    ({"post_processor": template([1]) | {"special_tokens": {}}}, "has '<s>', and no ids for it"),
    (
        {"post_processor": {"type": "BertProcessing", "sep": ["x", 10**9], "cls": ["y", 1]}},
        "puts the id 1000000000",
    ),
    ({"added_tokens": [added(HIGHEST, "<a>"), added(HIGHEST, "<b>")]}, "'<a>' and '<b>' have the same id"),
    ({"added_tokens": [added(64, "<a>")]}, "and '<a>' have the same id, 64"),
    ({"added_tokens": [added(2**31, "<a>")]}, "'<a>' has the id 2147483648, not one from 0 to"),
    ({"model": byte_level()["model"] | {"vocab": {"a": 2**31}, "merges": []}}, "'a' has the id 2147483648"),
    ({"model": byte_level()["model"] | {"continuing_subword_prefix": "##"}}, "the continuing_subword_prefix '##'"),
]


@pytest.mark.parametrize(("parts", "fault"), FAULTS)
def test_what_costs_too_much_is_refused(parts: dict[str, Any], fault: str, tmp_path: Path, capfd: Any) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(encoded(changed(**parts)))
    with pytest.raises(BundleError, match=r"tokenizer\.json is not a readable tokenizer\.json: ") as caught:
        Tokenizer.from_file(path)
    assert caught.match(fault)
    assert capfd.readouterr().err == ""


def test_a_file_that_is_nested_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for data in (b"[" * 100_000, b'{"normalizer":' * 100_000):
        path.write_bytes(data)
        with pytest.raises(BundleError, match="it is nested too deeply"):
            Tokenizer.from_file(path)
    nested: dict[str, Any] = {"type": "NFC"}
    for _ in range(60):
        nested = {"type": "Sequence", "normalizers": [nested]}
    path.write_bytes(encoded(changed(normalizer=nested)))
    with pytest.raises(BundleError, match="its normalizer is nested more than 16 deep"):
        Tokenizer.from_file(path)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_mutated_file_is_refused_or_read_as_the_library_reads_it(seed: int) -> None:
    chosen = random.Random(seed)
    data = mutated(KINDS[chosen.choice(sorted(KINDS))](), chosen)
    try:
        ours = LibraryBackend.of(data)
    except ValueError:
        return
    theirs = LIBRARY.Tokenizer.from_buffer(data)
    theirs.no_padding()
    theirs.no_truncation()
    if hasattr(theirs.model, "dropout"):
        theirs.model.dropout = None
    for text in (*TEXTS, "aaaa bbb  <s> <zz>" * 5):
        expected = ids_or_error(theirs.encode, text)
        assert ids_or_error(partial(ours.encode, add_special_tokens=True), text) == expected


def ids_or_error(encode: Callable[[str], Any], text: str) -> object:
    try:
        return encode(text).ids
    except Exception as error:  # not a panic
        return type(error).__name__


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_merges_are_never_left_out(kind: str) -> None:
    spec = KINDS[kind]()
    if "merges" not in spec["model"]:
        return
    without = LibraryBackend.of(encoded(spec)).encode("the cat the cat the", add_special_tokens=True).ids
    spec["model"]["dropout"] = 0.9
    backend = LibraryBackend.of(encoded(spec))
    assert all(backend.encode("the cat the cat the", add_special_tokens=True).ids == without for _ in range(20))


def test_a_text_that_would_grow_too_much_is_refused() -> None:
    doubled = {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 6}
    backend = LibraryBackend.of(encoded(changed(normalizer=doubled, pre_tokenizer=None)))
    assert len(backend.encode("a" * 10, add_special_tokens=False).ids) == 640
    with pytest.raises(PromptTooLongError, match=r"has 4500000 characters, .* can make 64: shorten it to 4194304"):
        backend.encode("b" * 4_500_000, add_special_tokens=False)


def test_a_map_of_characters_says_its_growth() -> None:
    """A trie in which ``A`` becomes ``bbb``, and all else stays: of units as Darts-clone has them."""
    units = [0] * 1024
    units[0] = 256 << 10  # its children begin at 256
    place = 256 ^ ord("A")
    leaf = 512
    units[place] = ord("A") | 1 << 8 | (place ^ leaf) << 10
    units[leaf] = 0
    data = (4 * len(units)).to_bytes(4, "little") + b"".join(unit.to_bytes(4, "little") for unit in units) + b"bbb\0"
    step = charsmap(data)
    assert charsmap_growth(step["precompiled_charsmap"]) == 3
    assert check_tokenizer(changed(normalizer=step, pre_tokenizer=None)).growth == 3
    normalizer = LIBRARY.normalizers.Precompiled(data)
    assert normalizer.normalize_str("xAx") == "xbbbx"


def test_what_a_panic_prints_is_kept_off_the_standard_error(capfd: Any) -> None:
    panics = LIBRARY.Tokenizer.from_buffer(encoded(changed(normalizer=replace({"String": ""}, "x"))))

    def another_thread_and_panic() -> None:
        with without_panic_text():
            os.write(2, b"another thread's line\n")
            panics.encode("abc")

    with pytest.raises(BaseException, match="index out of bounds"):
        another_thread_and_panic()
    assert capfd.readouterr().err == "another thread's line\n"
    with without_panic_text():
        os.write(2, b"a line\n")
    os.write(2, b"and one\n")
    assert capfd.readouterr().err == "a line\nand one\n"
