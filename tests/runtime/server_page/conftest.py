"""The page in headless Chromium, and its server."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.runtime.server_page.browsing import WIDE, Open
from tests.runtime.server_page.fake_server import FakeServer
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")


QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    api = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def open_page(browser: "Browser", server: FakeServer) -> Iterator[Open]:
    """Opens the page in a browser profile of its own. It must ask no other address, and have no error."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_S * 1000)
    asked, errors = list[str](), list[str]()

    def open_page(size: tuple[int, int] = WIDE) -> "Page":
        page = context.new_page()
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(server.url)
        return page

    yield open_page
    context.close()
    assert [url for url in asked if not url.startswith((server.url, "data:", "blob:"))] == []
    assert errors == []
