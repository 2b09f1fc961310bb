"""The web page in headless Chromium, against a server whose model is scripted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.server_page.browsing import PHONE, Open, answered, last_answer, send, wait_for
from tests.runtime.server_page.fake_server import BASE, CHAT, KEY, NOTE, FakeServer
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.e2e, pytest.mark.release]


def test_a_message_is_answered_in_markdown_with_its_figures(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "hello")
    answered(page, 1)
    assert page.locator(".assistant .said strong").inner_text() == "hello"
    assert page.locator(".assistant .stats").inner_text().startswith("8 tokens · 10.0 tokens/s · first after ")
    assert "8 cached" in page.locator(".assistant .stats").inner_text()
    assert page.locator("#context-text").inner_text() == "Context 28 / 1024"
    (body,) = server.bodies
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert body["model"] == CHAT
    assert (body["max_tokens"], body["stream"]) == (-1, True)
    assert not body.keys() & {"temperature", "top_p", "min_p", "seed"}, "the model's own are its own"


def test_a_model_of_which_nothing_is_said_has_no_note(open_page: Open) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    assert page.locator(".note").count() == 0


def test_messages_that_the_model_has_not_read_are_told(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "long")
    answered(page, 1)
    assert "the model has not read the oldest 4 messages" in page.locator(".assistant .stats").inner_text()


def test_an_answer_is_shown_while_it_streams_and_stopping_frees_the_server(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "endless")
    page.locator(".assistant[aria-busy=true] strong", has_text="endless").wait_for()
    page.keyboard.press("Escape")
    answered(page, 1)
    assert last_answer(page) == "Answer 1 to endless."
    assert page.locator(".assistant .stats").inner_text().startswith("8 tokens · 10.0 tokens/s")
    assert "stopped by you" in page.locator(".assistant .stats").inner_text()
    assert server.disconnected.wait(PATIENCE_S)
    assert page.locator("#alert").is_hidden()
    send(page, "again")  # the stopped answer is part of the conversation
    answered(page, 2)
    assert [message["role"] for message in server.bodies[1]["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("view", ["chat", "text"])
def test_reading_a_long_prompt_is_told_after_a_second(open_page: Open, server: FakeServer, view: str) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.clock.install()
    if view == "chat":
        send(page, "slow")
        place = page.locator(".assistant .reading")
    else:
        page.locator("#view-text").click()
        page.get_by_label("Text to continue").fill("slow")
        page.keyboard.press("Control+Enter")
        place = page.locator("#text-reading")
    wait_for(page, "job && job.read && job.read.processed === 700")
    assert server.bodies[0]["return_progress"] is True
    page.clock.fast_forward(2000)
    wait_for(page, "document.querySelector('[aria-busy=true] .reading, #text-reading:not(:empty)')")
    assert place.text_content() == "Reading 40%"
    assert page.locator("#context-text").inner_text() == "Context 700 / 1024"
    server.may_answer.set()
    wait_for(page, "!job")
    page.clock.run_for(1000)
    assert "Reading" not in page.locator("main").inner_text()


def test_waiting_for_other_requests_is_told(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.clock.install()
    send(page, "busy")
    wait_for(page, "job && job.read")
    page.clock.fast_forward(2000)
    wait_for(page, "document.querySelector('.reading')?.textContent === 'Waiting for other requests'")
    server.may_answer.set()
    wait_for(page, "!job")


def test_reading_a_short_prompt_is_not_told(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now()") + 1000)
    send(page, "slow")
    wait_for(page, "job && job.read && job.read.processed === 700")
    assert page.locator(".assistant .reading").text_content() == ""
    server.may_answer.set()
    wait_for(page, "!job")


def test_text_files_are_attached_counted_and_sent(open_page: Open, server: FakeServer, tmp_path: Path) -> None:
    notes, code = tmp_path / "notes.md", tmp_path / "a.py"
    notes.write_bytes("```\nä\n```".encode())
    code.write_bytes(b"x = 1\n")
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.locator("#attach-file").set_input_files([notes, code])
    chips = page.locator("#files li")
    wait_for(page, "document.querySelectorAll('#files li').length === 2")
    assert chips.all_inner_texts() == ["notes.md\n10 bytes · 9 tokens", "a.py\n6 bytes · 6 tokens"]
    page.get_by_label("Message", exact=True).press("Enter")  # files alone are a message too
    answered(page, 1)
    sent = "File notes.md:\n\n````md\n```\nä\n```\n````\n\nFile a.py:\n\n```py\nx = 1\n```"
    assert server.bodies[0]["messages"] == [{"role": "user", "content": sent}]
    assert chips.count() == 0
    assert page.locator("#list .open").inner_text() == "notes.md, a.py"
    page.reload()
    answered(page, 1)
    page.locator(".user .file", has_text="a.py").locator("summary").click()
    assert page.locator(".user .file pre:visible").inner_text() == "x = 1\n"
    page.locator("#attach-file").set_input_files([code])
    page.get_by_role("button", name="Remove a.py").click()
    assert chips.count() == 0
    page.keyboard.press("Alt+e")
    page.get_by_label("Edit the message").fill("What is it?")
    page.keyboard.press("Enter")
    page.locator(".user .branch", has_text="2 / 2").wait_for()
    answered(page, 1)
    assert server.bodies[1]["messages"][0]["content"] == f"{sent}\n\nWhat is it?"


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_files_are_pasted_and_dropped(open_page: Open, way: str) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.evaluate(
        """way => {
            const data = new DataTransfer();
            data.items.add(new File(["hello"], "a.txt"));
            const about = {bubbles: true, cancelable: true};
            const event = way === "paste" ? new ClipboardEvent("paste", {...about, clipboardData: data})
                : new DragEvent("drop", {...about, dataTransfer: data});
            $("message").dispatchEvent(event);
        }""",
        way,
    )
    page.locator("#files li", has_text="a.txt").wait_for()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\x89PNG\0\0", "a.txt is no text in UTF-8: only text files can be attached."),
        (b"\xff\xfe", "a.txt is no text in UTF-8: only text files can be attached."),
        (b"a" * 500_001, "a.txt has 500 kB: at most 500 kB can be attached."),
        (b"a" * 1025, "a.txt has 1025 tokens, and the context of this model is 1024: attach a part of it."),
    ],
    ids=["binary", "UTF-16", "too big", "more than the context"],
)
def test_a_file_that_cannot_be_attached_is_refused(
    open_page: Open, tmp_path: Path, content: bytes, sentence: str
) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(content)
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.locator("#attach-file").set_input_files([file])
    page.get_by_role("alert").wait_for()
    assert page.locator("#alert-text").inner_text() == sentence
    assert page.locator("#files li").count() == 0


def test_about_this_model(open_page: Open) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.get_by_role("button", name="About this model").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=f"About {CHAT}")
    dialog.wait_for()
    names, figures = (dialog.locator(tag).all_inner_texts() for tag in ("dt", "dd b"))
    assert dict(zip(names, figures, strict=True)) == {
        "Context length": "1,024 tokens",
        "Parameters": "124 million",
        "Quantization": "int8",
        "Top-1 agreement": "98.7 %",
        "KL divergence": "0.0012 nats",
        "Perplexity": "+0.42 %",
    }
    assert all(text.endswith(".") for text in dialog.locator("dd small").all_inner_texts())
    assert "no more than the noise" in dialog.inner_text()
    assert "Measured on 512 tokens of sample text." in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert page.evaluate("document.activeElement.id") == "about"
    page.keyboard.press("Alt+i")
    dialog.wait_for()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_label("Model", exact=True).select_option(BASE)
    page.locator("#text-welcome .chips button").first.wait_for()
    page.keyboard.press("Alt+i")
    about_base = page.get_by_role("dialog", name=f"About {BASE}")
    about_base.wait_for()
    assert f"{BASE} is {NOTE}." in about_base.inner_text()


def test_a_full_context_says_what_to_do(open_page: Open) -> None:
    page = open_page()
    send(page, "full")
    page.get_by_role("alert").wait_for()
    assert page.locator("#alert-text").inner_text() == (
        "The context is full: start a new conversation, or shorten the text. "
        "The prompt has 2000 tokens, but this model's context is 1024: shorten it."
    )
    page.get_by_role("alert").get_by_role("button", name="New conversation").click()
    page.get_by_role("alert").wait_for(state="hidden")
    assert page.locator(".turn").count() == 0
    send(page, "filled")
    answered(page, 1)
    assert "the context is full: start a new conversation" in page.locator(".assistant .stats").inner_text()


def test_a_refusal_is_the_servers_own_sentence(open_page: Open) -> None:
    page = open_page()
    send(page, "wrong")
    page.get_by_role("alert").wait_for()
    assert page.locator("#alert-text").inner_text() == "top_p must be at most 1."


@pytest.mark.parametrize("told", ["", "endless"])
def test_a_server_that_is_gone_is_asked_after(open_page: Open, server: FakeServer, told: str) -> None:
    page = open_page()
    if told:
        send(page, told)
        page.locator(".assistant[aria-busy=true] strong", has_text=told).wait_for()
    else:
        page.locator("#chat-welcome .chips button").first.wait_for()
    server.stop()
    if not told:
        send(page, "hello")
    page.get_by_role("alert").wait_for()
    assert "the connection is down" in page.locator("#alert-text").inner_text()
    assert page.get_by_role("alert").get_by_role("button", name="Try again").is_visible()


def test_regenerating_and_editing_make_branches(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "one")
    answered(page, 1)
    page.get_by_label("Regenerate the answer").click()
    page.locator(".assistant .branch", has_text="2 / 2").wait_for()
    answered(page, 1)
    assert last_answer(page) == "Answer 2 to one."
    page.keyboard.press("Alt+ArrowLeft")
    assert last_answer(page) == "Answer 1 to one."
    page.keyboard.press("Alt+e")
    page.get_by_label("Edit the message").fill("two")
    page.keyboard.press("Enter")
    page.locator(".user .branch", has_text="2 / 2").wait_for()
    answered(page, 1)
    assert last_answer(page) == "Answer 3 to two."
    assert server.bodies[2]["messages"] == [{"role": "user", "content": "two"}]
    page.locator(".user").get_by_label("Branch before").click()
    assert last_answer(page) == "Answer 1 to one."


def test_reloading_keeps_conversation_and_settings(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "keep me")
    answered(page, 1)
    page.get_by_label("Settings", exact=True).first.click()
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Seed").fill("7")
    page.reload()
    answered(page, 1)
    assert page.locator(".user .said").inner_text() == "keep me"
    assert last_answer(page) == "Answer 1 to keep me."
    send(page, "more")
    answered(page, 2)
    assert server.bodies[1]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (server.bodies[1]["temperature"], server.bodies[1]["seed"]) == (0.5, 7)


def test_an_error_is_shown_and_the_message_kept(open_page: Open) -> None:
    page = open_page()
    send(page, "fail")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "32 requests are waiting already. Try again in 2 s." in alert.inner_text()
    assert page.locator(".user .said").inner_text() == "fail"
    assert page.locator(".assistant").count() == 0
    assert page.get_by_role("button", name="Try again").is_visible()


def test_a_message_without_an_answer_is_answered_after_a_reload(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "fail")
    page.get_by_role("alert").wait_for()
    page.reload()
    page.locator(".user").get_by_role("button", name="Try again").click()
    page.get_by_role("alert").wait_for()
    assert [body["messages"] for body in server.bodies] == [[{"role": "user", "content": "fail"}]] * 2


def test_an_answer_that_was_cut_goes_on(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "cut")
    answered(page, 1)
    assert "token limit reached" in page.locator(".assistant .stats").inner_text()
    page.locator(".assistant").get_by_role("button", name="Continue").click()
    wait_for(page, "document.querySelector('.assistant .said').innerText.includes('Answer 2')")
    answered(page, 1)
    assert server.bodies[1]["messages"][-1] == {"role": "assistant", "content": "Answer 1 to **cut**."}
    assert last_answer(page).startswith("Answer 1 to cut.")
    assert page.locator(".assistant").get_by_role("button", name="Continue").count() == 0


def test_the_gauge_is_right_after_stop(open_page: Open) -> None:
    page = open_page()
    send(page, "endless")
    page.locator(".assistant[aria-busy=true] strong", has_text="endless").wait_for()
    page.keyboard.press("Escape")
    answered(page, 1)
    count = len("endless" + "Answer 1 to **endless**.")
    wait_for(page, f"document.getElementById('context-text').textContent === 'Context {count} / 1024'")


def test_conversations_are_renamed_and_found(open_page: Open) -> None:
    page = open_page()
    for text in ("apples are red", "pears are green"):
        send(page, text)
        answered(page, 1)
        page.keyboard.press("Alt+n")
    page.get_by_role("button", name="Rename “apples are red”").click()
    page.get_by_label("Name of the conversation").fill("Fruit")
    page.keyboard.press("Enter")
    page.get_by_label("Search the conversations").fill("apples")
    assert page.locator("#list .open").all_inner_texts() == ["Fruit"]
    page.get_by_label("Search the conversations").fill("plums")
    assert page.locator("#list .open").count() == 0
    assert page.get_by_text("No conversation has these words.").is_visible()
    page.reload()
    page.locator("#list .open", has_text="Fruit").wait_for()


def test_an_error_within_an_answer_keeps_what_came(open_page: Open) -> None:
    page = open_page()
    send(page, "break")
    answered(page, 1)
    assert "the model broke down" in page.get_by_role("alert").inner_text()
    assert last_answer(page) == "Answer 1 to break."
    assert "broken off" in page.locator(".assistant .stats").inner_text()


def test_a_base_model_continues_texts(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.get_by_label("Model", exact=True).select_option("stories-int8")
    page.locator("#text-welcome .chips button").first.wait_for()
    assert page.locator("#text-welcome .note").text_content() == f"{BASE} is {NOTE}."
    page.locator("#text-welcome .chips button").first.click()
    wait_for(page, "document.querySelector('#text-stats').textContent && !job")
    paper = page.get_by_label("Text to continue")
    prompt = "Once upon a time, there was a little dragon who"
    assert paper.input_value() == f"{prompt} and continuation 1 follows."
    assert page.locator("#under mark").inner_text() == " and continuation 1 follows."
    page.get_by_role("button", name="Again").click()
    wait_for(page, "document.querySelector('#takes').textContent === '2 / 2' && !job")
    assert paper.input_value() == f"{prompt} and continuation 2 follows."
    page.locator("#takes").get_by_label("Branch before").click()
    assert paper.input_value() == f"{prompt} and continuation 1 follows."
    page.get_by_role("button", name="Undo").click()
    assert paper.input_value() == prompt
    paper.fill("Mine")
    paper.press("Control+Enter")
    wait_for(page, "document.querySelector('#text-stats').textContent && !job")
    assert [body["prompt"] for body in server.bodies] == [prompt, prompt, "Mine"]
    page.reload()
    page.locator("#under mark").wait_for()
    assert paper.input_value() == "Mine and continuation 3 follows."


def test_typing_into_a_continuation_keeps_what_the_model_wrote(open_page: Open) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.get_by_role("button", name="Continue", exact=True).first.click()
    paper = page.get_by_label("Text to continue")
    paper.fill("Mine")
    paper.press("Control+Enter")
    wait_for(page, "document.querySelector('#text-stats').textContent && !job")
    paper.fill("Mine and a continuation 1 follows.")
    paper.press("End")
    paper.type(" The end")
    parts: Any = page.evaluate("current.parts.map(part => [part.by, part.text])")
    assert parts == [
        ["you", "Mine"],
        ["model", " and "],
        ["you", "a "],
        ["model", "continuation 1 follows."],
        ["you", " The end"],
    ]


def test_a_server_that_wants_a_key_is_given_one(open_page: Open, server: FakeServer) -> None:
    server.needs_key = True
    page = open_page()
    page.get_by_role("alert").wait_for()
    assert "write it into the settings, under Server" in page.get_by_role("alert").inner_text()
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Tab")
    page.locator(f"#model option[value={CHAT}]").wait_for(state="attached")
    page.get_by_role("alert").wait_for(state="hidden")
    assert KEY not in json.dumps(page.evaluate("({...localStorage})"))


def test_a_model_that_is_not_loaded_is_loaded_when_it_is_chosen(open_page: Open, server: FakeServer) -> None:
    server.unloaded.add(BASE)
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    option = page.locator(f"#model option[value={BASE}]")
    assert option.text_content() == f"{BASE} – not loaded"
    page.get_by_label("Model", exact=True).select_option(BASE)
    wait_for(page, f"document.querySelector('#loading').textContent === 'Loading {BASE}…'")
    assert option.text_content() == f"{BASE} – loading…"
    assert page.locator("#model").get_attribute("aria-busy") == "true"
    server.may_load.set()
    page.locator("#text-welcome .chips button").first.wait_for()
    assert page.locator("#loading").inner_text() == ""
    assert option.text_content() == BASE
    assert page.locator("#model").get_attribute("aria-busy") is None


def test_a_model_that_the_server_has_unloaded_is_loaded_again(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "one")
    answered(page, 1)
    server.unloaded.add(CHAT)
    send(page, "two")
    wait_for(page, f"document.querySelector('#loading').textContent === 'Loading {CHAT}…'")
    assert len(server.bodies) == 1
    server.may_load.set()
    answered(page, 2)
    assert last_answer(page) == "Answer 2 to two."


def test_stopping_while_a_model_is_loaded(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    server.unloaded.add(CHAT)
    send(page, "one")
    wait_for(page, f"document.querySelector('#loading').textContent === 'Loading {CHAT}…'")
    page.keyboard.press("Escape")
    wait_for(page, "!job")
    assert page.locator("#alert").is_hidden()
    assert server.bodies == []
    server.may_load.set()


def test_a_model_that_cannot_be_loaded_is_an_error(open_page: Open, server: FakeServer) -> None:
    server.unloaded.add(BASE)
    server.load_problem = "cannot load 'stories-int8': it is damaged."
    server.may_load.set()
    page = open_page()
    page.locator("#chat-welcome .chips button").first.wait_for()
    page.get_by_label("Model", exact=True).select_option(BASE)
    page.get_by_role("alert").wait_for()
    assert server.load_problem in page.get_by_role("alert").inner_text()
    server.load_problem = ""
    page.get_by_role("button", name="Try again").click()
    page.locator("#text-welcome .chips button").first.wait_for()


def test_export_and_import(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    send(page, "export me")
    answered(page, 1)
    page.keyboard.press("Alt+s")
    page.get_by_label("Grammar").fill("root ::= 'a'")
    page.get_by_label("Save as a preset").fill("A")
    page.keyboard.press("Enter")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export", exact=True).click()
    saved = tmp_path / "saved.json"
    download.value.save_as(saved)
    page.get_by_label("Delete “export me”").click()
    page.get_by_role("button", name="Delete it").click()
    wait_for(page, "all.size === 0")
    page.get_by_role("button", name="Delete the preset").click()
    page.get_by_role("button", name="Delete it").click()
    wait_for(page, "presets.length === 0")
    page.locator("#import-file").set_input_files(saved)
    answered(page, 1)
    page.get_by_label("Grammar").fill("")
    page.get_by_label("Preset", exact=True).select_option("A")
    assert page.get_by_label("Grammar").input_value() == "root ::= 'a'"
    assert last_answer(page) == "Answer 1 to export me."
    damaged = json.loads(saved.read_text("utf-8"))
    damaged["conversations"].append({"kind": "chat", "id": "__proto__"})
    damaged["presets"].append({"name": 1})
    saved.write_text(json.dumps(damaged), "utf-8")
    page.locator("#import-file").set_input_files(saved)
    page.get_by_role("alert").wait_for()
    assert "saved.json: 2 of 4 conversations and presets are damaged" in page.get_by_role("alert").inner_text()


def test_a_phone_shows_everything_without_scrolling_sideways(open_page: Open) -> None:
    page = open_page(PHONE)
    send(page, "table")
    answered(page, 1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelector('main').scrollWidth <= innerWidth")
    for name in ("#model", "#toggle-panel", "#view-text", "#send", "#message"):
        box = page.locator(name).bounding_box()
        assert box, name
        assert 0 <= box["x"] < box["x"] + box["width"] <= PHONE[0], name
        assert 0 <= box["y"] < box["y"] + box["height"] <= PHONE[1], name
    model, views = page.locator("#model").bounding_box(), page.locator("#view-chat").bounding_box()
    assert model
    assert views
    assert model["y"] + model["height"] <= views["y"], "the model's name is covered"
    assert page.locator("#side").is_hidden()
    page.locator("#toggle-side").click()
    assert page.locator("#side").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#side").is_hidden()


@pytest.mark.parametrize("view", ["chat", "text"])
def test_every_control_has_a_name(open_page: Open, view: str) -> None:
    page = open_page()
    send(page, "table")
    answered(page, 1)
    page.locator(f"#view-{view}").click()
    page.keyboard.press("Alt+s")
    nameless = """() => [...document.querySelectorAll("button, input, textarea, select, meter")].filter(one =>
        !(one.getAttribute("aria-label") || one.textContent.trim() && one.tagName === "BUTTON" || one.labels?.length)
    ).map(one => one.outerHTML)"""
    assert page.evaluate(nameless) == []
