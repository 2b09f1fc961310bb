"""StopRegex and StopRegexMatcher, held against every match that ``re`` can find."""

import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgegen.errors import OptionError
from edgegen.stop_regex import Span
from edgegen.stop_regex.matcher import StopRegexMatcher
from edgegen.stop_regex.parser import LARGEST
from edgegen.stop_regex.regex import StopRegex
from tests.runtime.stop_regex.reference import cut, first_match

LETTERS = "abA1 _\n"
ATOMS = ["a", "b", " ", r"\n", ".", "[ab]", "[^a]", r"[^\d\n]", r"\w", r"\W", r"\s", r"\S", r"\d", r"\D", "A", "[A-a]"]
ASSERTIONS = [r"\b", r"\B", "^", "$", r"\A", r"\Z", r"(?a:\b)"]
REPEATS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{2,}", "{2,3}?"]


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.sampled_from(
        ["(?:{})", "({})", "(?i:{})", "(?s:{})", "(?m:{})", "(?-i:{})", "(?P<name>{})", "(?ms:{})"]
    )
    return (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})")
        | st.tuples(inner, st.sampled_from(REPEATS)).map(lambda two: f"(?:{two[0]}){two[1]}")
        | st.tuples(groups, inner).map(lambda two: two[0].format(two[1]))
    )


PATTERNS = st.recursive(st.sampled_from(ATOMS + ASSERTIONS), combined, max_leaves=6)


def find(regex: StopRegex, *pieces: str) -> tuple[Span | None, list[int]]:
    """The match, and up to where the text was decided after each piece without one."""
    matcher, decided = StopRegexMatcher(regex), [0]
    for piece in pieces:
        if found := matcher.push(piece):
            return found, decided
        decided.append(matcher.undecided)
    return matcher.finish(), decided


@settings(deadline=None, max_examples=800)
@given(
    pattern=PATTERNS,
    flags=st.sampled_from([0, re.IGNORECASE, re.MULTILINE, re.DOTALL, re.ASCII, re.MULTILINE | re.DOTALL]),
    text=st.text(LETTERS, max_size=8),
    lengths=st.lists(st.integers(0, 3), max_size=6),
)
def test_finds_what_re_finds_however_the_text_is_cut(pattern: str, flags: int, text: str, lengths: list[int]) -> None:
    inline = "".join(letter for letter in "imsa" if flags & getattr(re, letter.upper()))
    try:
        regex = StopRegex(f"(?{inline}){pattern}" if inline else pattern)
    except OptionError as error:
        assume("may match nothing at all" not in str(error) and "redefinition of group name" not in str(error))
        raise
    found, decided = find(regex, *cut(text, lengths))
    assert found == first_match(text, pattern, flags)
    assert decided == sorted(decided)
    assert found is None or decided[-1] <= found.begin


@settings(deadline=None, max_examples=300)
@given(
    pattern=st.sampled_from(
        [
            r"(?i)[k-s]",
            r"(?i)ß",
            r"(?i)[^ı]",
            r"\w",
            r"(?a)\w",
            r"(?ai)k",
            r"(?a)(?u:\w)",
            r"(?a:\w)",
            r"\s",
            r"\d",
            r"(?i)ſ",
            ".",
        ]
    ),
    character=st.characters(codec="utf-8") | st.sampled_from("KſßẞıİiIµμ٣\x1c\x85\u2028"),
)
def test_a_character_is_who_it_is_to_re(pattern: str, character: str) -> None:
    found = StopRegexMatcher(StopRegex(pattern)).push(character)
    assert (found is not None) == (re.fullmatch(pattern, character) is not None)


@pytest.mark.parametrize(
    ("pattern", "pieces", "expected"),
    [
        (r"\d+", ["ab12", "3"], (2, 3)),  # lazy and greedy alike: it ends where it first can
        (r"\d{2,}", ["a1", "23"], (1, 3)),
        (r"END\b", ["xEND", "."], (1, 4)),
        (r"END\b", ["xEND", "S END"], (6, 9)),
        (r"END\b", ["xEND"], (1, 4)),
        (r"(?m)^END$", ["END", "\n"], (0, 3)),
        (r"(?m)^END$", [" END\nEND", "\n"], (5, 8)),
        ("END$", ["END", "\n"], (0, 3)),
        ("END$", ["END", "\n", "\n"], None),
        (r"END\Z", ["END", "\n"], None),
        (r"\AEND", ["END"], (0, 3)),
        (r"\AEND", [" END"], None),
        ("a$\n", ["a", "\n"], (0, 2)),
        ("(?x) a b  # a comment", ["ab"], (0, 2)),
        (r"ab+c|b", ["ab"], (1, 2)),  # the other one began first and is not whole
        (r" |\s{2}\B", ["\nc\n "], (2, 4)),  # the longer one is known at the end only
        (r"[^a]+(?:\W|$)", ["\naacb1\n"], (3, 6)),
        (r"[^a]+(?:\W|$)", ["\naacb1\n", "a"], (3, 7)),
        (r"[^\W\d_]{3}", ["1é好ö"], (1, 4)),
    ],
)
def test_examples(pattern: str, pieces: list[str], expected: tuple[int, int] | None) -> None:
    assert find(StopRegex(pattern), *pieces)[0] == expected


@pytest.mark.parametrize(
    ("pattern", "text", "undecided"),
    [
        ("User:", "Hi Use", 3),
        ("User:", "Hi Used", 7),
        (r"\w+;", "one two", 4),
        ("<a>.*</a>", "x<a>anything", 1),
        (r"(?s)<a>.*</a>", "x<a>any\nthing", 1),
        (r"END\b", "x END", 2),
        ("END$", "END\n", 0),
        ("END$", "END\n\n", 4),
        (r"(?m)END$", "END", 0),
    ],
)
def test_text_is_held_back_only_if_it_may_become_a_match(pattern: str, text: str, undecided: int) -> None:
    matcher = StopRegexMatcher(StopRegex(pattern))
    assert matcher.push(text) is None
    assert matcher.undecided == undecided


def test_a_match_is_known_with_its_last_character() -> None:
    """Where no assertion has to wait, and none is awaited that would make it longer to the front."""
    for pattern, text in [("ab", "xab"), ("(?m)^ab", "\nab"), (r"\bab|b", " ab"), ("a(?:|b)c", "ac")]:
        assert StopRegexMatcher(StopRegex(pattern)).push(text) is not None


@pytest.mark.parametrize("pattern", ["(a*)*b", "(?:a|aa)+b", "(?:a?){40}(?:a+)+b", "(?:.*.*.*)*b"])
def test_costs_the_same_however_often_it_nearly_matches(pattern: str) -> None:
    """A matcher that tried one way after the other would not come back from this."""
    matcher = StopRegexMatcher(StopRegex(pattern))
    assert matcher.push("a" * 1500) is None
    assert matcher.undecided == 0
    assert matcher.push("b") == (0, 1501)


def test_a_fork_goes_its_own_way() -> None:
    one = StopRegexMatcher(StopRegex("ab+c$"))
    one.push("xabb")
    other = one.fork()
    assert one.push("d") is None
    assert one.undecided == 5
    assert other.undecided == 1
    assert other.push("c\n") is None
    third = other.fork()
    other.push("d")
    assert other.finish() is None
    assert third.finish() == (1, 5)


def test_the_same_pattern_is_compiled_once() -> None:
    assert StopRegex.of("a[b-d]") is StopRegex.of("a[b-d]")


def test_of_very_many_different_characters_some_are_forgotten() -> None:
    regex = StopRegex("好a")
    matcher = StopRegexMatcher(regex)
    assert matcher.push("".join(map(chr, range(0x100, 0x2000)))) is None
    assert regex.sets_of.cache_info().currsize < 5000
    assert matcher.push("好") is None
    assert matcher.push("a") is not None


REFUSED: list[tuple[str, str]] = [
    ("a(?=b)", "'a(?=b)' has lookahead or lookbehind, which cannot be told while text arrives: say it without"),
    ("a(?!b)", "lookahead or lookbehind"),
    ("a(?!)", "lookahead or lookbehind"),
    ("(?<=a)b", "lookahead or lookbehind"),
    ("(?<!a)b", "lookahead or lookbehind"),
    (r"(a)\1", "a backreference"),
    (r"(?P<x>a)(?P=x)", "a backreference"),
    (r"(?i)(a)\1", "a backreference"),
    ("(a)?(?(1)b|c)", "a conditional group"),
    ("(?>a+)b", "an atomic group"),
    ("a++b", "a possessive repeat"),
    ("a?+b", "a possessive repeat"),
    (r"(a)(?=b)\1(?!c)", "lookahead or lookbehind and a backreference"),
    ("", "'' may match nothing at all and would end every text at once: ask for a character"),
    ("a*", "may match nothing at all"),
    (r"\b", "may match nothing at all"),
    ("a|", "may match nothing at all"),
    ("(?m)^$", "may match nothing at all"),
    ("[a", "'[a' is no regular expression: unterminated character set at position 0"),
    ("ab(", "missing ), unterminated subpattern at position 2"),
    ("*a", "nothing to repeat at position 0"),
    ("a{3,2}", "min repeat greater than max repeat at position 2"),
    (r"\p{Lu}", r"bad escape \p at position 0"),
    ("(?L)a", "bad inline flags"),
    ("a{10001}", "'a{10001}' is too large: written out it has over 10,000 states"),
    ("(a{200}){200}", "is too large"),
    ("a{99999999999999999999}", "is too large"),
    ("(?:(?:(?:){9999}){9999}){9999}a", "is too large"),
    ("(?:(?:(?:){0,9999}){0,9999}){0,9999}a", "is too large"),
    ("(" * 5000 + "a" + ")" * 5000, "is nested too deeply"),
]


@pytest.mark.parametrize(("pattern", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_matched_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(OptionError, match=re.escape(reason)) as caught:
        StopRegex(pattern)
    assert len(str(caught.value)) < 200


def test_the_largest_that_is_allowed() -> None:
    matcher = StopRegexMatcher(StopRegex(f"a{{{LARGEST // 2}}}"))
    assert matcher.push("a" * 20) is None


def test_a_parser_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other seam: the parser is the standard library's own, and private."""

    def gone(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("edgegen.stop_regex.parser.import_module", gone)
    with pytest.raises(OptionError, match="this version of Python does not show its regular expressions"):
        StopRegex("a")
