"""Regular expressions of tokenizers: those that people publish are let through, those that never end are refused."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.tokenizer.regex_cost import check_regex

PUBLISHED = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}&&[^\p{Han}]]*[\p{Ll}\p{Lm}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
    r"(?<!\p{N})\p{N}{1,2}(?=(?:\p{N}{3})+(?!\p{N}))|\p{N}{3}|\p{N}+",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[^(\s|.,!?…。，、।۔،)]+",
    r"\s{512}(?!\S)|\s{256}(?!\S)|\s{1,2}(?!\S)|\s",
    r"\A +| +\z",
    r"[0-9]+(?:[.,][0-9]+)*",
)


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_published_expressions_are_let_through(pattern: str) -> None:
    assert check_regex(pattern) is False


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        *((pattern, "doubles with each character") for pattern in (
            r"(a+)+$", r"(a*)*b", r"(a|a)*b", r"(a|aa)+b", r"(\w+\s?)*$", r"(.+)+\n", r"(?:\p{L}|\p{Lu})+!",
            r"(?:\d{1,3})+x", r"(a|[^b])*c", r"(?:a?b?)*c", r"(?i:(a|A)+)b", r"(?:a+b*)+c", r"(?:\p{L}+\p{M}*)+",
            r"(?=(a+)+b)", r"x(?:[[a-c][b-d]]|c)*y",
        )),
        (r"(?:.?){50}x", "a part that may be empty is repeated"),
        ("a?" * 30 + "a" * 30, "30 optional parts follow one another, at most 16 may"),
        (r".*.*.*.*=", "4 repetitions follow one another, at most 3 may"),
        (r"(?:a{1000}){1000}", "repeats 1000000 steps, at most 100000"),
        (r"a{999999999}", "repeats too often"),
        (r"(x)\1", "references to groups are not allowed"),
        (r"(?<n>a|\g<n>b)", "references to groups are not allowed"),
        (r"(?~abc)", "is not allowed"),
        (r"(?(1)a|b)", "is not allowed"),
        ("(" * 200 + "a" + ")" * 200, "nested more than 100 deep"),
        ("[" * 5000, "a class is not closed"),
        ("(" * 3000 + "a" * 3000 + ")" * 3000, "nested 3000 deep"),
        ("a*" * 3000, "one of more than 4000 may not repeat anything"),
        ("(?:a|b)?c" * 1000, "one of more than 4000 may not repeat anything"),
        (r"(a", "a bracket is not closed"),
    ],
)  # fmt: skip
def test_expressions_that_take_too_long_are_refused(pattern: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        check_regex(pattern)


def test_whether_it_may_match_nothing() -> None:
    assert [check_regex(pattern) for pattern in ("a*", "a|", "", r"\b", "(?=a)", "a{0}", "a{0,3}b?")] == [True] * 7
    assert [check_regex(pattern) for pattern in ("a", "a*b", "a{1,3}", "(?:a|b)c?", "[ab]+")] == [False] * 5


SIMPLE = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "."]),
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})")
        | st.tuples(inner, st.sampled_from("*+?")).map(lambda two: f"(?:{two[0]}){two[1]}")
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(SIMPLE)
def test_what_is_let_through_ends_soon(pattern: str) -> None:
    """By Python's ``re``, which goes back over a text as Oniguruma does: seconds for what doubles, else none."""
    try:
        check_regex(pattern)
    except ValueError:
        return
    began = time.thread_time()
    for text in ("a" * 40, "ab" * 20, "b" * 40):
        re.compile(f"(?:{pattern})!").match(text + "?")
    assert time.thread_time() - began < 2
