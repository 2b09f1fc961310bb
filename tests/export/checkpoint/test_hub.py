"""The hub, stood in for: which files are fetched, how the cache serves, and what each failure says.

huggingface_hub reads its environment when it is imported, so each case runs in a process of its own.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.export.checkpoint.adapters import C_ATTN, factors, write_lora
from tests.export.checkpoint.gguf_bytes import write_llama
from tests.export.checkpoint.layouts import write_gpt2
from tests.forked_command import SEARCH, Forks
from tests.root import ROOT
from tests.standin_hub import StandInHub

pytestmark = pytest.mark.slow

WARNED = SEARCH | {"PYTHONWARNINGS": "default"}
SMALL: dict[str, Any] = {"n_embd": 8, "n_head": 2, "vocab_size": 11, "n_positions": 6}
# Contents differ, as the cache fetches equal files once.
COMPANION = {
    "chat_template.json": '{"chat_template": "x"}',
    "tokenizer.json": "{}",
    "vocab.json": "{ }",
    "merges.txt": "a b",
    "LICENSE": "MIT",
    "NOTICE": "Whose it is.",
    "chat_template.jinja": "{{ messages }}",
}


class Outcome(NamedTuple):
    answer: dict[str, Any]
    stderr: str

    @property
    def message(self) -> str:
        """The one-line error; there was no trace of the libraries below it."""
        assert self.answer.get("error") == "HubError", self
        assert self.stderr == ""
        return self.answer["message"]


Opener = Callable[..., Outcome]


@pytest.fixture
def repos(tmp_path: Path) -> dict[str, Path]:
    original = write_gpt2(tmp_path / "original", layout="original", **SMALL)
    for name, text in COMPANION.items():
        (original / name).write_text(text, newline="\n")
    trainer = write_gpt2(tmp_path / "trainer", layout="trainer", shards=2, **SMALL)
    for name in ("checkpoint-100", "1_Pooling"):
        (trainer / name).mkdir()
    for name in ("modules.json", "1_Pooling/config.json"):
        (trainer / name).write_text(f"{{}} {name}")
    shutil.copyfile(original / "model.safetensors", trainer / "checkpoint-100" / "model.safetensors")
    write_gpt2(tmp_path / "other", layout="untied", seed=5, **SMALL)
    pickled = tmp_path / "pickled"
    shutil.copytree(original, pickled, ignore=shutil.ignore_patterns("*.safetensors"))
    lora = write_lora(tmp_path / "adapter", factors(C_ATTN, 8, 24), base_model_name_or_path="org/tuned")
    for name in ("tokenizer.json", "README.md", "training_args.bin", "config.json.bak"):
        (lora / name).write_text(f"{{}} {name}")
    write_lora(tmp_path / "dora", factors(C_ATTN, 8, 24), use_dora=True)
    unsafe = write_lora(tmp_path / "unsafe", {})
    (unsafe / "adapter_model.safetensors").rename(unsafe / "adapter_model.bin")
    for name in ("several", "one", "bare"):
        write_llama(tmp_path / name / "model-Q8_0.gguf")
    (tmp_path / "one" / "README.md").write_text("one")
    write_llama(tmp_path / "several" / "Q4" / "model-Q4_0.gguf")
    (tmp_path / "several" / "tokenizer.json").write_text("{}")
    (tmp_path / "device").mkdir()
    if sys.platform != "win32":  # which has no such names
        (original / "LICENSE: old").write_text("not to be had everywhere")
        write_llama(tmp_path / "device" / "nul.gguf")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("nothing")
    return {
        "openai-community/gpt2": original,
        "org/tuned": trainer,
        "org/tuned@v2": tmp_path / "other",
        "org/pickled": pickled,
        "org/adapter": lora,
        "org/dora": tmp_path / "dora",
        "org/unsafe-adapter": unsafe,
        "org/empty": tmp_path / "empty",
        "org/several": tmp_path / "several",
        "org/one": tmp_path / "one",
        "org/bare": tmp_path / "bare",
        "org/device": tmp_path / "device",
        "org/secret": original,
        "org/terms": original,
    }


@pytest.fixture
def hub(repos: dict[str, Path]) -> Iterator[StandInHub]:
    aliases = {"gpt2": "openai-community/gpt2"}
    with StandInHub(repos, aliases=aliases, private={"org/secret"}, gated={"org/terms"}) as hub:
        yield hub


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with StandInHub({}) as any_hub:
        forks = Forks(any_hub.environment(Path()) | WARNED, also=("edgegen_export.checkpoint",))
    yield forks
    forks.close()


@pytest.fixture
def open_at(hub: StandInHub, tmp_path: Path, forks: Forks) -> Opener:

    def open_at(source: str, revision: str = "", gguf_file: str = "", **env: str) -> Outcome:
        environment = hub.environment(tmp_path / "hf") | WARNED | env
        # Run where no local folder has the name of a repository.
        done = forks.run((source, revision, gguf_file), b"", tmp_path, environment, "tests.export.checkpoint.opener")
        assert done.returncode == 0, done.stderr.decode()
        return Outcome(json.loads(done.stdout), done.stderr.decode())

    return open_at


def test_only_needed_files_are_fetched(hub: StandInHub, open_at: Opener) -> None:
    first = open_at("gpt2")
    answer = first.answer
    wanted = {"README.md", "config.json", "generation_config.json", "model.safetensors", *COMPANION}
    assert (answer["kind"], answer["id"]) == ("hub", "gpt2")
    assert answer["revision"] == hub.commit("openai-community/gpt2")
    assert set(answer["files"]) == wanted
    assert sorted(hub.downloads) == sorted(f"openai-community/gpt2/{name}" for name in wanted)
    assert "wte.weight" in answer["sums"]
    assert any("downloading model.safetensors (" in said for said in answer["said"])
    assert first.stderr == ""  # no progress bars, no warnings
    assert all("torch" not in agent for agent in hub.user_agents)
    hub.downloads.clear()
    again = open_at("gpt2").answer
    assert again["sums"] == answer["sums"]
    assert not again["said"]
    assert not hub.downloads


def test_shards_and_revisions(hub: StandInHub, open_at: Opener) -> None:
    answer = open_at("org/tuned").answer
    index = [name for name in hub.downloads if "safetensors" in name]
    shards = [f"org/tuned/model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    assert index == ["org/tuned/model.safetensors.index.json", *shards]
    assert not [name for name in hub.downloads if name.endswith((".bin", ".pt", ".pth"))]
    assert {"org/tuned/modules.json", "org/tuned/1_Pooling/config.json"} <= {*hub.downloads}
    other = open_at("org/tuned", "v2").answer
    assert other["revision"] == hub.commit("org/tuned", "v2") != answer["revision"]
    assert "lm_head.weight" in other["sums"]
    by_commit = open_at("org/tuned", answer["revision"]).answer
    assert by_commit["sums"] == answer["sums"]


def test_a_local_folder_wins(hub: StandInHub, open_at: Opener, tmp_path: Path) -> None:
    write_gpt2(tmp_path / "gpt2", layout="untied", **SMALL)
    assert open_at("gpt2").answer["kind"] == "folder"
    assert not hub.requests


def test_the_cache_serves_offline_and_without_network(hub: StandInHub, open_at: Opener) -> None:
    online = open_at("org/tuned").answer
    hub.requests.clear()
    offline = open_at("org/tuned", HF_HUB_OFFLINE="1")
    assert offline.answer["sums"] == online["sums"]
    assert offline.answer["revision"] == online["revision"]
    assert offline.stderr == ""
    assert not hub.requests
    hub.down = 501  # 503 and the like are asked again for half a minute
    assert open_at("org/tuned").answer["sums"] == online["sums"]
    hub.stop()
    assert open_at("org/tuned").answer["sums"] == online["sums"]
    message = open_at("org/tuned", "v2").message
    assert "cannot be reached" in message
    assert "org/tuned at revision v2" in message
    assert "HF_HUB_OFFLINE" in message


def test_offline_and_not_in_the_cache(hub: StandInHub, open_at: Opener, tmp_path: Path) -> None:
    assert "not in the hub cache and HF_HUB_OFFLINE is set" in open_at("gpt2", HF_HUB_OFFLINE="1").message
    assert not hub.requests
    open_at("org/tuned")
    (lost,) = (tmp_path / "hf").rglob("snapshots/*/model-00002-of-00002.safetensors")
    lost.unlink()
    message = open_at("org/tuned", HF_HUB_OFFLINE="1").message
    assert message.endswith("the cache has no model-00002-of-00002.safetensors")
    assert open_at("org/tuned").answer["sums"]  # online, it is fetched again


@pytest.mark.slow
def test_tokens(open_at: Opener, hub: StandInHub) -> None:
    for source, said in (
        ("org/secret", "set HF_TOKEN"),
        ("org/terms", "org/terms is gated: accept its terms"),
    ):
        assert said in open_at(source).message
        assert said in open_at(source, HF_TOKEN="hf_wrong").message
        assert open_at(source, HF_TOKEN=hub.token).answer["sums"]
    assert hub.tokens_at_store == 0


@pytest.mark.slow
def test_each_failure_has_its_sentence(open_at: Opener, hub: StandInHub) -> None:
    message = open_at("org/absent").message
    assert "no folder 'org/absent'" in message
    assert "check the name" in message
    assert "org/tuned has no revision 'v3'" in open_at("org/tuned", "v3").message
    message = open_at("org/pickled").message
    assert "pickled weights only (pytorch_model.bin)" in message
    assert "org/pickled pickled-safetensors" in message
    assert not [name for name in hub.downloads if name.endswith((".bin", ".h5"))]
    assert "`edgegen export org/tuned --adapter org/adapter`" in open_at("org/adapter").message
    assert "no config.json (found: README.md)" in open_at("org/empty").message
    hub.down = 501  # 503 and the like are asked again for half a minute
    assert "answered HTTP 501" in open_at("org/tuned").message


def test_of_an_adapter_only_config_weights_and_tokenizer_are_fetched(hub: StandInHub, open_at: Opener) -> None:
    answer = open_at("org/adapter", "--adapter").answer
    assert (answer["kind"], answer["id"]) == ("hub", "org/adapter")
    assert answer["revision"] == hub.commit("org/adapter")
    wanted = ["adapter_config.json", "adapter_model.safetensors", "tokenizer.json"]
    assert answer["files"] == wanted
    assert sorted(hub.downloads) == [f"org/adapter/{name}" for name in wanted]
    assert len(answer["sums"]) == 2
    assert any(said.startswith("downloading adapter_model.safetensors") for said in answer["said"])
    hub.downloads.clear()
    offline = open_at("org/adapter", "--adapter", HF_HUB_OFFLINE="1").answer
    assert (offline["sums"], offline["revision"]) == (answer["sums"], answer["revision"])
    assert not hub.downloads


@pytest.mark.slow
def test_what_an_adapters_repository_may_lack(hub: StandInHub, open_at: Opener, tmp_path: Path) -> None:
    assert "org/tuned holds no adapter, but a whole model" in open_at("org/tuned", "--adapter").message
    assert "org/empty holds no adapter: it has no adapter_config.json" in open_at("org/empty", "--adapter").message
    assert "shows no model of that id" in open_at("org/absent", "--adapter").message
    message = open_at("org/unsafe-adapter", "--adapter").message
    assert "pickled weights only (adapter_model.bin)" in message
    words = shlex.split(message.splitlines()[-1])
    assert words[3:] == ["org/unsafe-adapter", "unsafe-adapter"]
    compile(words[2], "command", "exec")
    refused = open_at("org/dora", "--adapter").answer
    assert refused["error"] == "UnsupportedModelError"
    assert "org/dora asks for what cannot be merged" in refused["message"]
    assert not [name for name in hub.downloads if name.endswith((".bin", ".safetensors"))]
    open_at("org/adapter", "--adapter")
    (lost,) = (tmp_path / "hf").rglob("snapshots/*/adapter_model.safetensors")
    lost.unlink()
    message = open_at("org/adapter", "--adapter", HF_HUB_OFFLINE="1").message
    assert message.endswith("the cache has no adapter_model.safetensors")


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in's folder cannot have such a file")
def test_a_file_that_not_every_system_can_have_is_not_fetched(hub: StandInHub, open_at: Opener) -> None:
    assert (
        "org/device has its model in 'nul.gguf', which is no file name on every system" in open_at("org/device").message
    )
    assert hub.downloads == []


def test_only_the_chosen_gguf_file_is_fetched(hub: StandInHub, open_at: Opener) -> None:
    message = open_at("org/several").answer["message"]
    assert "org/several holds 2 GGUF files, choose one with --gguf-file: Q4/model-Q4_0.gguf, model-Q8_0.gguf" in message
    assert "(did you mean 'model-Q8_0.gguf'?)" in open_at("org/several", gguf_file="model-Q8_1.gguf").answer["message"]
    assert not hub.downloads
    answer = open_at("org/several", gguf_file="Q4/model-Q4_0.gguf").answer
    assert answer["files"] == ["model-Q4_0.gguf", "tokenizer.json"]
    assert sorted(hub.downloads) == ["org/several/Q4/model-Q4_0.gguf", "org/several/tokenizer.json"]
    assert (answer["kind"], answer["id"]) == ("hub", "org/several")
    assert answer["sums"] == {"model.embed_tokens.weight": sum(range(24))}
    assert [said for said in answer["said"] if "Q4/model-Q4_0.gguf (" in said]


@pytest.mark.parametrize("repo", ["org/one", "org/bare"])
def test_the_only_gguf_file_is_taken_and_cached(hub: StandInHub, open_at: Opener, repo: str) -> None:
    online = open_at(repo).answer
    assert f"{repo}/model-Q8_0.gguf" in hub.downloads
    hub.downloads.clear()
    again = open_at(repo).answer
    assert not again["said"]
    assert not hub.downloads
    for env in ({"HF_HUB_OFFLINE": "1"}, {}):
        offline = open_at(repo, **env).answer
        assert (offline["sums"], offline["revision"]) == (online["sums"], online["revision"])
        hub.stop()
    message = open_at(repo, gguf_file="other.gguf").message
    assert "cannot be reached" in message
    assert message.endswith("the cache has no other.gguf")


def test_a_config_that_is_refused_is_the_only_file_fetched(hub: StandInHub, tmp_path: Path) -> None:
    script = """
import sys
from edgegen.errors import UnsupportedModelError
from edgegen_export.checkpoint import Checkpoint
def refuse(config):
    raise UnsupportedModelError("not this one: " + config["model_type"])
try:
    Checkpoint.open("gpt2", check_config=refuse)
except UnsupportedModelError as error:
    print(error)
"""
    path = os.pathsep.join([str(ROOT), str(ROOT / "export")])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=hub.environment(tmp_path / "hf") | {"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.strip() == "not this one: gpt2"
    assert hub.downloads == ["openai-community/gpt2/config.json"]


EXPORT_TO_A_FULL_DISK = """
import json, sys
from pathlib import Path
from edgegen.errors import ExportError
from edgegen_export.files import disk
from edgegen_export.options import ExportOptions
from edgegen_export.preflight import preflight
from edgegen_export.pipeline import export

refuse = disk.refuse_full_disk

def small(needs):
    refuse(needs, lambda folder: disk.Disk(1, int(sys.argv[3])))

disk.refuse_full_disk = preflight.refuse_full_disk = small
try:
    export(sys.argv[1], Path(sys.argv[2]), ExportOptions(adapter=sys.argv[4] if sys.argv[4:] else None))
except ExportError as error:
    print(json.dumps(str(error)))
"""


def test_a_full_disk_is_told_before_an_adapter_is_downloaded(tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "adapter", factors(C_ATTN, 8, 24), base_model_name_or_path="org/tuned")
    with StandInHub({"org/adapter": lora}) as hub:
        arguments = ["-c", EXPORT_TO_A_FULL_DISK, "org/tuned", str(tmp_path / "out"), "10", "org/adapter"]
        environment = {
            **hub.environment(tmp_path / "home"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")]),
        }
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        assert "the disk is too full: the export needs 1 MB for the download in" in json.loads(done.stdout)
        assert hub.downloads == ["org/adapter/adapter_config.json"]


@pytest.mark.parametrize("name", ["org/tuned", "org/sharded"])
def test_a_full_disk_is_told_before_weights_are_downloaded(name: str, tmp_path: Path) -> None:
    shape: dict[str, Any] = {**SMALL, "n_embd": 32}  # heads as small as those of SMALL are refused
    original = write_gpt2(tmp_path / "whole", layout="original", **shape)
    sharded = write_gpt2(tmp_path / "parts", layout="trainer", shards=2, **shape)
    with StandInHub({"org/tuned": original, "org/sharded": sharded}) as hub:
        arguments = [sys.executable, "-c", EXPORT_TO_A_FULL_DISK, name, str(tmp_path / "out"), "1000000"]
        search = os.pathsep.join([str(ROOT), str(ROOT / "export")])
        environment = {**hub.environment(tmp_path / "home"), "PYTHONPATH": search}
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True, timeout=120)
        message = json.loads(done.stdout)
        assert "the disk is too full: the export needs 1 MB for the download in" in message
        assert "for the bundle and temporary files in" in message
        assert "1 MB are free. Free " in message
        assert "set HF_HOME to a folder on another disk, or give -o a folder on another disk." in message
        assert not any(file.endswith(".safetensors") for file in hub.downloads)
        assert any(file.endswith("config.json") for file in hub.downloads)
    assert not (tmp_path / "out").exists()
