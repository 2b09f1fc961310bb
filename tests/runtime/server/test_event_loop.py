"""The event loop stays free while a long text is tokenized: other clients are answered."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions
from edgegen.server.http.options import MOST_LIBRARY_CHARACTERS
from edgegen.tokenizer import Tokenizer
from tests.runtime.models import RandomGraphs, fake_runner, write_fake_bundle
from tests.runtime.server.material import CHAT, COMPLETION, client_of
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

# White space might be stripped, so that a length alone does not refuse it: such a text is tokenized whole.
MEGABYTE = f"Once{' ' * (1 << 20)}upon a time."


class GatedTokenizer(Tokenizer):
    """Has tokenized a long text, and gives its ids when it is let to."""

    reached, opened = Event(), Event()

    def _encoding(self, text: str, *, add_special_tokens: bool) -> Any:
        found = super()._encoding(text, add_special_tokens=add_special_tokens)
        if len(text) >= MOST_LIBRARY_CHARACTERS:
            self.reached.set()
            assert self.opened.wait(PATIENCE_S)
        return found


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (COMPLETION, {"prompt": MEGABYTE}, 400),
        (CHAT, {"messages": [{"role": "user", "content": MEGABYTE}], "context_overflow": "error"}, 400),
        ("/tokenize", {"content": MEGABYTE[:MOST_LIBRARY_CHARACTERS]}, 200),
    ],
    ids=["completion", "chat", "tokenize"],
)
def test_health_is_told_while_a_long_text_is_tokenized(
    tmp_path: Path, path: str, body: dict[str, Any], status: int
) -> None:
    bundle = write_fake_bundle(tmp_path / "fake")
    tokenizer = GatedTokenizer.from_file(bundle.file("tokenizer.json"))
    tokenizer.reached, tokenizer.opened = Event(), Event()
    graphs = RandomGraphs()
    llm = LLM(bundle, tokenizer, fake_runner(graphs), EngineOptions(prefix_cache=0))
    with client_of(llm) as client, ThreadPoolExecutor(1) as other:  # one event loop for both requests
        asked = other.submit(client.post, path, json=body)
        try:
            assert tokenizer.reached.wait(PATIENCE_S)
            assert client.get("/health").json() == {"status": "ok"}
            assert not asked.done()
        finally:
            tokenizer.opened.set()
        assert asked.result(PATIENCE_S).status_code == status
    assert graphs.runs == []
