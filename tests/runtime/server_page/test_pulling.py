"""Models that the page gets by name from a server that may pull them, in headless Chromium."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime.server_page.browsing import PHONE, Open, wait_for
from tests.runtime.server_page.fake_server import KEY, FakeServer
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.release

NAME = "tiny-135m-int8"
OFFER: dict[str, Any] = {
    "name": "tiny-135m",
    "hub": "org/tiny",
    "licence": "Apache-2.0",
    "gated": False,
    "parameters": 134515008,
    "download_bytes": 269030016,
    "bundles": [
        {"model": NAME, "quantization": "int8", "disk_bytes": 146822912, "memory_bytes": 322713280}
        | {"installed": False, "pulling": False},
        {"model": "tiny-135m-int4", "quantization": "int4", "disk_bytes": 96171776, "memory_bytes": 272062144}
        | {"installed": False, "pulling": False},
    ],
}
HALF = {"status": "pulling aaaa", "digest": "sha256:aaaa", "total": 269030016, "completed": 134515008}


def offering(server: FakeServer, last: dict[str, Any]) -> None:
    server.offers = [OFFER]
    server.pulled = [{"status": "pulling manifest"}, HALF, last]


def get(page: "Page") -> None:
    """Opens the list, and asks for the model."""
    page.get_by_role("button", name="Get a model").click()
    page.get_by_role("button", name=f"Get {NAME}").click()
    wait_for(page, "document.querySelector('#offers progress')?.value === 0.5")


def test_a_model_is_got_and_used(open_page: Open, server: FakeServer) -> None:
    offering(server, {"status": "success"})
    page = open_page()
    get(page)
    dialog = page.get_by_role("dialog", name="Get a model")
    assert "135M parameters · Apache-2.0" in dialog.inner_text()
    assert "int8: 147 MB on disk, 323 MB of memory" in dialog.inner_text()
    assert page.locator(".stage").inner_text() == "pulling aaaa, 135 MB of 269 MB"
    server.may_pull.set()
    page.get_by_role("button", name=f"Use {NAME}").click()
    assert not dialog.is_visible()
    assert page.get_by_label("Model", exact=True).input_value() == NAME


def test_it_can_be_stopped(open_page: Open, server: FakeServer) -> None:
    offering(server, {"status": "success"})
    page = open_page()
    get(page)
    page.get_by_role("button", name=f"Stop getting {NAME}").click()
    page.get_by_role("button", name=f"Get {NAME}").wait_for()
    server.may_pull.set()
    assert server.left.wait(PATIENCE_S)
    assert page.locator("#offers .problem").count() == 0


def test_what_goes_wrong_is_said_beside_the_model(open_page: Open, server: FakeServer) -> None:
    offering(server, {"error": "the disk has 12 MB left, and the model needs 147 MB: make room."})
    page = open_page()
    get(page)
    server.may_pull.set()
    page.locator("#offers .problem").wait_for()
    assert page.locator("#offers .problem").inner_text().startswith("the disk has 12 MB left")
    assert page.get_by_role("button", name=f"Get {NAME}").is_enabled()


def test_a_server_that_pulls_nothing_offers_nothing(open_page: Open) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    assert not page.locator("#get-model").is_visible()


def test_a_server_that_wants_a_key_is_asked_again_with_it(open_page: Open, server: FakeServer) -> None:
    offering(server, {"status": "success"})
    server.needs_key = True
    page = open_page()
    page.locator("#alert").wait_for()
    assert not page.locator("#get-model").is_visible()
    page.evaluate("togglePanel(true)")
    page.get_by_label("API key").fill(KEY)
    page.get_by_label("API key").press("Tab")
    page.locator("#get-model").wait_for()


def test_the_list_fits_a_phone(open_page: Open, server: FakeServer) -> None:
    offering(server, {"status": "success"})
    server.offers = [OFFER | {"name": f"model-{number}"} for number in range(9)]
    page = open_page(PHONE)
    page.get_by_role("button", name="Get a model").click()
    assert page.evaluate("document.getElementById('offers').scrollWidth <= innerWidth")
    assert page.get_by_role("button", name="Close", exact=True).last.is_visible()
