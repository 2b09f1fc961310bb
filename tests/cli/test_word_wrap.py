"""Words of a streamed answer stay whole at a terminal's width, whatever pieces it comes in."""

import random

import pytest

from edgegen.cli.repl.word_wrap import WordWrap, cells, wrapped

pytestmark = pytest.mark.unit

STORY = "Once upon a time there was a little girl named Lily. She loved to play outside in the sunshine.\n\n  The end"


def shown(sent: str) -> list[str]:
    """The lines of a terminal that was sent ``sent``; what moves back is obeyed, and nothing may pass the beginning."""
    lines, at = [list[str]()], 0
    for character in sent:
        if character == "\n":
            lines.append([])
            at = 0
        elif character == "\b":
            assert at > 0
            at -= 1
        elif cells(character):
            lines[-1][at : at + cells(character)] = [character, *[""] * (cells(character) - 1)]
            at += cells(character)
        else:
            lines[-1][at - 1] += character
    return ["".join(line).rstrip() for line in lines]


def streamed(text: str, columns: int, *, seed: int | None = None) -> list[str]:
    """The lines that come of ``text`` at once, or in pieces of random sizes."""
    wrap, sent, rest, sizes = WordWrap(lambda: columns), "", text, random.Random(seed)
    while rest:
        size = len(rest) if seed is None else sizes.randint(1, 4)
        sent, rest = sent + wrap.push(rest[:size]), rest[size:]
    return shown(sent)


@pytest.mark.parametrize("columns", [12, 20, 50, 80, 200])
def test_no_word_is_broken_and_no_line_is_too_long(columns: int) -> None:
    lines = streamed(STORY, columns)
    assert max(map(cells, lines)) < columns
    assert " ".join(" ".join(lines).split()) == " ".join(STORY.split())
    assert lines[-2:] == ["", "  The end"]


def test_lines_are_as_full_as_they_can_be() -> None:
    assert streamed("aaa bbb ccc ddd", 12) == ["aaa bbb ccc", "ddd"]
    assert streamed("aaa bbb ccc\nddd", 12) == ["aaa bbb ccc", "ddd"]
    assert streamed("aaa bbb ccc \nddd", 12) == ["aaa bbb ccc", "ddd"]
    assert streamed("aaa bbb cccc d", 12) == ["aaa bbb", "cccc d"]


@pytest.mark.parametrize("seed", range(20))
def test_pieces_change_nothing(seed: int) -> None:
    text = STORY + " 日本語の文章です。 cafe\u0301 👍 a\tb " + "x" * 30
    assert streamed(text, 17, seed=seed) == streamed(text, 17)


def test_wide_characters_count_twice_and_lines_break_between_them() -> None:
    assert streamed("日本語の文章", 9) == ["日本語の", "文章"]
    assert streamed("ab 日本語の文章", 9) == ["ab 日本", "語の文章"]
    assert cells("日本e\u0301👍") == 7


def test_combining_characters_take_no_cell() -> None:
    assert streamed("e\u0301" * 8 + " b", 9) == ["e\u0301" * 8, "b"]


def test_a_word_longer_than_a_line_is_broken() -> None:
    assert streamed("ab " + "x" * 20, 9) == ["ab", "x" * 8, "x" * 8, "xxxx"]


def test_the_width_is_asked_for_again() -> None:
    widths = iter([9, 20])
    wrap = WordWrap(lambda: next(widths))
    assert shown(wrap.push("aaaa bbbb\n") + wrap.push("aaaa bbbb")) == ["aaaa", "bbbb", "aaaa bbbb"]


def test_notes_go_on_below_what_a_table_says() -> None:
    row = "  /set NAME VALUE     Set an option; VALUE default leaves it out."
    assert wrapped(row, 50).split("\n") == [
        "  /set NAME VALUE     Set an option; VALUE",
        "                      default leaves it out.",
    ]
    assert wrapped("(a note that is too long for it)", 20).split("\n") == ["(a note that is too", "long for it)"]
    assert wrapped("short\n\nlines", 20) == "short\n\nlines"
