"""Two tabs with one conversation: neither loses what the other has kept."""

from typing import Any

import pytest

from tests.runtime.server_page.browsing import Open, answered, send, wait_for
from tests.runtime.server_page.fake_server import FakeServer

pytestmark = pytest.mark.release

TEXTS = "Object.values(all.values().next().value.nodes).map(node => node.text)"


def test_a_turn_of_one_tab_shows_in_the_other(open_page: Open) -> None:
    first = open_page()
    send(first, "one")
    answered(first, 1)
    second = open_page()
    answered(second, 1)
    send(second, "two")
    answered(second, 2)
    answered(first, 2)
    assert first.locator(".user .said").all_inner_texts() == ["one", "two"]
    send(first, "three")
    answered(first, 3)
    answered(second, 3)
    assert second.locator(".user .said").all_inner_texts() == ["one", "two", "three"]


def test_turns_of_two_tabs_at_once_are_branches(open_page: Open, server: FakeServer) -> None:
    first = open_page()
    send(first, "one")
    answered(first, 1)
    second = open_page()
    answered(second, 1)
    send(first, "slow")
    wait_for(first, "job && job.read && job.read.processed === 700")
    send(second, "quick")
    answered(second, 2)
    server.may_answer.set()
    answered(first, 2)
    assert first.locator(".user .said").all_inner_texts() == ["one", "slow"]
    for page in (first, second):
        wait_for(page, "Object.keys(current.nodes).length === 6")
    first.reload()
    answered(first, 2)
    kept: Any = first.evaluate(TEXTS)
    assert {"one", "slow", "quick"} < set(kept)
    assert len(kept) == 6


def test_a_conversation_that_another_tab_deletes_is_gone(open_page: Open) -> None:
    first = open_page()
    send(first, "one")
    answered(first, 1)
    second = open_page()
    answered(second, 1)
    second.locator("#list li").hover()
    second.get_by_role("button", name="Delete “one”").click()
    second.get_by_role("button", name="Delete it").click()
    wait_for(first, "!all.size && !document.querySelectorAll('#log > li').length")
    assert first.locator("#status").inner_text() == "The conversation was deleted in another tab."


def test_two_texts_under_one_name_are_both_kept(open_page: Open) -> None:
    first = open_page()
    first.locator("#chat-welcome .chips button").first.wait_for()
    first.locator("#view-text").click()
    first.get_by_label("Text to continue").fill("A text")
    second = open_page()
    wait_for(second, "current && current.kind === 'text' && $('paper').value === 'A text'")
    second.get_by_label("Text to continue").fill("A text by the second")
    wait_for(first, "$('paper').value === 'A text by the second'")
    # a change that no event has told of yet
    first.evaluate("current.kept = 1")
    first.get_by_label("Text to continue").fill("A text by the first")
    texts: Any = first.evaluate("[...all.values()].map(textOf).sort()")
    assert texts == ["A text by the first", "A text by the second"]


def test_settings_and_presets_of_one_tab_are_those_of_the_other(open_page: Open) -> None:
    first, second = open_page(), open_page()
    for page in (first, second):
        page.locator("#chat-welcome .chips button").first.wait_for()
    first.keyboard.press("Alt+s")
    first.get_by_label("Temperature").fill("0.3")
    first.get_by_label("Save as a preset").fill("cool")
    first.get_by_role("button", name="Save the preset").click()
    wait_for(second, "$('n-temperature').value === '0.3' && presets.length === 1")
