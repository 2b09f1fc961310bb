"""The capital letters of the stories that the embedded model learnt from."""

from pathlib import Path

import pytest
from restore_case import agreement, find_names, repair, restore_case, split_stories


@pytest.mark.parametrize(
    ("lower", "cased"),
    [
        ("once upon a time there was a cat. it was red.", "Once upon a time there was a cat. It was red."),
        ('she said, "hello! i am here."', 'She said, "Hello! I am here."'),
        ("one day, a girl named lily met max.", "One day, a girl named Lily met Max."),
        ("on monday, mr. brown watched tv.", "On Monday, Mr. Brown watched TV."),
        ("", ""),
    ],
)
def test_a_story_gets_its_capitals_back(lower: str, cased: str) -> None:
    assert restore_case(lower, frozenset({"lily", "max"})) == cased


def test_restore_case_changes_only_case() -> None:
    story = 'the dog, "spot", ran.\n\n"wait for me!" cried i-don\'t-know-who... and then? it\'s 5 o\'clock!'
    assert restore_case(story, frozenset({"spot"})).lower() == story


def test_names_are_read_from_the_stories_that_name_them() -> None:
    stories = ["there was a boy named zork.", "zork ran home.", "a girl named zork sat.", "the stone was warm."]
    names = find_names(stories)
    assert "zork" in names
    assert "stone" not in names


def test_broken_quotation_marks_are_repaired() -> None:
    assert repair("â€œhiâ€\x9d she said").startswith('"hi')


def test_the_rule_agrees_with_real_capitals_as_the_card_says(test_data: Path) -> None:
    names = find_names(split_stories(repair((test_data / "corpora/tinystories_4MB.txt").read_text("utf-8"))))
    truth = (test_data / "corpora/tinystories_cased_197k.txt").read_text("utf-8")
    found = agreement(repair(truth), names)
    assert found["words"] > 37_000
    assert found["correct"] >= 0.997
