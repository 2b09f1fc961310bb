"""How the page shows an answer: Markdown, code and formulas."""

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from edgegen.server.page import render_markdown as render
from tests.root import ROOT
from tests.runtime.server_page.browsing import Open, answered, send, wait_for
from tests.runtime.server_page.fake_server import ESSAY

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request, Route

pytestmark = [pytest.mark.e2e, pytest.mark.release]


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


def test_notes_stand_once_after_the_whole_answer(open_page: Open) -> None:
    page = open_page()
    send(page, "notes")
    answered(page, 1)
    said = page.locator(".assistant .said")
    assert said.locator("[data-notes] > li").all_inner_texts() == ["The note.", "The other."]
    assert said.locator("sup").all_inner_texts() == ["1", "2", "1"]
    assert said.inner_text().count("The note.") == 1


def test_a_list_of_tasks_has_boxes(open_page: Open) -> None:
    page = open_page()
    send(page, "tasks")
    answered(page, 1)
    items = page.locator(".assistant .said li")
    assert items.all_inner_texts() == ["☐ to do", "☑ done", "neither"]
    assert page.locator(".assistant .said li[data-task]").count() == 2


def test_a_text_from_right_to_left_stands_at_the_right(open_page: Open) -> None:
    page = open_page()
    send(page, "hebrew")
    answered(page, 1)
    directions: Any = page.evaluate(
        """[...document.querySelectorAll(".assistant .said :is(p, ul)")].map(one => getComputedStyle(one).direction)"""
    )
    assert directions == ["rtl", "rtl", "ltr"]
    page.get_by_label("Message", exact=True).fill("שלום")
    assert page.evaluate("getComputedStyle($('message')).direction") == "rtl"
    page.keyboard.press("Enter")
    answered(page, 2)
    assert page.evaluate("getComputedStyle([...document.querySelectorAll('.user .said')].at(-1)).direction") == "rtl"


def test_thoughts_are_markdown(open_page: Open) -> None:
    page = open_page()
    send(page, "think")
    answered(page, 1)
    page.locator(".thinking summary").click()
    page.locator(".thinking strong", has_text="this").wait_for()
    assert page.locator(".thinking li").inner_text() == "then that"


def test_json_is_a_block_of_code_with_its_numbers_as_they_are(open_page: Open) -> None:
    page = open_page()
    send(page, "json")
    answered(page, 1)
    shown = page.locator(".assistant .block pre").inner_text()
    assert "12345678901234567890,\n    {}\n  ],\n" in shown
    assert '"b": "x, {y}: \\"z\\""' in shown
    assert page.locator(".assistant .language").inner_text() == "json"
    assert "1.0" in shown


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
