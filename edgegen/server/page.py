"""The web page of ``edgegen serve``: static files as one page at ``/``, and ``/render``: markdown as safe HTML.

Clients of ollama look at ``/`` whether the server is there. What does not ask for HTML gets a line of text.

What a model says is never trusted: mistune escapes its HTML, images become text, nh3 lets through a short list of tags,
and links only to addresses of the web; the page's Content-Security-Policy forbids every script, style and address but
its own.
"""

import base64
import hashlib
import json
import re
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any, cast

import mistune
import nh3
from mistune.block_parser import BlockParser
from mistune.core import BlockState
from mistune.plugins.footnotes import REF_FOOTNOTE, parse_ref_footnote
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from edgegen.server.http.work import READING

STATIC = Path(__file__).parent / "static"

RUNNING = "Ollama is running (edgegen)"
"""Text for clients other than browsers; some clients look for the words of ollama in it."""

MOST_RENDERED_BYTES = 256 * 1024
"""Of the body of a request to ``/render``."""

MOST_RENDERED_TEXTS = 64
"""Texts of one request to ``/render``."""

MOST_ADDRESS = 200
"""Characters that are shown of the address of a link or an image."""

TAGS = set(
    "a p br hr em strong s code pre blockquote ul ol li h1 h2 h3 h4 h5 h6 table thead tbody tr th td sup".split()
)
"""All that a rendered text is made of: nothing that loads, runs or styles anything."""

SCHEMES = {"http", "https", "mailto"}
"""Of addresses that a link may lead to, in a tab of its own that knows nothing of this one."""

PLUGINS = ["table", "strikethrough", "url", "footnotes", "task_lists"]
"""Of mistune: what is more than CommonMark."""

_NOTE_REFERENCE = re.compile(r"\[\^((?:[^\\\[\]\s]|\\.){1,500})\](?!:)")

_LANGUAGE = re.compile(r"[\w+#.-]{1,20}(?=\s|$)")
"""Name of a language at the head of a block of code."""

SAFE_HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def page_routes() -> list[Route]:
    """The routes of the web page, for the server's application."""
    return [Route("/", _page, methods=["GET"]), Route("/render", _render, methods=["POST"])]


def render_markdown(text: str) -> str:
    """Safe HTML of a text in markdown, which may break off anywhere, and may be hostile."""
    rendered = cast(str, _markdown()(text))
    return nh3.clean(
        rendered,
        tags=TAGS,
        attributes={
            "code": {"data-language"},
            "ol": {"start", "data-notes"},
            "li": {"data-task"},
            "a": {"href", "title"},
            "th": {"align"},
            "td": {"align"},
        },
        url_schemes=SCHEMES,
        set_tag_attribute_values={"a": {"target": "_blank"}},
        link_rel="noopener noreferrer",
    )


def assembled_page() -> str:
    """The page with its styles and scripts in it: browsers ask for one file, and the policy has their hashes."""

    def text(name: str) -> str:
        return (STATIC / name).read_text("utf-8")

    page = re.sub(
        r'<link rel="stylesheet" href="([\w.]+)">',
        lambda found: f"<style>\n{text(found[1])}</style>",
        text("index.html"),
    )
    return re.sub(r'<script src="([\w.]+)"></script>', lambda found: f"<script>\n{text(found[1])}</script>", page)


def content_security_policy(page: str) -> str:
    """The policy under which a page runs the scripts and styles that are in it, and asks its own server only."""
    allowed = {
        tag: " ".join(_digest(block) for block in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL))
        for tag in ("script", "style")
    }
    rules = (
        "default-src 'none'",
        f"script-src {allowed['script']}",
        f"style-src {allowed['style']}",
        "img-src data:",  # the page's icon
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types rendered",
    )
    return "; ".join(rules)


def _digest(block: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()}'"


@cache
def _page_and_headers() -> tuple[str, dict[str, str]]:
    page = assembled_page()
    return page, SAFE_HEADERS | {"Content-Security-Policy": content_security_policy(page)}


async def _page(request: Request) -> Response:
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(RUNNING, headers={**SAFE_HEADERS, "Vary": "Accept"})
    page, headers = _page_and_headers()
    return HTMLResponse(page, headers={**headers, "Vary": "Accept"})


async def _render(request: Request) -> Response:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _refusal(415, "/render takes a body of the type application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_RENDERED_BYTES:
            return _refusal(413, f"the body of /render is larger than {MOST_RENDERED_BYTES} bytes")
    texts = _texts(bytes(body))
    if texts is None:
        return _refusal(
            400, f'/render takes {{"texts": [...]}}: a list of at most {MOST_RENDERED_TEXTS} strings of Unicode text'
        )
    html = await READING.run(lambda: [render_markdown(text) for text in texts])
    return JSONResponse({"html": html}, headers=SAFE_HEADERS)


def _texts(body: bytes) -> list[str] | None:
    """The texts of a body; None where it is anything else."""
    try:
        asked: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(asked, dict) or asked.keys() != {"texts"}:
        return None
    texts = cast(dict[str, Any], asked)["texts"]
    if not isinstance(texts, list) or not all(_is_text(text) for text in cast(list[Any], texts)):
        return None
    found = cast(list[str], texts)
    return found if len(found) <= MOST_RENDERED_TEXTS else None


def _is_text(value: Any) -> bool:
    """Whether it is a string without half a surrogate pair, which JSON allows and UTF-8 has no bytes for."""
    return isinstance(value, str) and not re.search(r"[\ud800-\udfff]", value)


def _refusal(status: int, message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status, SAFE_HEADERS)


class _SafeRenderer(mistune.HTMLRenderer):
    """HTML in which images, and links that lead nowhere on the web, are text."""

    def block_code(self, code: str, info: str | None = None) -> str:
        """Code with the name of its language, by which the page colors it."""
        name = _LANGUAGE.match(unescape(info or "").strip())
        language = f' data-language="{name[0]}"' if name else ""
        return f"<pre><code{language}>{escape(code)}</code></pre>\n"

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """A link that tells its address, unless its words are it; its address alone where it is not of the web."""
        address = unescape(url)
        if address.partition(":")[0].lower() not in SCHEMES:
            return f"{text} ({_address(url)})"
        return f'<a href="{escape(address)}" title="{escape(address[:MOST_ADDRESS])}">{text}</a>'

    def image(self, text: str, url: str, title: str | None = None) -> str:
        return f"[image: {escape(unescape(mistune.util.striptags(text)))} ({_address(url)})]"

    def strikethrough(self, text: str) -> str:
        return f"<s>{text}</s>"

    def table_cell(self, text: str, align: str | None = None, head: bool = False) -> str:
        """A cell of a table, aligned by an attribute: the page's policy forbids styles."""
        tag, aligned = "th" if head else "td", f' align="{align}"' if align else ""
        return f"<{tag}{aligned}>{text}</{tag}>\n"

    def task_list_item(self, text: str, checked: bool = False) -> str:
        """An item of a list of tasks; its box is text, which readers of screens and copies have too."""
        box = "☑ " if checked else "☐ "
        text = text.replace("<p>", f"<p>{box}", 1) if text.startswith("<p>") else box + text
        return f"<li data-task>{text}</li>\n"

    def footnote_ref(self, key: str, index: int) -> str:
        return f"<sup>{index}</sup>"

    def footnotes(self, text: str) -> str:
        return f"<hr>\n<ol data-notes>\n{text}</ol>\n"

    def footnote_item(self, text: str, key: str, index: int) -> str:
        return f"<li>{text}</li>\n"


@cache
def _markdown() -> mistune.Markdown:
    markdown = mistune.create_markdown(renderer=_SafeRenderer(escape=True), plugins=PLUGINS)
    markdown.block.register("ref_footnote", REF_FOOTNOTE, _footnote, before="ref_link")
    return markdown


def _footnote(block: BlockParser, match: re.Match[str], state: BlockState) -> int | None:
    """Reads a note that the text refers to; any other stays text."""
    keys: set[str] | None = state.env.get("note_keys")
    if keys is None:
        keys = state.env["note_keys"] = set(_NOTE_REFERENCE.findall(state.src))
    return parse_ref_footnote(block, match, state) if match["footnote_key"] in keys else None


def _address(url: str) -> str:
    """An address that mistune has escaped for HTML already, as text."""
    address = unescape(url)
    shown = address if len(address) <= MOST_ADDRESS else f"{address[:MOST_ADDRESS]}…"
    return f"<code>{escape(shown)}</code>"
