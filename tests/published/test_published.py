"""Models as people publish them, the whole way: exported by the command, moved, asked, served; transformers judges."""

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from edgegen import LLM
from tests.every_case import EVERY
from tests.published.conftest import SEARCH, Command, Probed, Record
from tests.published.made import checkpoint_of, gguf_of
from tests.published.making import GOLDEN, PROMPT
from tests.published.models import PublishedModel, in_turns
from tests.root import ROOT
from tests.runtime.server.serving import serving
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.release

GREEDY = ("--temperature", "0", "-n", "4", "--threads", "1")
HELLO = [{"role": "user", "content": "Hello"}]
WIRES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "max_completion_tokens": 4, "temperature": 0},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 4, "temperature": 0},
    "/v1/messages": {"messages": HELLO, "max_tokens": 4, "temperature": 0},
    "/api/chat": {"messages": HELLO, "stream": False, "options": {"num_predict": 4, "temperature": 0}},
    "/completion": {"prompt": PROMPT, "n_predict": 4, "temperature": 0},
}
"""A request on each wire that a server speaks."""


def test_float32(model: PublishedModel, edgegen: Command, probed: Probed, record: Record, tmp_path: Path) -> None:
    """Ids of hard texts, greedy ids, each end of a text, and conversations are those of the libraries."""
    edgegen("export", str(checkpoint_of(model)), "--fp32", "-o", str(tmp_path / "bundle"))
    record(probed(tmp_path / "bundle", "ids", "greedy", "ends", "chats"))


@pytest.mark.parametrize("model", in_turns(0), ids=str, indirect=True)
def test_int8(model: PublishedModel, edgegen: Command, record: Record, tmp_path: Path) -> None:
    """See ``_walk``."""
    record(_walk(model, "--int8", edgegen, tmp_path))


@pytest.mark.parametrize("model", in_turns(1), ids=str, indirect=True)
def test_int4(model: PublishedModel, edgegen: Command, record: Record, tmp_path: Path) -> None:
    """See ``_walk``."""
    record(_walk(model, "--int4", edgegen, tmp_path))


def _walk(model: PublishedModel, scheme: str, edgegen: Command, folder: Path) -> dict[str, int]:
    """A bundle that was moved goes on with a prompt, chats in a pipe, and answers on every wire."""
    edgegen("export", str(checkpoint_of(model)), scheme, *_calibration(model), "-o", str(folder / "bundle"))
    moved = folder / "elsewhere" / "moved"
    moved.parent.mkdir()
    shutil.move(folder / "bundle", moved)
    tokens = _generated(model, edgegen, str(moved))
    template = json.loads((checkpoint_of(model) / GOLDEN).read_bytes())["template"]
    edgegen("chat", "-m", str(moved), *(("--chat",) if template else ()), *GREEDY, stdin="Hello\nWho?\n")
    with serving("-m", str(moved), "--threads", "1", **SEARCH) as (_, address):
        for path, fields in WIRES.items():
            assert _spoken(_asked(address + path, {"model": "moved", **fields})) > 0, path
    return {"tokens": tokens, "wires": len(WIRES)}


def _generated(model: PublishedModel, edgegen: Command, bundle: str) -> int:
    """How many tokens the command generates, which are those after the ids that the library has of the prompt."""
    prompt: list[int] = json.loads((checkpoint_of(model) / GOLDEN).read_bytes())["prompt"]
    said = json.loads(edgegen("generate", "-m", bundle, *GREEDY, "--json", PROMPT))
    with LLM.load(bundle) as llm:
        assert said["token_ids"] == list(llm.generate(prompt, temperature=0, max_new_tokens=4).token_ids)
    return len(said["token_ids"])


def test_gguf(model: PublishedModel, edgegen: Command, probed: Probed, record: Record, tmp_path: Path) -> None:
    """The same model as a GGUF file gives the same ids."""
    if model.gguf is None:
        pytest.skip(model.no_gguf)
    edgegen("export", str(gguf_of(model)), "--fp32", "-o", str(tmp_path / "bundle"))
    record(probed(tmp_path / "bundle", "ids", "greedy", "ends", "chats"))


def test_gguf_int4(model: PublishedModel, edgegen: Command, record: Record, tmp_path: Path) -> None:
    """The calibrated default in four bits is made of a GGUF file as well."""
    if model.gguf is None or not model.gguf_int4 or not (EVERY or model.samples):
        pytest.skip(model.no_gguf or "other models show it")
    edgegen("export", str(gguf_of(model)), "--int4", *_calibration(model), "-o", str(tmp_path / "bundle"))
    record({"tokens": _generated(model, edgegen, str(tmp_path / "bundle"))})


def _calibration(model: PublishedModel) -> tuple[str, ...]:
    """A text to calibrate on; none for the models that stand for the default, which takes a text of the model's own."""
    return () if model.samples else ("--calibration", str(ROOT / "README.md"))


def _asked(url: str, fields: dict[str, Any]) -> dict[str, Any]:
    request = Request(url, json.dumps(fields).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=PATIENCE_S) as response:
            return json.load(response)
    except HTTPError as error:
        pytest.fail(f"{url}: {error.code}, {error.read().decode()}")


def _spoken(answer: dict[str, Any]) -> int:
    """How many tokens an answer has, whichever wire it came on."""
    usage = answer.get("usage") or answer
    names = ("completion_tokens", "output_tokens", "eval_count", "tokens_predicted")
    return next(usage[name] for name in names if name in usage)
