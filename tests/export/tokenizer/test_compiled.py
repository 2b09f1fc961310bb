"""The compiled form of a tokenizer gives what the library gives, or there is none; the library is the oracle."""

import hashlib
import json
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.errors import UsageError
from edgegen.model.kernels import kernel_library
from edgegen.tokenizer import COMPILED, StreamingDetokenizer, Tokenizer
from edgegen.tokenizer.compiled_format import ACCEPTS, DEAD, added_tokens
from edgegen_export.tokenizer.character_classes import CODE_POINTS, digits, folded, members
from edgegen_export.tokenizer.compiled import UncompiledError, compiled, compiled_form
from edgegen_export.tokenizer.components import Component, byte_level, chain, isolated, template
from edgegen_export.tokenizer.opened_tokenizer import OpenedTokenizer
from edgegen_export.tokenizer.pre_tokenizers import NFC, PRE_TOKENIZERS
from edgegen_export.tokenizer.split_automaton import Alphabet, moves_of
from edgegen_export.tokenizer.split_pattern import SplitPattern, UnsupportedPatternError
from tests.export.tokenizer.material import golden_cases
from tests.kernels.stock import needs_kernels
from tests.learnt_tokenizer import SAMPLE, SPECIAL, byte_level_tokenizer

LIBRARY = kernel_library()

ALPHABETS = (
    "abcdeLTSVM'’ſK  \t\r\n.,!?-_/0123456789½²Ⅷ٣४",
    "e\u0301\u0323\u0302\u1100\u1161\u11a8\u0e33\u05b0\u094d\u00c5\u212b\u0344\ufb1d \n",
    "\x00\x01\x1f\x7f\x85\xa0\u2028\u3000\ufeff\u200b\u200d\ufffd\ufffe\U0010ffff\u0378\U000e0001",
    "中文字，。かなカナ한글ไทยहिनमस्तेعربيעברית😀👩🏽🇩🇪🏳️",
)
REFUSED_WORDS = {"afmoe", "deepseek-llm"}
"""Of the pre-tokenizers of GGUF files: they look back, or for the end of a line."""

PIECES = [*SPECIAL, "<|end", "'LL", "'ſ", " '", "ll", "    ", "\r\n\r\n", "a" * 70, "ab" * 200, "9" * 50, "=" * 100]
TEXTS = st.lists(
    st.one_of(
        st.text(max_size=12),
        *(st.text(alphabet, max_size=12) for alphabet in ALPHABETS),
        st.sampled_from(PIECES),
        st.builds(str.__mul__, st.sampled_from("a \n9😀é"), st.integers(0, 300)),
    ),
    max_size=8,
).map("".join)


def opened(content: Mapping[str, Any] | bytes) -> OpenedTokenizer:
    return OpenedTokenizer.of(content if isinstance(content, bytes) else json.dumps(content).encode())


def both(content: Mapping[str, Any] | bytes, folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizer by its compiled form, and by the library."""
    assert LIBRARY is not None
    tokenizer = opened(content)
    source, made = folder / "tokenizer.json", folder / COMPILED
    source.write_bytes(tokenizer.data)
    made.write_bytes(compiled(tokenizer))
    ours = Tokenizer.from_compiled(made, source, hashlib.sha256(tokenizer.data).hexdigest(), LIBRARY)
    assert ours is not None
    return ours, Tokenizer.from_file(source)


def words(name: str) -> Component | None:
    return PRE_TOKENIZERS[name].component


TEMPLATE = template(("<|end|>", 0), ("<tool>", 2))
KINDS: dict[str, dict[str, Any]] = {
    "GPT-2": {"post_processor": {**byte_level(), "trim_offsets": True, "add_prefix_space": True}},
    "Llama 3": {"pre_tokenizer": words("llama3"), "post_processor": TEMPLATE, "ignore_merges": True},
    "Qwen 2": {
        "pre_tokenizer": words("qwen2"),
        "normalizer": NFC,
        "post_processor": {"type": "Sequence", "processors": [byte_level(), TEMPLATE]},
    },
    "Qwen 3.5": {"pre_tokenizer": words("qwen35"), "normalizer": {"type": "Sequence", "normalizers": [NFC]}},
    "SmolLM": {"pre_tokenizer": chain("pretokenizers", [{"type": "Digits", "individual_digits": True}, byte_level()])},
    "GPT-4o": {"pre_tokenizer": words("gpt-4o")},
    "DeepSeek-V3": {"pre_tokenizer": words("deepseek-v3")},
    "Phi-4": {
        "pre_tokenizer": words("llama3"),
        "special": {
            "<|end|>": {"lstrip": True},
            "<|end|>s": {"rstrip": True},
            "<tool>": {"lstrip": True, "rstrip": True, "normalized": True, "special": False},
            "é好": {},
        },
    },
    "no words": {"pre_tokenizer": byte_level(use_regex=False), "special": {}},
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    return both(byte_level_tokenizer(**KINDS[request.param]), tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module", params=["gpt2", "qwen2.5", "llama3"])
def real(
    request: pytest.FixtureRequest, test_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Tokenizer]:
    data = (test_data / "tokenizers" / request.param / "tokenizer.json").read_bytes()
    return both(data, tmp_path_factory.mktemp("compiled"))


def check(pair: tuple[Tokenizer, Tokenizer], text: str) -> None:
    ours, theirs = pair
    ids = theirs.encode(text)
    assert ours.encode(text) == ids
    assert ours.encode_with_spans(text) == theirs.encode_with_spans(text)
    for skip in (False, True):
        assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)


@needs_kernels
class TestCompiledTokenizer:
    @settings(deadline=None)
    @given(text=TEXTS)
    def test_every_text_has_the_librarys_ids_and_spans(self, pair: tuple[Tokenizer, Tokenizer], text: str) -> None:
        check(pair, text)

    def test_every_character_has_the_librarys_ids(self, pair: tuple[Tokenizer, Tokenizer]) -> None:
        ours, theirs = pair
        every = [*range(0xD800), *range(0xE000, 0x20000, 7), *range(0x20000, CODE_POINTS, 1009)]
        for part in range(0, len(every), 4096):
            text = "x".join(map(chr, every[part : part + 4096]))
            assert ours.encode(text) == theirs.encode(text)

    @settings(deadline=None)
    @given(ids=st.lists(st.integers(-3, 720), max_size=20), skip=st.booleans())
    def test_ids_have_the_librarys_text(self, pair: tuple[Tokenizer, Tokenizer], ids: list[int], skip: bool) -> None:
        ours, theirs = pair
        known = [i for i in ids if i >= 0]
        assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(known, skip_special_tokens=skip)
        stream = StreamingDetokenizer(ours, skip_special_tokens=skip)
        assert "".join(map(stream.push, known)) + stream.finish() == theirs.decode(known, skip_special_tokens=skip)

    def test_tokens_have_the_librarys_names(self, pair: tuple[Tokenizer, Tokenizer]) -> None:
        check_tokens(*pair)

    @settings(deadline=None)
    @given(text=TEXTS, kept=st.sets(st.sampled_from([*SPECIAL])))
    def test_control_tokens_written_otherwise_are_the_librarys(
        self, pair: tuple[Tokenizer, Tokenizer], text: str, kept: set[str]
    ) -> None:
        ours, theirs = pair
        spelling = {i: f"\U0010ffff{i}\U0010ffff" for i, t in theirs.added_tokens.items() if t.content not in kept}
        written = "".join([*spelling.values(), text, *spelling.values()])
        assert ours.respelled(spelling).encode(written) == theirs.respelled(spelling).encode(written)

    def test_half_a_character_is_refused_as_the_library_refuses_it(self, pair: tuple[Tokenizer, Tokenizer]) -> None:
        said: list[str] = []
        for tokenizer in pair:
            with pytest.raises(UsageError, match="cannot spell the prompt") as error:
                tokenizer.encode("a\ud800")
            said.append(str(error.value))
        assert said[0] == said[1]


@needs_kernels
class TestRealTokenizers:
    @settings(deadline=None)
    @given(text=TEXTS)
    def test_every_text_has_the_librarys_ids_and_spans(self, real: tuple[Tokenizer, Tokenizer], text: str) -> None:
        check(real, text)

    @pytest.mark.parametrize(
        "corpus", ["tinyshakespeare.txt", "cs336/german.txt", "cs336/corpus.en", "wikitext2/valid.detok.txt"]
    )
    def test_a_corpus_has_the_librarys_ids(
        self, real: tuple[Tokenizer, Tokenizer], corpus: str, test_data: Path
    ) -> None:
        text = (test_data / "corpora" / corpus).read_text(encoding="utf-8")[:200_000]
        ours, theirs = real
        assert ours.encode(text) == theirs.encode(text)

    def test_hard_texts_have_llama_cpps_ids(self, real: tuple[Tokenizer, Tokenizer], test_data: Path) -> None:
        ours, _ = real
        name = {50257: "gpt-2", 151_665: "qwen2", 128_256: "llama-bpe"}[ours.vocab_size]
        for text, ids in golden_cases(test_data, name):
            assert ours.encode(text, add_special_tokens=False) == ids

    def test_tokens_have_the_librarys_names(self, real: tuple[Tokenizer, Tokenizer]) -> None:
        check_tokens(*real)

    def test_a_very_long_word_is_merged_as_the_library_merges_it(self, real: tuple[Tokenizer, Tokenizer]) -> None:
        letters = random.Random(5).choices("etaoinshr", k=50_000)
        check(real, "".join(letters))


def check_tokens(ours: Tokenizer, theirs: Tokenizer) -> None:
    assert ours.vocab_size == theirs.vocab_size
    assert ours.first_difference(theirs) is None
    assert ours.least_tokens("x" * 1000) == theirs.least_tokens("x" * 1000)
    assert ours.frame([1, 2]) == theirs.frame([1, 2])
    flags = ("content", "special", "single_word", "lstrip", "rstrip", "normalized")
    added = [{i: [getattr(t, flag) for flag in flags] for i, t in one.added_tokens.items()} for one in (ours, theirs)]
    assert added[0] == added[1]
    for token_id in range(theirs.vocab_size + 2):
        token = theirs.visible_token(token_id, skip_special_tokens=False)
        assert ours.token_bytes(token_id) == theirs.token_bytes(token_id)
        if token is not None:
            assert ours.token_to_id(token) == token_id
    for unknown in ("no such token", "", "\ud800", "Ġthe cat", "\x00"):
        assert ours.token_to_id(unknown) is None


@needs_kernels
class TestOtherFiles:
    def test_the_form_of_another_file_is_left_alone(self, tmp_path: Path) -> None:
        assert LIBRARY is not None
        both(byte_level_tokenizer(), tmp_path)
        source = tmp_path / "tokenizer.json"
        right = hashlib.sha256(source.read_bytes()).hexdigest()
        for sha256, opens in ((right, True), ("0" * 64, False)):
            found = Tokenizer.from_compiled(tmp_path / COMPILED, source, sha256, LIBRARY)
            assert (found is not None) == opens

    def test_added_tokens_are_told_without_the_vocabulary(self, tmp_path: Path) -> None:
        content = byte_level_tokenizer()
        both(content, tmp_path)
        right = hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest()
        assert added_tokens(tmp_path / COMPILED, right) == content["added_tokens"]
        assert added_tokens(tmp_path / COMPILED, "0" * 64) is None
        assert added_tokens(tmp_path / "none", right) is None
        assert added_tokens(tmp_path / "tokenizer.json", right) is None

    def test_a_missing_or_empty_file_and_other_code_are_none(self, tmp_path: Path) -> None:
        assert LIBRARY is not None
        both(byte_level_tokenizer(), tmp_path)
        source = tmp_path / "tokenizer.json"
        right, empty = hashlib.sha256(source.read_bytes()).hexdigest(), tmp_path / "empty"
        empty.touch()
        for path, library in ((tmp_path / "none", LIBRARY), (empty, LIBRARY), (tmp_path / COMPILED, source)):
            assert Tokenizer.from_compiled(path, source, right, library) is None

    def test_a_damaged_file_is_none_or_gives_other_ids(self, tmp_path: Path) -> None:
        """Compiled with sanitizers, tests/kernels/test_encoder.py asks the same."""
        assert LIBRARY is not None
        both(byte_level_tokenizer(pre_tokenizer=words("qwen2"), ignore_merges=True), tmp_path)
        source, damaged = tmp_path / "tokenizer.json", tmp_path / "damaged"
        whole, right = (tmp_path / COMPILED).read_bytes(), hashlib.sha256(source.read_bytes()).hexdigest()
        choose, opened, refused = random.Random(3), 0, 0
        for attempt in range(200):
            data = bytearray(whole)
            if attempt % 8 == 0:
                del data[choose.randrange(len(data)) :]
            for _ in range(choose.choice((1, 3, 40))):
                if data:  # the header and the numbers after it more often
                    data[choose.randrange(choose.choice((min(160, len(data)), len(data))))] = choose.randrange(256)
            damaged.write_bytes(data)
            tokenizer = Tokenizer.from_compiled(damaged, source, right, LIBRARY)
            refused += tokenizer is None
            if tokenizer is not None:
                opened += 1
                ids = tokenizer.encode(SAMPLE)
                tokenizer.decode(ids)
                tokenizer.token_to_id("Ġthe")
        assert opened > 30
        assert refused > 30

    @pytest.mark.parametrize(
        ("right", "wrong"),
        [('"vocab_size":4', '"vocab_size":"'), ('"longest":', '"longesT":'), ('":"<end>"', '":12345  ')],
    )
    def test_damaged_details_are_none(self, right: str, wrong: str, tmp_path: Path) -> None:
        assert LIBRARY is not None
        both(byte_level_tokenizer(special={"<end>": {}}), tmp_path)
        source, damaged = tmp_path / "tokenizer.json", tmp_path / "damaged"
        sha256, whole = hashlib.sha256(source.read_bytes()).hexdigest(), (tmp_path / COMPILED).read_bytes()
        assert whole.count(right.encode()) == 1
        damaged.write_bytes(whole.replace(right.encode(), wrong.encode()))
        assert Tokenizer.from_compiled(damaged, source, sha256, LIBRARY) is None

    def test_every_byte_of_the_header_may_be_wrong(self, tmp_path: Path) -> None:
        assert LIBRARY is not None
        both(byte_level_tokenizer(), tmp_path)
        source, damaged = tmp_path / "tokenizer.json", tmp_path / "damaged"
        whole, right = (tmp_path / COMPILED).read_bytes(), hashlib.sha256(source.read_bytes()).hexdigest()
        for place in range(160):
            data = bytearray(whole)
            data[place] ^= 1 << place % 8
            damaged.write_bytes(data)
            tokenizer = Tokenizer.from_compiled(damaged, source, right, LIBRARY)
            if tokenizer is not None:
                tokenizer.decode(tokenizer.encode(SAMPLE))


class TestWhatIsCompiled:
    @pytest.mark.parametrize("name", sorted({known: name for name, known in PRE_TOKENIZERS.items()}.values()))
    def test_the_words_of_ggufs_are(self, name: str) -> None:
        try:
            patterns = [SplitPattern.parse(split) for split in PRE_TOKENIZERS[name].splits]
        except UnsupportedPatternError:
            assert name in REFUSED_WORDS
            return
        alphabet = Alphabet.of(patterns)
        assert all(len(moves_of(p, m, alphabet.size)) for p, m in zip(patterns, alphabet.member, strict=True))
        assert name not in REFUSED_WORDS

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"normalizer": {"type": "Lowercase"}}, "the normalizer Lowercase"),
            ({"pre_tokenizer": byte_level(add_prefix_space=True)}, "adds a space"),
            ({"pre_tokenizer": {"type": "WhitespaceSplit"}}, "ends with WhitespaceSplit"),
            ({"pre_tokenizer": [{"type": "Punctuation", "behavior": "Isolated"}]}, "the pre-tokenizer Punctuation"),
            ({"pre_tokenizer": [{**isolated("a"), "invert": True}]}, "the pre-tokenizer Split"),
            ({"pre_tokenizer": [isolated("a|(?<=b)c")]}, "in a regular expression"),
            ({"pre_tokenizer": [isolated("a++b")]}, "possessive"),
            ({"pre_tokenizer": [isolated("a*")]}, "matches nothing"),
            ({"pre_tokenizer": [isolated("(?i:ss)")]}, "in either case"),
            ({"pre_tokenizer": [isolated("a(?!bc)")]}, "looking ahead"),
            ({"special": {"<a>": {"single_word": True}}}, "a word by itself only"),
            ({"special": {"<a> ": {}}}, "white space at its ends"),
            ({"dropout": 0.5}, "the model BPE dropout"),
            ({"end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
        ],
    )
    def test_others_are_refused_by_name(self, change: Mapping[str, Any], said: str) -> None:
        if isinstance(steps := change.get("pre_tokenizer"), list):
            whole = chain("pretokenizers", [*cast(list[Component], steps), byte_level(use_regex=False)])
            change = {**change, "pre_tokenizer": whole}
        with pytest.raises(UncompiledError, match=said):
            compiled(opened(byte_level_tokenizer(**change)))

    def test_a_tokenizer_has_it_or_none_is_written(self) -> None:
        assert compiled_form(opened(byte_level_tokenizer())).keys() == {COMPILED}
        assert compiled_form(opened(byte_level_tokenizer(normalizer={"type": "NFKC"}))) == {}

    @pytest.mark.parametrize("name", KINDS)
    def test_each_kind_has_it(self, name: str) -> None:
        assert compiled_form(opened(byte_level_tokenizer(**KINDS[name]))).keys() == {COMPILED}

    @pytest.mark.parametrize("name", ["gpt2", "qwen2.5", "llama3"])
    def test_real_ones_have_it(self, name: str, test_data: Path) -> None:
        data = (test_data / "tokenizers" / name / "tokenizer.json").read_bytes()
        assert compiled_form(opened(data)).keys() == {COMPILED}

    def test_a_text_that_falls_back_needs_no_folder_any_more(self, tmp_path: Path) -> None:
        folder = tmp_path / "bundle"
        folder.mkdir()
        content = byte_level_tokenizer(**KINDS["Qwen 2"])
        ours, theirs = both(content, folder)
        for path in folder.iterdir():
            path.rename(tmp_path / path.name)  # Windows moves no folder with an open file, nor removes one
        (folder / "tokenizer.json").write_text("another")
        assert ours.encode("a\u0301") == theirs.encode("a\u0301")

    def test_a_text_that_falls_back_works_in_another_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        ours, theirs = both(byte_level_tokenizer(**KINDS["Qwen 2"]), Path())
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert ours.encode("a\u0301") == theirs.encode("a\u0301")

    def test_a_vocabulary_without_some_byte_is_refused(self) -> None:
        content = byte_level_tokenizer(special={})
        del content["model"]["vocab"]["z"]
        content["model"]["merges"] = [m for m in content["model"]["merges"] if "z" not in "".join(m)]
        with pytest.raises(UncompiledError, match="without the letter 'z'"):
            compiled(opened(content))


@pytest.mark.parametrize(
    "regex",
    [
        "ab|abc|a",  # the first that matches, not the longest
        "(?:a|ab)(?:c|bcd)?",
        "(?:ab?)+b?",
        "a{2}b{1,3}|b{2,}|c{0,2}d",
        "[a-c\\]\\-]+(?=[ab])|[^ab]",
        "(?:a(?: b)*)+",
        "\\p{Lu}\\p{Ll}*|[\\p{P}$+<=>^~|`]+|\\d+",
        "\\s{2}(?!\\S)|\\s",
        "(?i:'s|'re|k)|\\w",
        "\\u0041|\\x61b",
    ],
)
@settings(deadline=None)
@given(text=st.text("abcdA] -'sSſrRkK\u212a $<9\n\u00e9É", max_size=40))
def test_an_expression_matches_as_the_librarys_does(regex: str, text: str) -> None:
    library = cast(Any, tokenizers)
    splitter = library.pre_tokenizers.Split(library.Regex(regex), "isolated")
    assert pieces_of(regex, text) == [piece for piece, _ in splitter.pre_tokenize_str(text)]


def pieces_of(regex: str, text: str) -> list[str]:
    """By the automaton's moves: matches, and what lies between them."""
    alphabet, moves = automaton(regex)
    pieces, start, at = list[str](), 0, 0
    while at < len(text):
        end, state = at, 0
        for place in range(at, len(text) + 1):
            character = int(alphabet.class_of[ord(text[place])]) if place < len(text) else alphabet.size
            move = int(moves[state, character])
            end, state = place if move & ACCEPTS else end, move & DEAD
            if state == DEAD:
                break
        if end > at:
            pieces += [text[start:at], text[at:end]]
            start = end
        at = max(end, at + 1)
    return [piece for piece in [*pieces, text[start:]] if piece]


@cache
def automaton(regex: str) -> tuple[Alphabet, NDArray[np.uint16]]:
    pattern = SplitPattern.parse(regex)
    alphabet = Alphabet.of([pattern])
    return alphabet, moves_of(pattern, alphabet.member[0], alphabet.size)


def test_a_class_has_the_librarys_characters() -> None:
    """Every character is asked of, where the exporter asks some of those without properties."""
    library = cast(Any, tokenizers)
    every = "".join(chr(n) for n in range(CODE_POINTS) if not 0xD800 <= n < 0xE000)
    rest = library.pre_tokenizers.Split(library.Regex("[\\p{N}\\s]+"), "removed").pre_tokenize_str(every)
    others = {character for piece, _ in rest for character in piece}
    assert {*map(chr, np.flatnonzero(members("\\p{N}") | members("\\s")))} == {*every} - others


def test_letters_of_either_case_are_the_librarys() -> None:
    library = cast(Any, tokenizers)
    every = "".join(chr(n) for n in range(0x20000) if not 0xD800 <= n < 0xE000)
    for letter in "ks":
        rest = library.pre_tokenizers.Split(library.Regex(f"(?i:{letter})"), "removed").pre_tokenize_str(every)
        assert len(every) - sum(len(piece) for piece, _ in rest) == folded(letter).sum() == 3


def test_digits_are_the_librarys() -> None:
    library = cast(Any, tokenizers)
    every = "".join(f"{chr(n)}x" for n in range(0x20000) if not 0xD800 <= n < 0xE000)
    split = library.pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(every)
    found = {piece for piece, _ in split if len(piece) == 1 and piece != "x"}
    assert {*map(chr, np.flatnonzero(digits()))} == found


@needs_kernels
class TestEncodeAsText:
    """Control tokens that a client's text spells are text: by the compiled form, and by the library."""

    TEXT = "a<|end|>b \u0301<|end"

    @pytest.mark.parametrize("name", ["GPT-2", "Qwen 2", "Phi-4"])
    def test_no_control_token_is_in_it(self, name: str, tmp_path: Path) -> None:
        for tokenizer in both(byte_level_tokenizer(**KINDS[name]), tmp_path):
            ids = tokenizer.encode_as_text(self.TEXT)
            assert not {i for i, token in tokenizer.added_tokens.items() if token.content == "<|end|>"} & {*ids}
            assert tokenizer.decode(ids, skip_special_tokens=True) == tokenizer.decode(
                tokenizer.encode(self.TEXT, add_special_tokens=False), skip_special_tokens=False
            )

    def test_tokens_that_are_named_are_text_too(self, tmp_path: Path) -> None:
        content = byte_level_tokenizer(special={"<end>": {"special": False}})
        for tokenizer in both(content, tmp_path):
            (token_id,) = tokenizer.added_tokens
            assert token_id in tokenizer.encode_as_text("a<end>")
            assert token_id not in tokenizer.encode_as_text("a<end>", {"<end>"})

    def test_other_texts_have_the_usual_ids(self, tmp_path: Path) -> None:
        for tokenizer in both(byte_level_tokenizer(), tmp_path):
            assert tokenizer.encode_as_text("a <b>") == tokenizer.encode("a <b>", add_special_tokens=False)
