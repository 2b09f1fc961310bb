"""TextWatcher: which text is shown, what ends it, and in which order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.engine.finish import StopMatch
from edgegen.errors import OptionError
from edgegen.stopping.text_watcher import TextWatcher
from edgegen.tokenizer import StreamingDetokenizer, Tokenizer
from tests.runtime.stop_regex.reference import first_match, first_stop

EOS = 0


def watcher(tokenizer: Tokenizer, *stops: str, eos: tuple[int, ...] = (EOS,), **options: Any) -> TextWatcher:
    return TextWatcher(StreamingDetokenizer(tokenizer), stops, eos, **options)


def ids_of(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    ids = [tokenizer.token_to_id(token) for token in tokens]
    assert None not in ids
    return [i for i in ids if i is not None]


def read(watch: TextWatcher, ids: Sequence[int], *, per_step: int = 1) -> tuple[list[str], StopMatch | None]:
    """The pieces of text that are shown, the last one by the end, and what ended it."""
    shown: list[str] = []
    for step in range(0, len(ids), per_step):
        match = watch.watch(ids[step : step + per_step])
        shown.append(watch.take_text())
        if match is not None:
            return shown, match
    match = watch.finish()
    return [*shown, watch.take_text()], match


class TestIds:
    def test_shows_text_as_it_comes(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer)
        assert watch.watch(ids_of(tokenizer, "ab", "c")) is None
        assert watch.take_text() == "abc"
        assert watch.take_text() == ""

    def test_the_end_of_sequence_has_no_text(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, eos=(EOS, 5))
        match = watch.watch([*ids_of(tokenizer, "ab"), 5, *ids_of(tokenizer, "c")])
        assert match == StopMatch("stop", 5, "eos_token_id")
        assert watch.take_text() == "ab"

    def test_the_end_of_sequence_may_come_first(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "x")
        assert watch.watch([EOS]) == StopMatch("stop", EOS, "eos_token_id")
        assert watch.take_text() == ""

    def test_a_stop_token_id_ends_it_likewise(self, tokenizer: Tokenizer) -> None:
        (c,) = ids_of(tokenizer, "c")
        watch = watcher(tokenizer, stop_token_ids=[7, c])
        assert watch.watch([*ids_of(tokenizer, "ab"), c]) == StopMatch("stop", c, "stop_token_ids")
        assert watch.take_text() == "ab"

    def test_an_id_that_is_both_is_the_end_of_sequence(self, tokenizer: Tokenizer) -> None:
        assert watcher(tokenizer, stop_token_ids=[EOS]).watch([EOS]) == StopMatch("stop", EOS, "eos_token_id")

    def test_the_end_releases_what_was_held_back(self, tokenizer: Tokenizer) -> None:
        half = tokenizer.encode("好")[:-1]
        watch = watcher(tokenizer, "abcd")
        assert watch.watch(ids_of(tokenizer, "abc")) is None
        assert watch.take_text() == ""
        assert watch.watch([*half, EOS]) == StopMatch("stop", EOS, "eos_token_id")
        assert watch.take_text() == "abc\ufffd"
        watch = watcher(tokenizer, "abcd", stop_token_ids=[1])
        assert watch.watch([*ids_of(tokenizer, "abc"), 1]) == StopMatch("stop", 1, "stop_token_ids")
        assert watch.take_text() == "abc"

    def test_without_a_tokenizer_only_ids_are_watched(self) -> None:
        watch = TextWatcher(None, [], [EOS], stop_token_ids=[5])
        assert watch.watch([7, 8]) is None
        assert watch.fork().watch([5]) == StopMatch("stop", 5, "stop_token_ids")
        assert watch.watch([9, EOS]) == StopMatch("stop", EOS, "eos_token_id")
        assert watch.finish() is None
        assert watch.take_text() == ""


class TestStopStrings:
    def test_finds_a_stop_across_tokens_and_drops_the_rest(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "bc. ")
        assert watch.watch(ids_of(tokenizer, "ab")) is None
        assert watch.take_text() == "a"
        assert watch.watch(ids_of(tokenizer, "c.Ġd", "ab")) == StopMatch("stop", "bc. ", "stop_strings")
        assert watch.take_text() == ""

    def test_a_stop_within_one_token(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "b")
        assert watch.watch(ids_of(tokenizer, "abc")) == StopMatch("stop", "b", "stop_strings")
        assert watch.take_text() == "a"

    def test_a_stop_before_the_end_of_sequence_comes_first(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, "bc", "abcd")
        assert watch.watch([*ids_of(tokenizer, "abc"), EOS]) == StopMatch("stop", "bc", "stop_strings")
        assert watch.take_text() == "a"

    def test_the_prompt_is_no_part_of_a_match(self, tokenizer: Tokenizer) -> None:
        prompt = ids_of(tokenizer, "ab")
        watch = TextWatcher(StreamingDetokenizer(tokenizer, prompt_ids=prompt), ["abc"], [EOS], stop_regex="^abc")
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
        assert watch.finish() == StopMatch("stop", "bc", "stop_strings")
        assert watch.take_text() == "a"

    def test_stops_need_a_tokenizer(self) -> None:
        with pytest.raises(OptionError, match="stop strings need a tokenizer"):
            TextWatcher(None, ["a"], [EOS])
        with pytest.raises(OptionError, match="stop expressions need a tokenizer"):
            TextWatcher(None, [], [EOS], stop_regex="a")


class TestStopRegex:
    def test_holds_back_what_may_become_a_match_and_no_more(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, stop_regex=r"b+c?\.")
        ids = ids_of(tokenizer, "a", "b", "b", "c", "a", "b", "c.Ġd")
        assert read(watch, ids) == (["a", "", "", "", "bbca", "", ""], StopMatch("stop", "bc.", "stop_regex"))

    def test_holds_nothing_back_where_it_is_shown(self, tokenizer: Tokenizer) -> None:
        watch = watcher(tokenizer, stop_regex=r"b+c?\.", include_stop_str_in_output=True)
        ids = ids_of(tokenizer, "a", "b", "b", "c", "a", "b", "c.Ġd")
        assert read(watch, ids) == ([*"abbcab", "c."], StopMatch("stop", "bc.", "stop_regex"))

    def test_the_end_may_make_a_match_whole(self, tokenizer: Tokenizer) -> None:
        ids = ids_of(tokenizer, "a", "b", "c", "Ċ")
        assert read(watcher(tokenizer, stop_regex="bc$"), ids) == (
            ["a", "", "", "", ""],
            StopMatch("stop", "bc", "stop_regex"),
        )
        watch = watcher(tokenizer, stop_regex="bc$", include_stop_str_in_output=True)
        assert read(watch, [*ids, EOS]) == (["a", "b", "c", "", ""], StopMatch("stop", "bc", "stop_regex"))

    def test_an_unfinished_character_is_a_character_at_the_end(self, tokenizer: Tokenizer) -> None:
        half = tokenizer.encode("好")[:-1]
        watch = watcher(tokenizer, stop_regex="a\ufffd")
        assert read(watch, [*ids_of(tokenizer, "c", "a"), *half])[0] == ["c", "", "", "", ""]

    def test_what_it_cannot_be_is_said(self, tokenizer: Tokenizer) -> None:
        with pytest.raises(OptionError, match="lookahead"):
            watcher(tokenizer, stop_regex="a(?=b)")
        with pytest.raises(OptionError, match="may match nothing at all"):
            watcher(tokenizer, stop_regex="")


class TestBoth:
    @pytest.mark.parametrize(
        ("stops", "regex", "text", "matched", "rule"),
        [
            (["c"], "ab", "", "ab", "stop_regex"),  # it is whole first
            (["a"], "ab", "", "a", "stop_strings"),
            (["bc"], "abc", "", "abc", "stop_regex"),  # whole together: the one that begins first
            (["abc"], "bc", "", "abc", "stop_strings"),
            (["abc"], "[a]bc", "", "abc", "stop_strings"),  # and began together
            (["ab", "abcd"], "c", "", "ab", "stop_strings"),
            (["b", "abcx"], "c", "a", "b", "stop_strings"),  # it waits, but for the expression no longer
            (["dx"], "d", "abc", "d", "stop_regex"),
        ],
    )
    @pytest.mark.parametrize("tokens", [("a", "b", "c", "d"), ("abc", "d"), ("ab", "c", "d")])
    def test_the_first_to_be_whole_ends_the_text(
        self,
        tokenizer: Tokenizer,
        tokens: tuple[str, ...],
        stops: list[str],
        regex: str,
        text: str,
        matched: str,
        rule: Any,
    ) -> None:
        shown, match = read(watcher(tokenizer, *stops, stop_regex=regex), ids_of(tokenizer, *tokens))
        assert "".join(shown) == text
        assert match is not None
        assert (match.matched, match.rule) == (matched, rule)

    def test_a_stop_that_is_shown_ends_the_text_behind_it(self, tokenizer: Tokenizer) -> None:
        ids = ids_of(tokenizer, "abc", "c.Ġd")
        for stops, regex, text in [(["bc", "bcc"], None, "abcc"), (["bc", "bcx"], "cd", "abc"), ((), "c[.]", "abcc.")]:
            watch = watcher(tokenizer, *stops, stop_regex=regex, include_stop_str_in_output=True)
            shown, match = read(watch, ids)
            assert "".join(shown) == text
            assert match is not None
            assert text.endswith(str(match.matched))


class TestCriteria:
    def test_see_prompt_and_answer_after_each_token(self, tokenizer: Tokenizer) -> None:
        seen: list[list[int]] = []

        def enough(ids: Any) -> bool:
            assert ids.dtype == np.int64
            assert not ids.flags.writeable
            seen.append(ids.tolist())
            return len(ids) == 5

        ids = ids_of(tokenizer, "ab", "c", "a", "b")
        watch = watcher(tokenizer, stopping_criteria=[enough], prompt_ids=[7, 8])
        assert watch.watch(ids) == StopMatch("stop", "enough", "stopping_criteria")
        assert seen == [[7, 8, *ids[: n + 1]] for n in range(3)]
        assert watch.take_text() == "abca"

    def test_the_first_that_is_met_is_named(self) -> None:
        class Never:
            def __call__(self, ids: Any) -> bool:
                return False

        class Always(Never):
            def __call__(self, ids: Any) -> Any:
                return np.bool_(True)

        watch = TextWatcher(None, [], [], stopping_criteria=[Never(), Always(), Always().__call__])
        assert watch.watch([1]) == StopMatch("stop", "Always", "stopping_criteria")

    def test_are_asked_when_nothing_else_ends_the_text(self, tokenizer: Tokenizer) -> None:
        asked: list[int] = []

        def ask(ids: Any) -> bool:
            asked.append(len(ids))
            return True

        (a, b) = ids_of(tokenizer, "a", "b")
        ways: list[tuple[dict[str, Any], str]] = [
            ({}, "stop_strings"),
            ({"stop_token_ids": [a]}, "stop_token_ids"),
            ({"stop_token_ids": [a], "eos": (a,)}, "eos_token_id"),
        ]
        for options, rule in ways:
            match = watcher(tokenizer, "a", stopping_criteria=[ask], **options).watch([a])
            assert match is not None
            assert match.rule == rule
        assert asked == []
        match = watcher(tokenizer, "a", stopping_criteria=[ask]).watch([b])
        assert match == StopMatch("stop", "ask", "stopping_criteria")

    def test_release_what_was_held_back_and_the_stop_in_it(self, tokenizer: Tokenizer) -> None:
        ids = ids_of(tokenizer, "abc")
        watch = watcher(tokenizer, "abcd", stopping_criteria=[len])
        assert read(watch, ids) == (["abc"], StopMatch("stop", "len", "stopping_criteria"))
        watch = watcher(tokenizer, "abcd", "bc", stopping_criteria=[len])
        assert read(watch, ids) == (["a"], StopMatch("stop", "bc", "stop_strings"))

    def test_what_one_raises_comes_through(self, tokenizer: Tokenizer) -> None:
        def broken(ids: Any) -> bool:
            raise ZeroDivisionError("at last")

        watch = watcher(tokenizer, stopping_criteria=[broken])
        with pytest.raises(ZeroDivisionError, match="at last"):
            watch.watch(ids_of(tokenizer, "a"))


PIECES = ["a", "b", "c", ".", "Ġ", "Ċ", "ab", "abc", "c.Ġd", "ĊĊ"]
STOPS = st.lists(st.text("abc. \n", min_size=1, max_size=4), max_size=3)
PATTERNS = st.none() | st.recursive(
    st.sampled_from(["a", "b", "c", r"\.", r"\s", ".", "[^a]", "é", "好", "\ufffd"]),
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda two: f"(?:{'|'.join(two)})")
        | st.tuples(inner, st.sampled_from(["+", "{2}", "{1,3}"])).map(lambda two: f"(?:{two[0]}){two[1]}")
    ),
    max_leaves=4,
)


@st.composite
def some_ids(draw: st.DrawFn, tokenizer: Tokenizer) -> list[int]:
    pieces = st.sampled_from(
        [[i] for i in ids_of(tokenizer, *PIECES)] + [tokenizer.encode("é"), tokenizer.encode("好")[:2]]
    )
    return [i for piece in draw(st.lists(pieces, max_size=10)) for i in piece]


class TestStreaming:
    @settings(deadline=None, max_examples=400)
    @given(draw=st.data(), stops=STOPS, pattern=PATTERNS, include=st.booleans(), per_step=st.integers(1, 3))
    def test_the_text_is_the_same_however_it_is_cut(
        self,
        tokenizer: Tokenizer,
        draw: st.DataObject,
        stops: list[str],
        pattern: str | None,
        include: bool,
        per_step: int,
    ) -> None:
        ids = draw.draw(some_ids(tokenizer))
        text = tokenizer.decode(ids)
        found = first_stop(text, stops, pattern, include=include)
        expected = text if found is None else text[: found[1] if include else found[0]]

        watch = watcher(tokenizer, *stops, stop_regex=pattern, include_stop_str_in_output=include)
        shown, match = read(watch, ids, per_step=per_step)
        assert "".join(shown) == expected
        assert (match is None) == (found is None)
        if match is not None and found is not None:
            begin, end, rule = found
            assert match.rule == rule
            # Of stop strings that begin together the longest is reported that came with the same token.
            assert text[begin:].startswith(str(match.matched))
            assert match.matched in stops or match.matched == text[begin:end]
            assert match.matched == text[begin:end] or not include

    @settings(deadline=None, max_examples=300)
    @given(
        draw=st.data(),
        pattern=st.sampled_from(
            [
                r"\bc",
                r"c\b",
                r"c\B",
                "(?m:^a)",
                "(?m:c$)",
                "b$",
                "a$|b",
                r"\n\Z",
                r"\Aa",
                "[ab]+$",
                r"(?m:^(?:ab|\.)+$)",
                "$\n",
            ]
        ),
        include=st.booleans(),
    )
    def test_so_it_is_with_assertions(
        self, tokenizer: Tokenizer, draw: st.DataObject, pattern: str, include: bool
    ) -> None:
        ids = draw.draw(some_ids(tokenizer))
        text = tokenizer.decode(ids)
        found = first_match(text, pattern)
        shown, match = read(watcher(tokenizer, stop_regex=pattern, include_stop_str_in_output=include), ids)
        assert "".join(shown) == (text if found is None else text[: found[1] if include else found[0]])
        assert match == (found and StopMatch("stop", text[found[0] : found[1]], "stop_regex"))

    @settings(deadline=None, max_examples=150)
    @given(draw=st.data(), stops=STOPS, pattern=PATTERNS, include=st.booleans(), at=st.integers(0, 8))
    def test_a_fork_goes_on_as_if_it_were_alone(
        self, tokenizer: Tokenizer, draw: st.DataObject, stops: list[str], pattern: str | None, include: bool, at: int
    ) -> None:
        ids, others = draw.draw(some_ids(tokenizer)), draw.draw(some_ids(tokenizer))

        def ten(ids: Any) -> bool:
            return len(ids) >= 10

        def fresh() -> TextWatcher:
            options: dict[str, Any] = {"stop_regex": pattern, "include_stop_str_in_output": include}
            return watcher(tokenizer, *stops, **options, stopping_criteria=[ten])

        watch = fresh()
        if watch.watch(ids[:at]) is not None:
            return
        fork = watch.fork()
        for branch, rest in ((watch, others), (fork, ids[at:])):
            shown, match = read(branch, rest)
            alone, alone_match = read(fresh(), ids[:at] + rest)
            assert ("".join(shown), match) == ("".join(alone), alone_match)
