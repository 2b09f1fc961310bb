"""The panel of settings: sampling, thinking, constraints and presets."""

import pytest

from tests.runtime.server_page.browsing import PHONE, Open, answered, send, wait_for
from tests.runtime.server_page.fake_server import FakeServer

pytestmark = [pytest.mark.e2e, pytest.mark.release]


def test_presets_are_saved_chosen_and_deleted(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.keyboard.press("Alt+s")
    system, temperature = page.get_by_label("System prompt"), page.get_by_label("Temperature")
    preset, name = page.get_by_label("Preset", exact=True), page.get_by_label("Save as a preset")
    assert preset.is_disabled()
    system.fill("Be brief.")
    temperature.fill("0.2")
    page.get_by_label("Stop strings, one a line").fill("END")
    name.fill("Brief")
    name.press("Enter")
    assert preset.input_value() == "Brief"
    system.fill("Be precise.")
    temperature.fill("0")
    assert preset.input_value() == "", "no longer what is set"
    name.fill("Precise")
    page.get_by_role("button", name="Save the preset").click()
    page.get_by_role("button", name="Back to the model's own").click()
    assert preset.input_value() == ""
    page.reload()
    page.locator("#chat-welcome .chips button").first.wait_for()
    assert preset.locator("option").all_inner_texts() == ["None", "Brief", "Precise"]
    preset.select_option("Brief")
    assert (system.input_value(), temperature.input_value()) == ("Be brief.", "0.2")
    send(page, "a")
    answered(page, 1)
    (body,) = server.bodies
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["temperature"], body["stop"]) == (0.2, ["END"])
    page.get_by_role("button", name="Delete the preset").click()
    page.get_by_role("dialog", name="Delete “Brief”?").get_by_role("button", name="Delete it").click()
    wait_for(page, "presets.length === 1")
    page.reload()
    answered(page, 1)
    assert preset.locator("option").all_inner_texts() == ["None", "Precise"]
    assert system.input_value() == "Be brief.", "what is set stays"


def test_presets_that_are_damaged_are_left_out(open_page: Open) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    kept = [None, {"name": ""}, {"name": "a", "numbers": {"top_p": "1", "seed": 3, "x": "1"}, "system": 1}]
    page.evaluate("kept => localStorage.setItem('edgegen.presets', JSON.stringify(kept))", kept)
    page.reload()
    page.locator("#chat-welcome .chips button").first.wait_for()
    texts = ("system", "stops", "thinking", "thoughts", "schema", "choices", "grammar")
    assert page.evaluate("presets") == [{"name": "a", "numbers": {"top_p": "1"}, **dict.fromkeys(texts, "")}]


def test_fields_show_the_models_own_sampling(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.keyboard.press("Alt+s")
    temperature = page.get_by_label("Temperature")
    wait_for(page, "document.getElementById('n-temperature').placeholder === '0.6'")
    assert (temperature.input_value(), temperature.get_attribute("placeholder")) == ("", "0.6")
    assert page.get_by_label("Max tokens").get_attribute("placeholder") == "no limit"
    temperature.fill("0.2")
    send(page, "a")
    answered(page, 1)
    assert server.bodies[0]["temperature"] == 0.2
    page.get_by_role("button", name="Back to the model's own").click()
    assert temperature.input_value() == ""


def test_choices_and_a_grammar_are_sent_one_at_a_time(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.keyboard.press("Alt+s")
    page.get_by_label("Choices, one a line").fill("yes\nno\n")
    page.get_by_label("Grammar").fill('root ::= "a"')
    send(page, "a")
    page.get_by_role("alert").wait_for()
    assert "keep one of them" in page.get_by_role("alert").inner_text()
    page.get_by_label("Grammar").fill("")
    send(page, "a")
    answered(page, 1)
    assert server.bodies[0]["guided_choice"] == ["yes", "no"]


def test_a_schema_is_sent_and_checked(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.keyboard.press("Alt+s")
    page.get_by_label("JSON Schema").fill('{"type": ')
    send(page, "a")
    page.get_by_role("alert").wait_for()
    assert "The JSON Schema is not JSON" in page.get_by_role("alert").inner_text()
    assert server.bodies == []
    assert page.get_by_label("Message", exact=True).input_value() == "a"
    page.get_by_label("JSON Schema").fill('{"type": "object"}')
    send(page, "a")
    answered(page, 1)
    assert server.bodies[0]["response_format"]["json_schema"]["schema"] == {"type": "object"}


def test_colors_can_be_chosen(open_page: Open) -> None:
    page = open_page()
    grounds = dict.fromkeys(("light", "dark"), "")
    for scheme in grounds:
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert grounds == {"light": "rgb(251, 250, 248)", "dark": "rgb(20, 23, 26)"}
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_thinking_can_be_switched_where_the_model_s_template_has_a_switch(open_page: Open, server: FakeServer) -> None:
    server.thinking = {"switch": True, "efforts": [], "thinks": True}
    page = open_page()
    page.locator("#thinking:visible").wait_for()
    assert page.locator("#thinking option").all_inner_texts() == ["Thinking: auto", "Thinking: off", "Thinking: on"]
    send(page, "hello")
    answered(page, 1)
    page.get_by_label("Thinking", exact=True).select_option("off")
    page.keyboard.press("Alt+S")
    page.get_by_label("Max thinking tokens").fill("64")
    send(page, "hello")
    answered(page, 2)
    as_it_is, off = server.bodies
    assert as_it_is.keys().isdisjoint({"thinking", "max_thinking_tokens"})
    assert (off["thinking"], off["max_thinking_tokens"]) == (False, 64)
    page.get_by_label("Save as a preset").fill("Quick")
    page.keyboard.press("Enter")
    page.get_by_label("Thinking", exact=True).select_option("on")
    page.get_by_label("Max thinking tokens").fill("")
    preset = page.get_by_label("Preset", exact=True)
    assert preset.input_value() == "", "no longer what is set"
    preset.select_option("Quick")
    send(page, "hello")
    answered(page, 3)
    assert (server.bodies[-1]["thinking"], server.bodies[-1]["max_thinking_tokens"]) == (False, 64)
    page.reload()
    page.locator("#thinking:visible").wait_for()
    assert page.locator("#thinking").input_value() == "off"
    page.get_by_role("button", name="Continue", exact=True).first.click()  # no chat, no thinking
    page.locator("#thinking").wait_for(state="hidden")


def test_levels_of_effort_are_those_of_the_model(open_page: Open, server: FakeServer) -> None:
    server.thinking = {"switch": False, "efforts": ["low", "high"], "thinks": True}
    page = open_page(PHONE)
    page.locator("#thinking:visible").wait_for()
    page.get_by_label("Thinking", exact=True).select_option("high")
    send(page, "hello")
    answered(page, 1)
    assert server.bodies[0]["reasoning_effort"] == "high"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_model_without_a_switch_has_none_on_the_page(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "hello")
    answered(page, 1)
    assert page.locator("#thinking").is_hidden()
    assert page.locator("#thoughts").is_hidden()
