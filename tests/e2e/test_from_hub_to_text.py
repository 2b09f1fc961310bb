"""The first thing a user does: `edgegen export gpt2`, then `edgegen generate -m gpt2-int8`."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.byte_level import LETTER_OF_BYTE
from tests.export.checkpoint.adapters import C_ATTN, factors, write_lora
from tests.export.checkpoint.layouts import write_gpt2
from tests.forked_command import LITTLE, SEARCH, Forks
from tests.standin_hub import StandInHub

Edgegen = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hub(tmp_path: Path, tiny_tokenizer: Path) -> Iterator[StandInHub]:
    original = write_gpt2(tmp_path / "repos/gpt2", layout="original", vocab_size=260, tokenizer=tiny_tokenizer)
    trainer = write_gpt2(tmp_path / "repos/mine", layout="trainer", vocab_size=260, tokenizer=tiny_tokenizer)
    lora = write_lora(tmp_path / "repos/lora", factors(C_ATTN, 64, 192))
    dora = write_lora(tmp_path / "repos/dora", {}, use_dora=True)
    with StandInHub(
        {
            "openai-community/gpt2": original,
            "me/mine": trainer,
            "me/mine@v2": original,
            "me/lora": lora,
            "me/dora": dora,
        },
        aliases={"gpt2": "openai-community/gpt2"},
        private=["me/mine"],
    ) as running:
        yield running


@pytest.fixture
def tiny_tokenizer(tmp_path: Path) -> Path:
    """A byte-level vocabulary without merges: 256 bytes."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {letter: i for i, letter in enumerate(LETTER_OF_BYTE.values())},
            "merges": [],
        },
    }
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with StandInHub({}) as any_hub:
        forks = Forks(any_hub.environment(Path()) | SEARCH, also=LITTLE)
    yield forks
    forks.close()


@pytest.fixture
def edgegen(hub: StandInHub, forks: Forks, tmp_path: Path) -> Edgegen:
    """Runs the command line in an empty folder, with the stand-in hub and a home of its own."""
    (tmp_path / "here").mkdir()
    base = hub.environment(tmp_path / "hf") | SEARCH | {"EDGEGEN_HOME": str(tmp_path / "home")}

    def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        done = forks.run(arguments, b"", tmp_path / "here", base | environment)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def test_export_by_hub_id_then_generate_by_name(edgegen: Edgegen, hub: StandInHub, tmp_path: Path) -> None:
    exported = edgegen("export", "gpt2", "--int8")
    assert exported.returncode == 0, exported.stderr
    assert Path(exported.stdout.strip()) == tmp_path / "home/bundles/gpt2-int8"
    assert exported.stderr == ""  # no terminal: no bars, no summary
    assert not any(name.endswith((".bin", ".h5", ".msgpack", ".onnx")) for name in hub.downloads)

    asked = len(hub.requests)
    answer = edgegen("generate", "-m", "gpt2-int8", "-n", "12", "--json", "Hello")
    assert answer.returncode == 0, answer.stderr
    assert len(json.loads(answer.stdout)["token_ids"]) == 12
    assert len(hub.requests) == asked  # the hub is for export only

    manifest = json.loads((tmp_path / "home/bundles/gpt2-int8/edgegen.json").read_text())
    assert manifest["source"] == {
        "kind": "hub",
        "id": "gpt2",
        "revision": hub.commit("openai-community/gpt2"),
        "adapter": None,
    }


WINDOWED = """
import sys
import traceback
from pathlib import Path

sys.stdin = sys.stdout = sys.stderr = None

from edgegen import LLM
from edgegen_export.checkpoint import hub
from edgegen_export.pipeline import export

hub._LONG_BYTES = 0
try:
    export("gpt2", Path("bundle"))
    with LLM.load("bundle") as llm:
        answer = str(len(llm.generate("Hello", max_new_tokens=12).token_ids))
except BaseException:
    answer = traceback.format_exc()
Path("answer.txt").write_text(answer)
"""
"""An app whose downloads are all long enough for a bar, and that has no console to show one in."""


@pytest.mark.slow
def test_an_app_without_a_console_exports_and_generates(hub: StandInHub, tmp_path: Path) -> None:
    own = hub.environment(tmp_path / "hf") | SEARCH | {"EDGEGEN_HOME": str(tmp_path / "home")}
    app = [sys.executable, "-c", WINDOWED]
    done = subprocess.run(app, env=own, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (tmp_path / "answer.txt").read_text() == "12"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_adapter_of_the_hub_is_merged_in_and_recorded(edgegen: Edgegen, hub: StandInHub, tmp_path: Path) -> None:
    exported = edgegen("export", "gpt2", "--adapter", "me/lora")
    assert exported.returncode == 0, exported.stderr
    assert exported.stderr == "edgegen: warning: the adapter me/lora was trained on org/base, and is merged into gpt2\n"
    assert Path(exported.stdout.strip()) == tmp_path / "home/bundles/gpt2-lora-int8"
    manifest = json.loads((tmp_path / "home/bundles/gpt2-lora-int8/edgegen.json").read_text())
    commit = hub.commit("me/lora") or ""
    origin = {"kind": "hub", "id": "me/lora", "revision": commit}
    assert manifest["source"]["adapter"] == origin
    facts = edgegen("info", "gpt2-lora-int8")
    assert f"adapter  me/lora (hub, {commit[:12]})" in facts.stdout
    assert json.loads(edgegen("info", "gpt2-lora-int8", "--json").stdout)["source"]["adapter"] == origin

    assert edgegen("export", "gpt2").returncode == 0
    assert "adapter  " not in edgegen("info", "gpt2-int8").stdout
    answers: list[list[int]] = []
    for name in ("gpt2-int8", "gpt2-lora-int8"):
        answer = edgegen("generate", "-m", name, "-n", "12", "--json", "Hello")
        answers.append(json.loads(answer.stdout)["token_ids"])
    assert answers[0] != answers[1]


@pytest.mark.slow
def test_a_refused_adapter_downloads_no_model(edgegen: Edgegen, hub: StandInHub) -> None:
    refused = edgegen("export", "gpt2", "--adapter", "me/dora")
    assert refused.returncode == 1
    assert "use_dora is set" in refused.stderr
    assert hub.downloads == ["me/dora/adapter_config.json"]
    as_source = edgegen("export", "me/lora")
    assert as_source.returncode == 1
    assert "`edgegen export org/base --adapter me/lora`" in as_source.stderr


@pytest.mark.slow
def test_two_layouts_of_the_same_weights_give_the_same_tokens(edgegen: Edgegen) -> None:
    answers: list[list[int]] = []
    for source, token in (("gpt2", ""), ("me/mine", "hf_standin")):
        assert edgegen("export", source, "--fp32", **({"HF_TOKEN": token} if token else {})).returncode == 0
        name = source.rpartition("/")[2] + "-fp32"
        answer = edgegen("generate", "-m", name, "-n", "20", "--json", "The same")
        answers.append(json.loads(answer.stdout)["token_ids"])
    assert answers[0] == answers[1]


def test_a_private_model_without_a_token_is_one_sentence(edgegen: Edgegen) -> None:
    refused = edgegen("export", "me/mine")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "HF_TOKEN" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_a_revision_is_exported_and_recorded(edgegen: Edgegen, hub: StandInHub, tmp_path: Path) -> None:
    exported = edgegen("export", "me/mine", "--revision", "v2", "-o", "out", HF_TOKEN="hf_standin")
    assert exported.returncode == 0, exported.stderr
    manifest = json.loads((tmp_path / "here/out/edgegen.json").read_text())
    assert manifest["source"]["revision"] == hub.commit("me/mine", "v2")


@pytest.mark.slow
def test_a_second_export_works_offline_from_the_cache(edgegen: Edgegen, hub: StandInHub) -> None:
    assert edgegen("export", "gpt2").returncode == 0
    hub.stop()
    again = edgegen("export", "gpt2", "--force", HF_HUB_OFFLINE="1")
    assert again.returncode == 0, again.stderr
    never = edgegen("export", "me/other", HF_HUB_OFFLINE="1")
    assert never.returncode == 1
    assert "HF_HUB_OFFLINE" in never.stderr


@pytest.mark.slow
def test_an_existing_bundle_is_kept_unless_forced(edgegen: Edgegen, hub: StandInHub) -> None:
    assert edgegen("export", "gpt2").returncode == 0
    asked = len(hub.requests)
    refused = edgegen("export", "gpt2")
    assert len(hub.requests) == asked  # nothing is downloaded for a bundle that cannot be written
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert edgegen("verify", "gpt2-int8").returncode == 0
