"""Actions of tests on the page in headless Chromium."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDE, PHONE = (1280, 800), (360, 640)


Open = Callable[..., "Page"]


def wait_for(page: "Page", expression: str) -> None:
    """Waits for JavaScript to be true. Playwright's own way needs ``eval``, which the page forbids."""
    assert until(lambda: page.evaluate(f"Boolean({expression})")), expression


def send(page: "Page", text: str) -> None:
    page.locator("#chat-welcome .chips button:visible, #log > li:visible").first.wait_for()
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answered(page: "Page", count: int) -> None:
    """Wait for the given number of whole answers on the page."""
    wait_for(page, f"document.querySelectorAll('.assistant .stats').length === {count} && !job")


def last_answer(page: "Page") -> str:
    return page.locator(".assistant .said").last.inner_text()
