"""The web page's file, its headers, and markdown rendered as safe HTML."""

import json
import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from edgegen.server.page import (
    MOST_ADDRESS,
    MOST_RENDERED_BYTES,
    MOST_RENDERED_TEXTS,
    RUNNING,
    STATIC,
    assembled_page,
    page_routes,
)
from edgegen.server.page import render_markdown as render
from tests.runtime.server_page.fake_server import HOSTILE

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def link(address: str, words: str = "") -> str:
    """A link as it is shown."""
    about = f'href="{address}" title="{address}" target="_blank" rel="noopener noreferrer"'
    return f"<a {about}>{words or address}</a>"


@pytest.fixture
def client() -> TestClient:
    return TestClient(Starlette(routes=page_routes()))


def test_one_small_file_that_loads_nothing(client: TestClient) -> None:
    page = client.get("/", headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert len(page.content) <= 300_000
    assert page.text == assembled_page()
    assert not re.search(r"<(link|script)[^>]*(stylesheet|src)", page.text)
    for part in STATIC.iterdir():
        assert part.suffix == ".html" or part.read_text("utf-8") in page.text, part.name
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page.text))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}  # names of SVG and MathML
    assert not re.search(r"<[^>]*\s(style|on\w+)=", page.text)


@pytest.mark.parametrize("headers", [{}, {"accept": "application/json"}])
def test_what_is_no_browser_gets_a_line_of_text(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.get("/", headers=headers)
    assert (answer.status_code, answer.text) == (200, RUNNING)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["vary"] == "Accept"
    assert client.head("/", headers=headers).status_code == 200


def test_policy_allows_the_pages_own_script_and_style_only(client: TestClient) -> None:
    policy = client.get("/", headers=BROWSER).headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert re.fullmatch(r"('sha256-[\w+/]{43}=' ?)+", rules["script-src"])
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", rules["style-src"])
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**a** *b* `c` ~~d~~", "<p><strong>a</strong> <em>b</em> <code>c</code> <s>d</s></p>"),
        ("3. a\n4. b", '<ol start="3">\n<li>a</li>\n<li>b</li>\n</ol>'),
        ("```python\na < b\n```", '<pre><code data-language="python">a &lt; b\n</code></pre>'),
        ("```c++ title\na\n```", '<pre><code data-language="c++">a\n</code></pre>'),
        ('```"><b>\na\n```', "<pre><code>a\n</code></pre>"),
        ("```\nopen", "<pre><code>open\n</code></pre>"),
        ("[a](http://b.c 'd')", f"<p>{link('http://b.c', 'a')}</p>"),
        ("[a][b]\n\n[b]: https://c.d", f"<p>{link('https://c.d', 'a')}</p>"),
        ("<http://a.b> and https://c.d", f"<p>{link('http://a.b')} and {link('https://c.d')}</p>"),
        ("[a](mailto:b@c.d)", f"<p>{link('mailto:b@c.d', 'a')}</p>"),
        ("[a](ftp://b.c) [d](/e)", "<p>a (<code>ftp://b.c</code>) d (<code>/e</code>)</p>"),
        ("![a *b*](http://c.d/e.png)", "<p>[image: a b (<code>http://c.d/e.png</code>)]</p>"),
        ("![](http://a.b)", "<p>[image:  (<code>http://a.b</code>)]</p>"),
        ("<b onclick=x>a</b>", "<p>&lt;b onclick=x&gt;a&lt;/b&gt;</p>"),
    ],
)
def test_markdown(text: str, html: str) -> None:
    assert render(text).strip() == html


def test_a_table_has_its_cells() -> None:
    table = render("|a|b|c|\n|-|-:|:-:|\n|1|2|3|")
    assert re.findall(r"<(t[hd].*?)>", table) == [
        *("thead", "th", 'th align="right"', 'th align="center"'),
        *("td", 'td align="right"', 'td align="center"'),
    ]
    assert re.findall(r">(\w)</t[hd]>", table) == [*"abc123"]


def test_a_long_address_is_shortened() -> None:
    assert f"<code>ftp://{'a' * (MOST_ADDRESS - 6)}…</code>" in render(f"[x](ftp://{'a' * 1000})")


@pytest.mark.parametrize(
    "text", [HOSTILE, "<script>x</script>", "[a](javascript:x)", "![a](data:text/html,x)", "<a\nb"]
)
def test_rendered_html_has_harmless_tags_only(text: str) -> None:
    tags = re.findall(r"<[^>]*>", render(text))
    assert tags
    harmless = (
        r'</?(p|code|pre|strong|em|br)>|<a href="http://[^"<>]*" title="[^"<>]*" target="_blank" rel="[a-z ]*">|</a>'
    )
    assert [tag for tag in tags if not re.fullmatch(harmless, tag)] == []


def test_render_route(client: TestClient) -> None:
    reply = client.post("/render", json={"texts": ["*a*", ""]})
    assert reply.json() == {"html": ["<p><em>a</em></p>\n", ""]}
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'"texts"',
        b"{}",
        b'{"texts": "a"}',
        b'{"texts": [1]}',
        b'{"texts": [null]}',
        b'{"texts": ["\\ud800"]}',
        b'{"texts": ["a"], "more": 1}',
        json.dumps({"texts": ["a"] * (MOST_RENDERED_TEXTS + 1)}).encode(),
    ],
)
def test_render_refuses_what_it_does_not_take(client: TestClient, body: bytes) -> None:
    reply = client.post("/render", content=body, headers={"Content-Type": "application/json"})
    error: Any = reply.json()["error"]
    assert reply.status_code == 400
    assert error["message"] == '/render takes {"texts": [...]}: a list of at most 64 strings of Unicode text'
    assert error["type"] == "invalid_request_error"


def test_render_has_limits(client: TestClient) -> None:
    assert client.post("/render", json={"texts": ["a"] * MOST_RENDERED_TEXTS}).status_code == 200
    frame = len('{"texts": [""]}')
    headers = {"Content-Type": "application/json"}
    for more, status in ((0, 200), (1, 413), (10 * MOST_RENDERED_BYTES, 413)):
        body = f'{{"texts": ["{"a" * (MOST_RENDERED_BYTES - frame + more)}"]}}'
        assert client.post("/render", content=body, headers=headers).status_code == status


def test_render_takes_json_only(client: TestClient) -> None:
    """A form of another site can send text/plain without being asked, but not application/json."""
    assert client.post("/render", content='{"texts": []}', headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.get("/render").status_code == 405
