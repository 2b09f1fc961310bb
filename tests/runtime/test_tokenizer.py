"""Tokenizer and StreamingDetokenizer: on small vocabularies of every kind, and on real ones where at hand."""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import BundleError, PromptTooLongError
from edgegen.tokenizer import StreamingDetokenizer, Tokenizer
from tests.byte_level import LETTER_OF_BYTE

TEXTS = (
    "the cat",
    " the  cat\n\nsat",
    "naïve café, 你好, 👩‍👩‍👧 and done",
    "e\u0301 \ufffd \t <0x41>",
    "",
)


MANY = st.one_of(
    st.text(max_size=60),
    st.text("e\u0301\u0323\u0302\u1100\u1161\u11a8 \n", max_size=60),  # which compose
    st.builds(str.__mul__, st.text(max_size=3) | st.sampled_from(["=", " ", "\u00c3\u00c2", "-"]), st.integers(0, 400)),
)
"""Texts of which one token may stand for much."""


def special(token_id: int, content: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": content, "special": True, **flags}


def tokenizer_json(
    model: Mapping[str, Any],
    *,
    decoder: Mapping[str, Any] | None,
    specials: tuple[tuple[int, str], ...] = (),
    normalizer: Mapping[str, Any] | None = None,
    pre_tokenizer: Mapping[str, Any] | None = None,
    post_processor: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 64},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "x",
        },
        "added_tokens": [special(i, content) for i, content in specials],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }


def bpe(tokens: list[str], merges: list[str], *, byte_fallback: bool = False) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>" if byte_fallback else None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": merges,
    }


BYTE_LEVEL: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
TO_SPACE: dict[str, Any] = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}


def byte_level(decoder: Mapping[str, Any] = BYTE_LEVEL) -> dict[str, Any]:
    """GPT-2's kind: 256 letters for the bytes, some merges, two special tokens."""
    merges = ["t h", "th e", "Ġ the", "ä ½", "Ġ ð"]
    tokens = ["<|end|>", *LETTER_OF_BYTE.values(), *(m.replace(" ", "") for m in merges), "<|é▁|>"]
    specials = ((0, "<|end|>"), (len(tokens) - 1, "<|é▁|>"))
    return tokenizer_json(bpe(tokens, merges), decoder=decoder, specials=specials, pre_tokenizer=BYTE_LEVEL)


def byte_fallback(*, first_space_dropped: bool = True) -> dict[str, Any]:
    """Llama 2's kind, or Gemma's, which keeps the first space: ``<0xNN>`` where no letter is known."""
    letters = [*"abcdefghijklmnopqrstuvwxyz,.<>", "▁", "é", "\ufffd"]
    merges = ["t h", "th e", "▁ the", "▁ ▁"]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_, *letters, *(m.replace(" ", "") for m in merges)]
    chain: list[Mapping[str, Any]] = [TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]
    normalizers: list[Mapping[str, Any]] = [
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]
    if first_space_dropped:
        chain.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        normalizers.insert(0, {"type": "Prepend", "prepend": "▁"})
    begin: dict[str, Any] = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    return tokenizer_json(
        bpe(tokens, merges, byte_fallback=True),
        decoder={"type": "Sequence", "decoders": chain},
        specials=((0, "<unk>"), (1, "<s>"), (2, "</s>")),
        normalizer={"type": "Sequence", "normalizers": normalizers},
        post_processor={
            "type": "TemplateProcessing",
            "single": [begin, text],
            "pair": [begin, text, text],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
    )


def metaspace() -> dict[str, Any]:
    spec: dict[str, Any] = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always",
        "split": True,
    }
    tokens = ["<s>", *"abcdehst,", "▁", "▁the", "th"]
    return tokenizer_json(bpe(tokens, []), decoder=spec, specials=((0, "<s>"),), pre_tokenizer=spec)


def word_piece() -> dict[str, Any]:
    words = ["[UNK]", "the", "cat", "##s", "##at", "s", ",", "n't"]
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {word: i for i, word in enumerate(words)},
    }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return tokenizer_json(model, decoder=decoder, specials=((0, "[UNK]"),), pre_tokenizer={"type": "Whitespace"})


def suffixed() -> dict[str, Any]:
    """The first GPT's kind: a suffix ends a word."""
    return tokenizer_json(
        bpe(["a", "b", "a</w>", "b</w>", "the</w>"], []), decoder={"type": "BPEDecoder", "suffix": "</w>"}
    )


def without_decoder() -> dict[str, Any]:
    return tokenizer_json(bpe(["a", "b", "the"], []), decoder=None)


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "byte-level": byte_level,
    "byte fallback": byte_fallback,
    "byte fallback, first space kept": lambda: byte_fallback(first_space_dropped=False),
    "metaspace": metaspace,
    "word pieces": word_piece,
    "suffixed": suffixed,
    "without decoder": without_decoder,
}
REAL = ("gpt2", "llama2", "llama3", "mistral/hf-v1", "qwen2.5", "phi-3")


def load(spec: Mapping[str, Any], folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return Tokenizer.from_file(path)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load(KINDS[request.param](), tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("EDGEGEN_TEST_DATA")
    if folder is None:
        pytest.skip("EDGEGEN_TEST_DATA does not say where the real tokenizers are")
    return Path(folder)


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest, data: Path) -> Tokenizer:
    return Tokenizer.from_file(data / "tokenizers" / request.param / "tokenizer.json")


def stream(tokenizer: Tokenizer, ids: list[int], *, skip: bool, prompt: list[int] | None = None) -> str:
    detokenizer = StreamingDetokenizer(tokenizer, skip_special_tokens=skip, prompt_ids=prompt or [])
    text = "".join([detokenizer.push(i) for i in ids]) + detokenizer.finish()
    assert detokenizer.text == text
    return text


def check_stream(tokenizer: Tokenizer, prompt: list[int], ids: list[int], *, skip: bool) -> None:
    before = tokenizer.decode(prompt, skip_special_tokens=skip)
    whole = tokenizer.decode([*prompt, *ids], skip_special_tokens=skip)
    assert stream(tokenizer, ids, skip=skip, prompt=prompt) == whole[len(before) :]


def some_ids(draw: st.DataObject, tokenizer: Tokenizer) -> list[int]:
    """Ids with a taste for bytes, the unknown and what lies beyond the vocabulary."""
    size = tokenizer.vocab_size
    return draw.draw(st.lists(st.integers(0, min(size, 300)) | st.integers(0, size + 2), max_size=24))


class TestPieces:
    """The entry of each token in the answer of ``/tokenize``."""

    @pytest.mark.parametrize("text", TEXTS)
    def test_join_to_the_text(self, kind: Tokenizer, text: str) -> None:
        ids = kind.encode(text, add_special_tokens=False)
        pieces = kind.pieces(ids)
        assert len(pieces) == len(ids)
        joined, whole = b"".join(pieces).decode("utf-8", "replace"), kind.decode(ids, skip_special_tokens=False)
        assert joined in (whole, f" {whole}")

    @pytest.mark.parametrize("name", ["byte-level", "byte fallback", "metaspace"])
    def test_keep_the_space_of_each_token(self, name: str, tmp_path: Path) -> None:
        tokenizer = load(KINDS[name](), tmp_path)
        ids = tokenizer.encode("the cat the cat", add_special_tokens=False)
        joined = [b"".join(tokenizer.pieces(part)) for part in (ids, ids[: len(ids) // 2], ids[len(ids) // 2 :])]
        assert joined[0] == joined[1] + joined[2]
        assert joined[0].decode().strip() == "the cat the cat"

    def test_of_real_vocabularies_join_to_the_text(self, real: Tokenizer) -> None:
        text = "Once upon  a time, naïve 你好 👩‍👩‍👧!"
        ids = real.encode(text, add_special_tokens=False)
        assert b"".join(real.pieces(ids)).decode().removeprefix(" ") == text
        assert b"".join(real.pieces([one])[0] for one in ids).decode().removeprefix(" ") == text


class TestTokenizer:
    def test_encodes_and_decodes(self, tmp_path: Path) -> None:
        tokenizer = load(byte_fallback(), tmp_path)
        ids = tokenizer.encode("the é 好")
        assert ids[0] == tokenizer.token_to_id("<s>") == 1
        assert tokenizer.encode("the é 好", add_special_tokens=False) == ids[1:]
        assert tokenizer.decode(ids) == "the é 好"
        assert tokenizer.decode(ids, skip_special_tokens=False) == "<s> the é 好"

    @settings(deadline=None)
    @given(text=MANY)
    def test_a_text_has_no_fewer_tokens_than_are_said(self, kind: Tokenizer, text: str) -> None:
        assert kind.least_tokens(text) <= len(kind.encode(text, add_special_tokens=False))

    def test_a_long_text_is_refused_before_it_is_tokenized(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tokenizer = load(byte_level(), tmp_path)
        longest = len("<|end|>")
        tokenizer.refuse_longer("z" * 700_000, 100_000)
        tokenizer.refuse_longer(" " * 1_000_000, 10)
        monkeypatch.setattr(Tokenizer, "_encoding", None)
        least = -(-700_001 // longest)
        said = f"has 700001 characters, at least {least} tokens, but this model's context is 100000: shorten"
        with pytest.raises(PromptTooLongError, match=said):
            tokenizer.refuse_longer("z" * 700_001, 100_000)

    @pytest.mark.parametrize("text", TEXTS)
    @pytest.mark.parametrize("name", ["byte-level", "byte fallback", "byte fallback, first space kept"])
    def test_every_text_survives(self, name: str, text: str, tmp_path: Path) -> None:
        tokenizer = load(KINDS[name](), tmp_path)
        assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_the_files_padding_and_truncation_are_off(self, tmp_path: Path) -> None:
        tokenizer = load(byte_level(), tmp_path)
        assert len(tokenizer.encode("z" * 10)) == 10

    def test_knows_its_tokens(self, tmp_path: Path) -> None:
        tokenizer = load(byte_level(), tmp_path)
        assert tokenizer.vocab_size == 1 + 256 + 5 + 1
        assert tokenizer.token_to_id("<|end|>") == 0
        assert tokenizer.token_to_id("no such token") is None

    def test_ids_beyond_the_vocabulary_have_no_text(self, kind: Tokenizer) -> None:
        beyond = [kind.vocab_size, kind.vocab_size + 1000]
        assert kind.decode(beyond) == ""
        assert stream(kind, beyond, skip=True) == ""

    def test_a_broken_character_costs_its_neighbours_nothing(self, tmp_path: Path) -> None:
        tokenizer = load(byte_fallback(), tmp_path)
        ids = tokenizer.encode("你好")
        assert tokenizer.decode(ids[:-1]) == "你\ufffd"

    def test_a_missing_file_is_a_bundle_error(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match=r"cannot read the tokenizer .*: No such file"):
            Tokenizer.from_file(tmp_path / "tokenizer.json")

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"version": "1.0"}', "\x00\xff"])
    def test_a_malformed_file_is_a_bundle_error(self, content: str, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        path.write_text(content, encoding="utf-8")
        with pytest.raises(BundleError, match=r"is not a readable tokenizer\.json"):
            Tokenizer.from_file(path)


class TestStreamingDetokenizer:
    @settings(deadline=None)
    @given(draw=st.data(), skip=st.booleans())
    def test_gives_what_decode_gives(self, kind: Tokenizer, draw: st.DataObject, skip: bool) -> None:
        check_stream(kind, [], some_ids(draw, kind), skip=skip)

    @settings(deadline=None)
    @given(draw=st.data(), skip=st.booleans())
    def test_continues_a_prompt(self, kind: Tokenizer, draw: st.DataObject, skip: bool) -> None:
        check_stream(kind, some_ids(draw, kind), some_ids(draw, kind), skip=skip)

    @settings(deadline=None)
    @given(draw=st.data(), at=st.integers(0, 6))
    def test_a_fork_goes_on_as_if_it_were_alone(self, kind: Tokenizer, draw: st.DataObject, at: int) -> None:
        ids, others = some_ids(draw, kind), some_ids(draw, kind)
        one = StreamingDetokenizer(kind)
        begun = "".join([one.push(i) for i in ids[:at]])
        other = one.fork()
        for branch, rest in ((one, others), (other, ids[at:])):
            text = begun + "".join([branch.push(i) for i in rest]) + branch.finish()
            assert text == branch.text == kind.decode(ids[:at] + rest)

    @settings(deadline=None)
    @given(text=st.text(max_size=30))
    def test_never_shows_half_a_character(self, kind: Tokenizer, text: str) -> None:
        ids = kind.encode(text)
        if (whole := kind.decode(ids)).count("\ufffd") == 0:
            detokenizer = StreamingDetokenizer(kind)
            pieces = [detokenizer.push(i) for i in ids]
            assert "\ufffd" not in "".join(pieces)
            assert detokenizer.finish() == ""
            assert detokenizer.text == whole

    def test_waits_for_a_character_and_no_longer(self, tmp_path: Path) -> None:
        tokenizer = load(byte_fallback(), tmp_path)
        detokenizer = StreamingDetokenizer(tokenizer, prompt_ids=[1])
        ids = [3 + byte for byte in "\n好\n".encode()]
        assert [detokenizer.push(i) for i in ids] == ["\n", "", "", "好", "\n"]

    def test_a_first_word_keeps_its_space_behind_a_prompt(self, tmp_path: Path) -> None:
        tokenizer = load(byte_fallback(), tmp_path)
        the = tokenizer.token_to_id("▁the")
        assert the is not None
        assert stream(tokenizer, [the], skip=True) == "the"
        assert stream(tokenizer, [the], skip=True, prompt=[1]) == "the"  # a skipped token is no text
        assert stream(tokenizer, [the], skip=True, prompt=[1, the]) == " the"

    def test_an_unfinished_character_ends_as_decode_ends_it(self, tmp_path: Path) -> None:
        tokenizer = load(byte_level(), tmp_path)
        ids = tokenizer.encode("好")[:-1]
        detokenizer = StreamingDetokenizer(tokenizer)
        assert "".join(detokenizer.push(i) for i in ids) == ""
        assert detokenizer.finish() == "\ufffd" == tokenizer.decode(ids)

    @pytest.mark.parametrize("text", TEXTS)
    def test_an_unusual_decoder_that_splits_characters(self, text: str, tmp_path: Path) -> None:
        decoder = {"type": "Sequence", "decoders": [BYTE_LEVEL, {"type": "Fuse"}]}
        tokenizer = load(byte_level(decoder), tmp_path)
        assert stream(tokenizer, tokenizer.encode(text), skip=True) == text

    @pytest.mark.parametrize("name", ["byte-level", "byte fallback"])
    def test_a_token_costs_the_same_however_many_came_before(self, name: str, tmp_path: Path) -> None:
        tokenizer = load(KINDS[name](), tmp_path)
        bad_byte = tokenizer.token_to_id("ÿ" if name == "byte-level" else "<0xFF>")
        assert bad_byte is not None
        detokenizer = StreamingDetokenizer(tokenizer)
        begin = time.thread_time()
        for _ in range(50_000):
            detokenizer.push(bad_byte)
        # 0.1 s as it is; work that grows with the text would take minutes.
        assert time.thread_time() - begin < 5
        assert detokenizer.text == "\ufffd" * 50_000


class TestRealTokenizers:
    @settings(deadline=None)
    @given(draw=st.data(), skip=st.booleans())
    def test_gives_what_decode_gives(self, real: Tokenizer, draw: st.DataObject, skip: bool) -> None:
        check_stream(real, some_ids(draw, real), some_ids(draw, real), skip=skip)

    @settings(deadline=None)
    @given(text=MANY)
    def test_a_text_has_no_fewer_tokens_than_are_said(self, real: Tokenizer, text: str) -> None:
        assert real.least_tokens(text) <= len(real.encode(text, add_special_tokens=False))

    def test_the_fewest_tokens_of_a_text_are_known(self, real: Tokenizer) -> None:
        assert real.least_tokens("x" * 1_000_000) > 1_000

    @settings(deadline=None)
    @given(text=st.text(max_size=40))
    def test_any_text_survives(self, real: Tokenizer, text: str) -> None:
        ids = real.encode(text)
        assert stream(real, ids, skip=True) == real.decode(ids)

    @pytest.mark.parametrize(
        ("name", "golden"),
        [
            ("gpt2", "gpt-2"),
            ("llama3", "llama-bpe"),
            ("llama2", "llama-spm"),
            ("phi-3", "phi-3"),
            ("qwen2.5", "qwen2"),
        ],
    )
    def test_hard_texts_encode_as_elsewhere(self, name: str, golden: str, data: Path) -> None:
        tokenizer = Tokenizer.from_file(data / "tokenizers" / name / "tokenizer.json")
        folder = data / "tokenizers" / "ggml-vocab"
        texts = (folder / f"ggml-vocab-{golden}.gguf.inp").read_text(encoding="utf-8")
        expected = (folder / f"ggml-vocab-{golden}.gguf.out").read_text(encoding="utf-8").split("\n")
        for text, line in zip(texts.split("\n__ggml_vocab_test__\n"), expected, strict=True):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert ids == [int(word) for word in line.split()]
            assert stream(tokenizer, ids, skip=True) == tokenizer.decode(ids)
