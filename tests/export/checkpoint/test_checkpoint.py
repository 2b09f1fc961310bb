"""Checkpoint.open on local folders: what is read, and how everything else is refused."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import CheckpointError, UsageError
from edgegen_export.checkpoint import Checkpoint, Listing, Source
from edgegen_export.tokenizer.files import tokenizer_files
from tests.export.checkpoint.gguf_bytes import write_llama
from tests.export.checkpoint.layouts import gpt2_tensors, numpy_dtype, write_gpt2, write_safetensors
from tests.export.test_process import run_python

LAYOUTS = ("original", "trainer", "untied", "tied_with_head")
SMALL: dict[str, Any] = {"n_embd": 8, "n_head": 2, "vocab_size": 11, "n_positions": 6}


def refusal(source: Path | str) -> str:
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(str(source))
    return str(caught.value)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_open(tmp_path: Path, layout: Any, dtype: str, shards: int) -> None:
    folder = write_gpt2(tmp_path / "fine", layout=layout, dtype=dtype, shards=shards, **SMALL)
    checkpoint = Checkpoint.open(str(folder))
    assert checkpoint.source == Source("folder", "fine", None)
    assert checkpoint.path == folder
    assert checkpoint.config["model_type"] == "gpt2"
    prefix = "" if layout == "original" else "transformer."
    plain = {"n_embd": 8, "vocab_size": 11, "n_positions": 6}
    for name, array in gpt2_tensors(**plain).items():
        tensor = checkpoint.tensors[prefix + name]
        assert tensor.dtype == dtype
        np.testing.assert_array_equal(tensor.read(), array.astype(numpy_dtype(dtype)).astype(np.float32))
    assert ("lm_head.weight" in checkpoint.tensors) == (layout in ("untied", "tied_with_head"))
    assert (f"{prefix}h.0.attn.bias" in checkpoint.tensors) == (layout in ("original", "tied_with_head"))
    if layout == "tied_with_head":
        mask = checkpoint.tensors["transformer.h.0.attn.bias"]
        assert mask.dtype == "uint8"
        np.testing.assert_array_equal(mask.read()[0, 0], np.tril(np.ones((6, 6), np.float32)))


def test_files_are_found_by_name(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(str(write_gpt2(tmp_path / "a", layout="trainer", **SMALL)))
    assert checkpoint.file("generation_config.json") == tmp_path / "a" / "generation_config.json"
    assert checkpoint.file("tokenizer.json") is None


@pytest.mark.parametrize("gguf", [False, True])
def test_the_folder_is_listed_once(tmp_path: Path, gguf: bool) -> None:
    folder = write_llama(tmp_path / "a.gguf").parent if gguf else write_gpt2(tmp_path, layout="trainer", **SMALL)
    listed: list[Path] = []

    def read_listing(folder: Path) -> Listing:
        listed.append(folder)
        return Listing.read(folder)

    checkpoint = Checkpoint.open(str(folder), read_listing=read_listing)
    (folder / "tokenizer.json").write_text("{}")  # too late to be seen
    assert checkpoint.file("tokenizer.json") is None
    assert tokenizer_files(checkpoint) == {}
    assert listed == [folder]


LISTINGS = """
import sys
from pathlib import Path
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export

source, listed = Path(sys.argv[1]), []

def hook(event, args):
    if event in ("os.listdir", "os.scandir") and args and Path(str(args[0])) == source:
        listed.append(event)

sys.addaudithook(hook)
export(str(source), Path(sys.argv[2]), ExportOptions(scheme="fp32"))
print(len(listed))
"""


def test_a_whole_export_lists_the_folder_once(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "a", layout="trainer", shards=2, n_embd=16, n_head=2, vocab_size=11, n_positions=6)
    (folder / "LICENSE").write_text("free")
    assert run_python(LISTINGS, folder, tmp_path / "bundle").strip() == "1"


def test_a_lone_file_of_another_name_serves(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "a", layout="trainer", **SMALL)
    (folder / "model.safetensors").rename(folder / "weights-final.safetensors")
    assert "transformer.wte.weight" in Checkpoint.open(str(folder)).tensors
    write_safetensors(folder / "more.safetensors", {"a": np.ones(1, np.float32)})
    message = refusal(folder)
    assert "several safetensors files" in message
    assert "more.safetensors, weights-final.safetensors" in message


def test_the_folder_may_be_relative_or_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gpt2(tmp_path / "org" / "gpt2", layout="trainer", **SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for source in (
        "org/gpt2",
        "./org/gpt2",
        "org/gpt2/",
        "~/org/gpt2",
    ):  # an existing folder wins over a hub id
        assert Checkpoint.open(source).source == Source("folder", "gpt2", None)
    monkeypatch.chdir(tmp_path / "org" / "gpt2")
    assert Checkpoint.open(".").source.id == "gpt2"


@pytest.mark.parametrize(
    "source",
    ["./absent", "/absent", "~/absent", "a/b/c", "absent/", "", "..", "a b", "x\0y", "-x", "a" * 5000],
)
def test_what_cannot_be_a_hub_id_never_asks_the_hub(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgegen_export.checkpoint.hub.fetch", None)
    if source == "..":
        assert "no config.json" in refusal(source)
    else:
        assert "hub id" in refusal(source)


def test_absent_folders_suggest_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-500").mkdir()
    assert "did you mean 'checkpoint-500'?" in refusal(tmp_path / "checkpoint-50")


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "a", layout="trainer", **SMALL)
    assert f"give the folder that it lies in, {folder}" in refusal(folder / "model.safetensors")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")
def test_a_fifo_is_neither_a_folder_nor_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(CheckpointError, match=r"pipe\.gguf is neither a folder nor a regular file"):
        Checkpoint.open(str(tmp_path / "pipe.gguf"))


def test_a_folder_has_no_revision(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "a", layout="trainer", **SMALL)
    with pytest.raises(UsageError, match="no revision 'main'"):
        Checkpoint.open(str(folder), revision="main")


def test_config_faults(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "a", layout="trainer", **SMALL)
    config = folder / "config.json"
    config.write_text('{"model_type": "gpt2",\n  "n_embd": ,}', newline="\n")
    assert "config.json: line 2, column 13" in refusal(folder)
    config.write_bytes(b'{"a": "\xff"}')
    assert "config.json: not JSON" in refusal(folder)
    config.write_text("[" * 100_000)
    assert "config.json" in refusal(folder)
    config.write_text("[1]")
    assert "an object" in refusal(folder) or "object is expected, not list" in refusal(folder)
    config.unlink()
    assert "has no config.json" in refusal(folder)
    (folder / "model.safetensors").unlink()
    message = refusal(folder)
    assert "has no config.json" in message
    assert "no weights in safetensors or GGUF files" in message


def sharded(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    folder = write_gpt2(tmp_path / "a", layout="trainer", shards=3, **SMALL)
    return folder, json.loads((folder / "model.safetensors.index.json").read_text())


def write_index(folder: Path, index: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_index_and_shards_must_agree_and_every_fault_is_listed(tmp_path: Path) -> None:
    folder, index = sharded(tmp_path)
    weight_map: dict[str, str] = index["weight_map"]
    one, two, three = sorted(set(weight_map.values()))
    (folder / three).unlink()
    in_one = next(name for name, shard in weight_map.items() if shard == one)
    in_two = [name for name, shard in weight_map.items() if shard == two]
    del weight_map[in_one]
    weight_map["ghost"] = two
    weight_map[in_two[0]] = one
    write_index(folder, index)
    message = refusal(folder)
    for said in (
        f"shard {three} is missing",
        f"tensor {in_one!r} is in {one}, but the index does not name it",
        f"tensor 'ghost' is not in {two}, where the index has it",
        f"tensor {in_two[0]!r} is not in {one}, where the index has it",
        f"tensor {in_two[0]!r} is in {two}, but the index has it in {one}",
    ):
        assert said in message
    assert message.count("\n  - ") == 5


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    folder, index = sharded(tmp_path)
    shard = folder / max(index["weight_map"].values())
    shard.write_bytes(shard.read_bytes()[:-1])
    message = refusal(folder)
    assert shard.name in message
    assert "truncated" in message


@pytest.mark.parametrize(
    "name",
    [
        "../x.safetensors",
        "/x.safetensors",
        "a/../../x.safetensors",
        "C:x.safetensors",
        "con.safetensors",
        "a./x.safetensors",
        "a /x.safetensors",
        "x\n.safetensors",
        "a\\x.safetensors",
        3,
        "",
    ],
)
def test_shards_lie_in_the_folder(tmp_path: Path, name: object) -> None:
    folder, index = sharded(tmp_path)
    write_safetensors(tmp_path / "x.safetensors", {"a": np.ones(1, np.float32)})
    index["weight_map"]["a"] = name
    write_index(folder, index)
    assert "is not the name of a shard in the folder" in refusal(folder)


def test_shards_that_are_one_file_on_some_systems_are_refused(tmp_path: Path) -> None:
    folder, index = sharded(tmp_path)
    first, second, *others = sorted(set(index["weight_map"].values()))
    names = {first: "Part.safetensors", second: "part.safetensors"} | {name: name for name in others}
    write_index(folder, {"weight_map": {name: names[old] for name, old in index["weight_map"].items()}})
    assert "'Part.safetensors' and 'part.safetensors' are one file where case makes no difference" in refusal(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": ["a"]}])
def test_an_index_without_a_map(tmp_path: Path, index: object) -> None:
    folder, _ = sharded(tmp_path)
    write_index(folder, index)
    assert "no weight_map" in refusal(folder)


def test_shards_may_have_any_name(tmp_path: Path) -> None:
    folder, index = sharded(tmp_path)
    shards = sorted(set(index["weight_map"].values()))
    names = {old: f"part {i}.safetensors" for i, old in enumerate(shards)}
    for old, new in names.items():
        (folder / old).rename(folder / new)
    write_index(folder, {"weight_map": {name: names[old] for name, old in index["weight_map"].items()}})
    assert "transformer.wte.weight" in Checkpoint.open(str(folder)).tensors
