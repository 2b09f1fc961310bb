"""StopStringMatcher and TextWatcher."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import OptionError
from edgegen.stopping import StopMatch, StopStringMatcher, TextWatcher
from edgegen.tokenizer import StreamingDetokenizer, Tokenizer
from tests.byte_level import LETTER_OF_BYTE

FEW_LETTERS = st.text("ab", max_size=12) | st.text("abc\n", max_size=20)
STOPS = st.lists(st.text("abc\n", min_size=1, max_size=5), max_size=4)


def cut(text: str, lengths: list[int]) -> list[str]:
    """``text`` in pieces of these lengths, and what is left."""
    pieces: list[str] = []
    for length in lengths:
        pieces.append(text[:length])
        text = text[length:]
    return [*pieces, text]


def before_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """By the definition: the text up to the earliest match, and whether there is one."""
    begins = [text.index(stop) for stop in stops if stop in text]
    return (text[: min(begins)], True) if begins else (text, False)


class TestStopStringMatcher:
    @settings(deadline=None, max_examples=500)
    @given(text=FEW_LETTERS, stops=STOPS, lengths=st.lists(st.integers(0, 4), max_size=12))
    def test_shows_the_text_before_the_first_stop_however_it_is_cut(
        self, text: str, stops: list[str], lengths: list[int]
    ) -> None:
        expected, ends = before_first_stop(text, stops)
        matcher = StopStringMatcher(stops)
        shown, found = "", None
        for piece in cut(text, lengths):
            more, found = matcher.push(piece)
            shown += more
            assert expected.startswith(shown)
            if found is not None:
                break
        else:
            more, found = matcher.finish()
            shown += more
        assert shown == expected
        assert (found is not None) == ends
        assert found is None or text[len(shown) :].startswith(found)

    @settings(deadline=None)
    @given(text=FEW_LETTERS, stops=STOPS)
    def test_of_stops_that_begin_together_the_longest_wins(self, text: str, stops: list[str]) -> None:
        shown, found = StopStringMatcher(stops).push(text)
        if found is not None:
            assert found == max((s for s in stops if text[len(shown) :].startswith(s)), key=len)

    def test_holds_back_only_what_may_become_a_stop(self) -> None:
        matcher = StopStringMatcher(["User:"])
        assert [matcher.push(piece) for piece in ("Hi", " U", "se", "ful", " Use")] == [
            ("Hi", None),
            (" ", None),
            ("", None),
            ("Useful", None),
            (" ", None),
        ]
        assert matcher.finish() == ("Use", None)

    def test_a_stop_waits_for_one_that_began_earlier(self) -> None:
        matcher = StopStringMatcher(["bc", "abcd"])
        assert matcher.push("xabc") == ("x", None)
        assert matcher.push("d") == ("", "abcd")

        matcher = StopStringMatcher(["bc", "abcd"])
        assert matcher.push("xabc") == ("x", None)
        assert matcher.push("x") == ("a", "bc")

        matcher = StopStringMatcher(["bc", "abcd"])
        assert matcher.push("xabc") == ("x", None)
        assert matcher.finish() == ("a", "bc")

    def test_a_stop_does_not_wait_for_a_longer_one(self) -> None:
        assert StopStringMatcher(["\n", "\n\n"]).push("a\n") == ("a", "\n")

    def test_drops_what_follows_in_the_same_piece(self) -> None:
        assert StopStringMatcher(["."]).push("One. Two. Three") == ("One", ".")

    def test_holds_no_more_than_the_longest_stop(self) -> None:
        matcher = StopStringMatcher(["aaaab"])
        shown = "".join(matcher.push("a")[0] for _ in range(1000))
        assert len(shown) == 1000 - 4

    def test_refuses_an_empty_stop(self) -> None:
        with pytest.raises(OptionError, match="empty stop string"):
            StopStringMatcher(["a", ""])


EOS = 0


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Byte-level letters and a few words; ``<eos>`` is an ordinary token, so that nothing else hides it."""
    tokens = ["<eos>", *LETTER_OF_BYTE.values(), "ab", "abc", "c.Ġd", "ĊĊ"]
    model: dict[str, Any] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": [],
    }
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    spec: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": model,
    }
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return Tokenizer.from_file(path)


def watcher(tokenizer: Tokenizer, *stops: str, eos: tuple[int, ...] = (EOS,)) -> TextWatcher:
    return TextWatcher(StreamingDetokenizer(tokenizer), stops, eos)


def ids_of(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    ids = [tokenizer.token_to_id(token) for token in tokens]
    assert None not in ids
    return [i for i in ids if i is not None]


class TestTextWatcher:
    def test_shows_text_as_it_comes(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer)
        assert watch.watch(ids_of(tokenizer, "ab", "c")) is None
        assert watch.take_text() == "abc"
        assert watch.take_text() == ""

    def test_the_end_of_sequence_has_no_text(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, eos=(EOS, 5))
        assert watch.watch([*ids_of(tokenizer, "ab"), 5, *ids_of(tokenizer, "c")]) == StopMatch("stop", 5)
        assert watch.take_text() == "ab"

    def test_the_end_of_sequence_may_come_first(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "x")
        assert watch.watch([EOS]) == StopMatch("stop", EOS)
        assert watch.take_text() == ""

    def test_the_end_releases_what_was_held_back(self, tokenizer: Tokenizer) -> None:
        half = tokenizer.encode("好")[:-1]
        watch = watcher(tokenizer, "abcd")
        assert watch.watch(ids_of(tokenizer, "abc")) is None
        assert watch.take_text() == ""
        assert watch.watch([*half, EOS]) == StopMatch("stop", EOS)
        assert watch.take_text() == "abc\ufffd"

    def test_finds_a_stop_across_tokens_and_drops_the_rest(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "bc. ")
        assert watch.watch(ids_of(tokenizer, "ab")) is None
        assert watch.take_text() == "a"
        assert watch.watch(ids_of(tokenizer, "c.Ġd", "ab")) == StopMatch("stop", "bc. ")
        assert watch.take_text() == ""

    def test_a_stop_within_one_token(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "b")
        assert watch.watch(ids_of(tokenizer, "abc")) == StopMatch("stop", "b")
        assert watch.take_text() == "a"

    def test_a_stop_before_the_end_of_sequence_comes_first(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "bc", "abcd")
        assert watch.watch([*ids_of(tokenizer, "abc"), EOS]) == StopMatch("stop", "bc")
        assert watch.take_text() == "a"

    def test_the_prompt_is_no_part_of_a_match(self, tokenizer: Tokenizer) -> None:
        prompt = ids_of(tokenizer, "ab")
        watch = TextWatcher(StreamingDetokenizer(tokenizer, prompt_ids=prompt), ["abc"], [EOS])
        assert watch.watch(ids_of(tokenizer, "c")) is None
        assert watch.take_text() == "c"

    def test_finish_releases_what_was_held_back(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "abcd")
        watch.watch(ids_of(tokenizer, "abc"))
        assert watch.finish() is None
        assert watch.take_text() == "abc"

    def test_finish_tells_of_a_stop_that_had_to_wait(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "bc", "abcd")
        watch.watch(ids_of(tokenizer, "abc"))
        assert watch.finish() == StopMatch("stop", "bc")
        assert watch.take_text() == "a"

    def test_without_a_tokenizer_only_ids_are_watched(self) -> None:
        watch = TextWatcher(None, [], [EOS])
        assert watch.watch([7, 8]) is None
        assert watch.watch([9, EOS]) == StopMatch("stop", EOS)
        assert watch.finish() is None
        assert watch.take_text() == ""

    def test_stops_need_a_tokenizer(self) -> None:
        with pytest.raises(OptionError, match="stop strings need a tokenizer"):
            TextWatcher(None, ["a"], [EOS])

    @settings(deadline=None, max_examples=300)
    @given(
        draw=st.data(),
        stops=st.lists(st.text("abc. \n", min_size=1, max_size=4), max_size=3),
        per_step=st.integers(1, 3),
    )
    def test_streamed_text_is_the_text_before_the_stop(
        self, tokenizer: Tokenizer, draw: st.DataObject, stops: list[str], per_step: int
    ) -> None:
        letters = ids_of(tokenizer, "a", "b", "c", ".", "Ġ", "Ċ", "ab", "abc", "c.Ġd", "ĊĊ")
        pieces = st.sampled_from([[i] for i in letters] + [tokenizer.encode("é"), tokenizer.encode("好")[:2]])
        ids = [i for piece in draw.draw(st.lists(pieces, max_size=16)) for i in piece]
        expected, ends = before_first_stop(tokenizer.decode(ids), stops)
        watch = watcher(tokenizer, *stops)
        shown, match = "", None
        for step in range(0, len(ids), per_step):
            match = watch.watch(ids[step : step + per_step])
            shown += watch.take_text()
            assert expected.startswith(shown)
            if match is not None:
                break
        else:
            match = watch.finish()
            shown += watch.take_text()
        assert shown == expected
        assert (match is not None) == ends
