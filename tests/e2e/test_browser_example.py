"""examples/browser in headless Chromium: ids are Python's, the page streams and stops, errors are told."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal

import pytest

from edgegen import LLM, EngineOptions
from tests.root import ROOT
from tests.systems import lend
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.release

EXAMPLE = ROOT / "examples" / "browser"
PACKAGES = EXAMPLE / "node_modules"
CHROMIUM = shutil.which("chromium")
QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"

TOKENS = 24
NEAR = 0.05
"""Of two logits: a sum of floats in another order may choose the other one."""
EQUAL = 20
"""Of the prompts, at least."""

PROMPTS = [
    "Once upon a time",
    "One day, a little girl named Lily",
    "The dragon",
    "Tom and his dog",
    '"Hello!" said the cat.',
    "It was raining.",
    "The big red ball",
    'Mom said, "It\'s time for bed."',
    "In the forest",
    "a",
    "There were 3 ducks",
    "The sun was hot and",
    "Lily's friend was sad because",
    "The end.",
    "   spaces   ",
    "Zürich, naïve café",
    "日本",
    "\n\nNew lines\n",
    "He ran, and ran, and ran, and",
    "What is your name?",
    "Ben and Mia went to the park. They saw a slide. Ben wanted to go first, but Mia did too. " * 4,
    "The bird flew over the house and the tree and the hill. " * 12,
    "She opened the box. Inside was",
    "🙂",
    "The boy",
    "Every morning, Sam",
    '"Can I play too?" asked',
    "The old man lived in a small house",
    "She had a secret:",
    "After lunch they",
    "Max was a good dog. He liked to",
    "At night, the moon",
]

IDS = """
async ([kv, prompts, tokens]) => {
    const { Bundle } = await import("./bundle.js");
    const bundle = await Bundle.open("bundle/", { kv });
    const found = [];
    for (const prompt of prompts) {
        const ids = bundle.encode(prompt), made = [];
        for await (const id of bundle.generate(ids, { maxNewTokens: tokens })) made.push(id);
        found.push([ids, made]);
    }
    return found;
}
"""


class Handler(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript", ".wasm": "application/wasm"}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a static server: the example, its packages, and a bundle."""
    if not PACKAGES.is_dir():
        pytest.skip("onnxruntime-web is not installed: run `npm ci --prefix examples/browser`")
    folder = tmp_path_factory.mktemp("browser") / "site"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules"))
    lend(PACKAGES, folder / "node_modules")
    shutil.copytree(ROOT / "edgegen" / "bundle" / "embedded" / "stories", folder / "bundle")
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    api = pytest.importorskip("playwright.sync_api", reason="Playwright for Python is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())


@pytest.fixture
def open_page(browser: "Browser", url: str) -> "Iterator[Callable[[str], Page]]":
    """Opens the page, which must ask no other address."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_S * 1000)
    asked = list[str]()

    def open_page(query: str = "") -> "Page":
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{url}/{query}")
        return page

    yield open_page
    context.close()
    assert [each for each in asked if not each.startswith((url, "data:", "blob:"))] == []


def loaded(page: "Page") -> "Page":
    page.get_by_text("stories is loaded: 512 tokens of context").wait_for()
    return page


@pytest.mark.parametrize("kv", ["int8", "float32"])
def test_greedy_ids_are_pythons_but_for_near_ties(
    kv: Literal["int8", "float32"], open_page: "Callable[[str], Page]"
) -> None:
    found: list[tuple[list[int], list[int]]] = loaded(open_page("")).evaluate(IDS, [kv, PROMPTS, TOKENS])
    equal = 0
    with LLM.load(options=EngineOptions(kv=kv, kernels="stock")) as llm:
        for prompt, (ids, made) in zip(PROMPTS, found, strict=True):
            assert ids == llm.encode(prompt), prompt
            there = llm.generate(prompt, max_new_tokens=TOKENS, do_sample=False, repetition_penalty=1.0, top_logprobs=2)
            expected = [*there.token_ids]
            if made == expected[: len(made)] and len(expected) - len(made) in (0, 1):
                equal += 1  # the end-of-sequence id is not among those of the browser
                continue
            at = next(n for n, (one, other) in enumerate(zip(made, expected, strict=False)) if one != other)
            assert there.logprobs is not None
            first, second = there.logprobs[at].top_logprobs
            assert first.logprob - second.logprob < NEAR, prompt
    assert equal >= EQUAL


def test_the_page_streams_and_stops(open_page: "Callable[[str], Page]") -> None:
    page = loaded(open_page(""))
    page.get_by_label("tokens").fill("400")
    page.get_by_role("button", name="Generate").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped: ").wait_for()
    page.get_by_label("tokens").fill("12")
    page.get_by_role("button", name="Generate").click()
    page.get_by_text("Done: 12 tokens").wait_for()
    text = page.locator("#answer").inner_text()
    with LLM.load(options=EngineOptions(kernels="stock")) as llm:
        made = llm.generate("Once upon a time", max_new_tokens=12, do_sample=False, repetition_penalty=1.0).text
    assert text == f"Once upon a time{made}"


def test_the_browser_example_tells_errors(folder: Path, open_page: "Callable[[str], Page]") -> None:
    page = open_page("?bundle=nowhere/")
    page.get_by_text("nowhere/edgegen.json is not there (404): serve the bundle's folder beside this page.").wait_for()
    page = open_page("?kv=int4")
    page.get_by_text("this bundle has no int4 KV cache: int8, float32.").wait_for()
    damaged = folder / "damaged"
    shutil.copytree(folder / "bundle", damaged)
    weights = damaged / "v1" / "weights.data"
    content = bytearray(weights.read_bytes())
    content[1000] ^= 1
    weights.write_bytes(content)
    open_page("?bundle=damaged/").get_by_text("weights.data is damaged: copy the bundle again.").wait_for()
    manifest = json.loads((damaged / "edgegen.json").read_bytes())
    (damaged / "edgegen.json").write_text(json.dumps(manifest | {"format_version": 2}))
    open_page("?bundle=damaged/").get_by_text("is of format 2: 3 is read here.").wait_for()


def test_a_prompt_longer_than_the_context_is_refused(open_page: "Callable[[str], Page]") -> None:
    page = loaded(open_page(""))
    page.get_by_label("Prompt").fill("word " * 600)
    page.get_by_role("button", name="Generate").click()
    page.get_by_text("and the context 512: shorten it.").wait_for()
