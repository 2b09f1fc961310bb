"""The web page in headless Chromium, against a server whose model is scripted."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgegen.server.page import render_markdown as render
from tests.root import ROOT
from tests.runtime.server_page.fake_server import BASE, CHAT, ESSAY, KEY, NOTE, FakeServer
from tests.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request, Route

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium")
QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
WIDE, PHONE = (1280, 800), (360, 640)

Open = Callable[..., "Page"]


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


def wait_for(page: "Page", expression: str) -> None:
    """Waits for JavaScript to be true. Playwright's own way needs ``eval``, which the page forbids."""
    assert until(lambda: page.evaluate(f"Boolean({expression})")), expression


def send(page: "Page", text: str) -> None:
    page.locator("#chat-welcome .chips button:visible, #log > li:visible").first.wait_for()
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answered(page: "Page", count: int) -> None:
    """Waits for so many whole answers on the page."""
    wait_for(page, f"document.querySelectorAll('.assistant .stats').length === {count} && !job")


def last_answer(page: "Page") -> str:
    return page.locator(".assistant .said").last.inner_text()


def test_a_message_is_answered_in_markdown_with_its_figures(open_page: Open, server: FakeServer) -> None:
    page = open_page()
    send(page, "hello")
    answered(page, 1)
    assert page.locator(".assistant .said strong").inner_text() == "hello"
    assert "tokens/s" in page.locator(".assistant .stats").inner_text()
    assert "8 cached" in page.locator(".assistant .stats").inner_text()
    assert page.locator("#context-text").inner_text() == "Context 24 / 1024"
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


def test_blocks_of_a_long_answer_are_rendered_once(open_page: Open) -> None:
    page = open_page()
    texts = list[str]()

    def note(request: "Request") -> None:
        if "/render" in request.url:
            texts.extend(json.loads(request.post_data or "")["texts"])

    page.on("request", note)
    send(page, "essay")
    answered(page, 1)
    said = page.locator(".assistant .said")
    assert said.locator("p", has_text="Paragraph").count() == 12
    assert said.locator("ul > li").count() == 2
    assert said.locator("pre").inner_text().count("line(") == 20
    assert said.locator("ol > li").count() == 3
    assert said.locator("em > a").count() == 12, "links are defined at the end"
    definition = f"\n\n{ESSAY[-1]}"
    whole = [text for text in texts if not text.endswith(definition)]
    parts = [*ESSAY[:14], "\n\n".join(ESSAY[14:17]), ESSAY[-1]]
    assert [text for text in whole if not any(part.startswith(text) for part in parts)] == [], "of one block only"
    assert max(whole.count(part) for part in parts) == 1
    texts.clear()
    send(page, "more")
    answered(page, 2)
    assert max(map(len, texts)) < 40, "nothing of the first answer"


CODE: dict[str, tuple[str, list[str], list[str], list[str], list[str]]] = {
    "python": (
        "# why\ndef f(x):\n    return f'{x}' + \"a\" * 0x1F",
        ["# why"],
        ["f'{x}'", '"a"'],
        ["def", "return"],
        ["0x1F"],
    ),
    "ts": ("let a: string = `b${1}`; // c", ["// c"], ["`b${1}`"], ["let", "string"], []),
    "c++": ("#include <a>\nint x = 1.5e3; /* y */", ["#include", "/* y */"], [], ["int"], ["1.5e3"]),
    "java": ('final String s = "//"; // 2', ["// 2"], ['"//"'], ["final"], []),
    "go": ("func f() { return nil } // a", ["// a"], [], ["func", "return", "nil"], []),
    "rust": ("fn f<'a>(x: &'a str) { let c = 'x'; }", [], ["'x'"], ["fn", "str", "let"], []),
    "bash": ('for x in a; do echo "$x" # y\ndone', ["# y"], ['"$x"'], ["for", "in", "do", "echo", "done"], []),
    "json": ('{"a": ["b", true, 1]}', [], ['"b"'], ["true"], ["1"]),
    "sql": ("SELECT a FROM b WHERE c = 'it''s' -- d", ["-- d"], ["'it''s'"], ["SELECT", "FROM", "WHERE"], []),
    "html": ('<!-- a --><p class="b">c</p>', ["<!-- a -->"], ['"b"'], ["<p", ">", "</p", ">"], []),
    "css": ("p { color: #fff; /* a */ margin: 2px; }", ["/* a */"], ["#fff"], ["color", "margin"], ["2px"]),
    "brainfuck": ("+++ <b>", [], [], [], []),
}


def test_code_is_colored_and_none_of_it_is_lost(open_page: Open) -> None:
    page = open_page()
    for language, (code, *kinds) in CODE.items():
        found: Any = page.evaluate(
            """([code, language]) => {
                const pre = h("pre", {}, h("code", {"data-language": language}, code)), box = codeBlock(pre);
                const kinds = ["comment", "string", "word", "number"];
                const of = kind => [...box.querySelectorAll(".code-" + kind)].map(one => one.textContent);
                return [box.querySelector(".language").textContent, pre.textContent, ...kinds.map(of)];
            }""",
            [code, language],
        )
        assert found == [language, code, *kinds], language


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_block_of_code_has_its_language_and_readable_colors(open_page: Open, scheme: str) -> None:
    page = open_page()
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    send(page, "table")
    answered(page, 1)
    block = page.locator(".assistant .block")
    assert block.locator(".language").inner_text() == "python"
    assert block.locator("pre").inner_text() == "print('hi')\n"
    assert block.locator(".code-string").inner_text() == "'hi'"
    assert block.get_by_role("button", name="Copy the code").is_visible()
    ratios: Any = page.evaluate(
        """() => ["comment", "string", "number", "word", "key"].map(kind => {
            const span = h("span", {class: "code-" + kind}, "x"), box = document.querySelector(".block");
            box.append(span);
            const light = color => color.match(/\\d+/g).slice(0, 3).map(part => part / 255)
                .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
                .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
            const pair = [light(getComputedStyle(span).color), light(getComputedStyle(box).backgroundColor)];
            span.remove();
            return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
        })"""
    )
    assert min(ratios) >= 4.5, "the contrast that WCAG asks for"


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
    assert "is edgegen serve still running?" in page.locator("#alert-text").inner_text()
    assert page.get_by_role("alert").get_by_role("button", name="Try again").is_visible()


MATH = {
    r"$\frac{a}{b}$": "<mfrac><mi>a</mi><mi>b</mi></mfrac>",
    r"$\sqrt[3]{x}$": "<mroot><mi>x</mi><mrow><mn>3</mn></mrow></mroot>",
    "$x_i^{10}$": "<msubsup><mi>x</mi><mi>i</mi><mn>10</mn></msubsup>",
    "$f'$": '<msup><mi>f</mi><mrow><mo lspace="0" rspace="0">′</mo></mrow></msup>',
    r"\(\alpha \leq \Omega\)": '<mi>α</mi><mo stretchy="false">≤</mo><mi mathvariant="normal">Ω</mi>',
    r"$$\sum_{i=1}^n i$$": (
        '<munderover><mo movablelimits="true">∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>'
        "<mi>i</mi>"
    ),
    r"$$\int_0^1 x$$": "<msubsup><mo>∫</mo><mn>0</mn><mn>1</mn></msubsup><mi>x</mi>",
    r"\[\begin{pmatrix} a & b \\ c & d \end{pmatrix}\]": (
        '<mrow><mo fence="true" form="prefix">(</mo><mtable>'
        "<mtr><mtd><mrow><mi>a</mi></mrow></mtd><mtd><mrow><mi>b</mi></mrow></mtd></mtr>"
        "<mtr><mtd><mrow><mi>c</mi></mrow></mtd><mtd><mrow><mi>d</mi></mrow></mtd></mtr>"
        '</mtable><mo fence="true" form="postfix">)</mo></mrow>'
    ),
    r"$\begin{cases} 1 & \text{if } x \\ 0 \end{cases}$": (
        '<mrow><mo fence="true" form="prefix">{</mo><mtable class="cases">'
        "<mtr><mtd><mrow><mn>1</mn></mrow></mtd><mtd><mrow><mtext>if&nbsp;</mtext><mi>x</mi></mrow></mtd></mtr>"
        "<mtr><mtd><mrow><mn>0</mn></mrow></mtd></mtr></mtable></mrow>"
    ),
    r"$\mathbb{R}\mathbf{v}$": '<mi mathvariant="normal">ℝ</mi><mi mathvariant="normal">𝐯</mi>',
    r"$\left( x \right]$": (
        '<mrow><mo fence="true" form="prefix">(</mo><mi>x</mi><mo fence="true" form="postfix">]</mo></mrow>'
    ),
    r"$\hat{x}$": '<mover accent="true"><mi>x</mi><mo stretchy="false">^</mo></mover>',
    r"$\sin x$": '<mi mathvariant="normal">sin</mi><mspace width="0.167em"></mspace><mi>x</mi>',
    r"$\text{if $x$}$": "<mrow><mtext>if&nbsp;</mtext><mrow><mi>x</mi></mrow></mrow>",
    r"$\rm d$": '<mi mathvariant="normal">d</mi>',
    r"$x \not= y$": "<mi>x</mi><mo>=\u0338</mo><mi>y</mi>",
}
UNREAD = [
    r"$\foo{x}$",
    r"$\frac{a}$",
    "$a_b_c$",
    r"$$\begin{tikz} a \end{tikz}$$",
    "$x^$",
    r"$\left( x$",
    r"\(" + "{" * 99 + r"\)",
]
PROSE = [
    "$5 and $6",
    "from $5 to $6, or US$7",
    "$5/month, then $6/month",
    "it costs $20 million, not 30$.",
    "$HOME/bin:$PATH",
    r"\$a\$ and a lone $",
    "A$ and B$",
]


def shown(page: "Page", text: str) -> Any:
    """The MathML, the sources in code and the text of an answer."""
    return page.evaluate(
        """async text => {
            const said = h("div", {class: "said"});
            await fill(said, text);
            const all = tag => [...said.querySelectorAll(tag)];
            const maths = all("math").map(math => math.firstChild.innerHTML);
            return [maths, all("code").map(code => code.textContent), said.textContent.trim()];
        }""",
        text,
    )


def test_math_is_mathml(open_page: Open) -> None:
    page = open_page()
    for source, expected in MATH.items():
        maths, codes, _ = shown(page, f"a_1 {source} b_1")
        assert (maths, codes) == ([expected], []), source


def test_math_that_is_not_read_is_shown_as_its_source(open_page: Open) -> None:
    page = open_page()
    for source in UNREAD:
        assert shown(page, f"a {source} b") == [[], [source], f"a {source} b"], source


def test_prose_and_code_are_no_math(open_page: Open) -> None:
    page = open_page()
    for text in PROSE:
        assert shown(page, text)[::2] == [[], text.replace("\\$", "$")], text
    for text in ("`$x$`", "``a ` $x$``", "```\n$x$\n```", "    $x$", "~~~\n$$x$$\n~~~"):
        maths, (code,), _ = shown(page, text)
        assert maths == []
        assert "$x$" in code
    address = "https://example.com/$a$"
    assert shown(page, f"{address} and [b]({address})") == [[], [], f"{address} and b"]
    maths, codes, _ = shown(page, "| $|a|$ | b |\n|-|-|\n| *$x_1$* | $y_1$ |\n\n- $$z$$\n\n  \\[w\\]")
    assert (len(maths), codes) == (5, []), "in tables, in emphasis and in lists"


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


MARKDOWN = [
    "- a\n\n  ```py\n  x\n\n  y\n  ```\n\n- b\n\npara\n- c\n- d\n\n\n1. x\n\n   more\n2. y\n",
    "> a\n>\n> b\n\n> c",
    "a\n```\nb\n\nc\n```\nd",
    "1. a\n```py\nb\n```\n2. c\n\n12 apples\n\n- \n\nx",
    "a\n\n    code\n\n    more\n\nb\n\n---\n\n* * *\n\n# h\ntext",
    "````md\n```\nx\n```\n\ny\n````\n\nz\n~~~\na\n\nb\n~~~\nc",
    "- a\n\n  - b\n\n    - c\n\n  d\n\ne [f][g] [h]\n\n[g]: https://example.com\n[h]: https://example.org",
    "```\nnever closed\n\nx",
]


def test_blocks_mean_the_same_as_the_whole(open_page: Open) -> None:
    page = open_page()
    pages = [(ROOT / "docs" / name).read_text("utf-8") for name in ("web-page.md", "serving.md", "exporting.md")]
    for text in [*MARKDOWN, *pages]:
        blocks: list[str] = page.evaluate("text => withDefinitions(blocksOf(text))", text)
        whole, joined = (re.sub(r"\s*\n", "", html) for html in (render(text), "".join(map(render, blocks))))
        assert joined == whole
        assert len(blocks) > 1 or text in MARKDOWN


@pytest.mark.parametrize("text", MARKDOWN)
def test_finished_blocks_stay_as_they_are(open_page: Open, text: str) -> None:
    page = open_page()
    found: list[list[str]] = page.evaluate(
        "text => [...text].map((_, at) => blocksOf(text.slice(0, at + 1)))",
        text,
    )
    for before, after in pairwise(found):
        assert after[: max(0, len(before) - 1)] == before[:-1]


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


def test_an_error_within_an_answer_keeps_what_came(open_page: Open) -> None:
    page = open_page()
    send(page, "break")
    answered(page, 1)
    assert "the model broke down" in page.get_by_role("alert").inner_text()
    assert last_answer(page) == "Answer 1 to break."
    assert "broken off" in page.locator(".assistant .stats").inner_text()


def test_hostile_markdown_is_inert(open_page: Open) -> None:
    """``open_page`` checks that nothing else was asked for."""
    page = open_page()
    send(page, "hostile")
    answered(page, 1)
    assert page.evaluate("window.hacked") is None
    said = page.locator(".assistant .said")
    assert said.locator("script, style, img, iframe, svg").count() == 0
    links = said.locator("a")
    assert {link.get_attribute("href") for link in links.all()} <= {"http://example.com/click", "http://example.com"}
    for link in links.all():
        assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noopener noreferrer")
    assert "<script>window.hacked = 1</script>" in said.inner_text()
    assert page.locator("body").is_visible()


def test_what_gets_past_the_server_is_still_not_run(open_page: Open) -> None:
    """The Content-Security-Policy stands behind the sanitizer: HTML of a broken ``/render`` runs and loads nothing."""
    page = open_page()
    spy = '<img src="/spy.png" onerror="window.hacked = 1"><b style="display: none">a</b>'

    def unsafe(route: "Route") -> None:
        texts = json.loads(route.request.post_data or "")["texts"]
        route.fulfill(json={"html": [spy] * len(texts)})

    page.route("**/render", unsafe)
    page.evaluate(
        "window.blocked = []; addEventListener('securitypolicyviolation', e => blocked.push(e.violatedDirective))"
    )
    send(page, "hello")
    wait_for(page, "['img-src', 'script-src-attr', 'style-src-attr'].every(rule => blocked.includes(rule))")
    answered(page, 1)
    assert page.evaluate("window.hacked") is None


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


def test_a_server_that_wants_a_key_is_given_one(open_page: Open, server: FakeServer) -> None:
    server.needs_key = True
    page = open_page()
    page.get_by_role("alert").wait_for()
    assert "this server asks for an API key" in page.get_by_role("alert").inner_text()
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
