"""Text files with a byte order mark are read as without it; other encodings are refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgegen.errors import CheckpointError, UnsupportedModelError
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.checkpoint.weight_files import without_mark
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import Listener
from tests.export.checkpoint.layouts import write_gpt2

SMALL: dict[str, Any] = {"n_embd": 16, "n_head": 2, "vocab_size": 11, "n_positions": 16}


def mark(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text((folder / name).read_text("utf-8"), "utf-8-sig")


def into_shards(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "shard.safetensors")
    tensors = Checkpoint.open(str(folder)).tensors
    weight_map = {"weight_map": dict.fromkeys(tensors, "shard.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(weight_map))


def test_a_mark_in_config_and_index_is_read_away(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "x", layout="trainer", **SMALL)
    into_shards(folder)
    plain = Checkpoint.open(str(folder))
    mark(folder, "config.json", "model.safetensors.index.json")
    marked = Checkpoint.open(str(folder))
    assert marked.config == plain.config
    assert marked.tensors.keys() == plain.tensors.keys()


def test_a_mark_in_generation_config_is_read_away(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "x", layout="trainer", n_layer=1, **SMALL)
    (folder / "generation_config.json").write_text('{"top_k": 7}', "utf-8-sig")
    bundle, _ = export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32"))
    assert json.loads(bundle.file("generation_config.json").read_bytes())["top_k"] == 7


@pytest.mark.parametrize(
    ("codec", "said"),
    [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16"), ("utf-32", "UTF-32")],
)
def test_another_encoding_is_refused_by_name(tmp_path: Path, codec: str, said: str) -> None:
    folder = write_gpt2(tmp_path / "x", layout="trainer", **SMALL)
    config = folder / "config.json"
    config.write_text(config.read_text("utf-8"), codec)
    with pytest.raises(CheckpointError, match=rf"config\.json is {said}: save it as UTF-8"):
        Checkpoint.open(str(folder))


def test_only_a_mark_is_taken_away() -> None:
    assert without_mark(b"\xef\xbb\xbf{}", "x") == b"{}"
    assert without_mark(b'{"a": "\xef\xbb\xbf"}', "x") == b'{"a": "\xef\xbb\xbf"}'
    assert without_mark(b"", "x") == b""


def test_a_stray_file_of_weights_beside_an_index_is_warned_about(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "x", layout="trainer", n_layer=1, **SMALL)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "model-00001-of-00001.safetensors"}}')
    heard = Listener()
    export(str(folder), tmp_path / "bundle", ExportOptions(scheme="fp32"), progress=heard)
    (warning,) = [text for text in heard.warnings if "model.safetensors.index.json" in text]
    assert warning.startswith("the weights are read from model.safetensors, and model.safetensors.index.json")
    assert warning.endswith("if model.safetensors is a stray file, take it away")


def test_shards_alone_are_not_warned_about(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "x", layout="trainer", **SMALL)
    into_shards(folder)
    assert Checkpoint.open(str(folder)).ignored_weights is None


def test_the_config_is_judged_before_missing_weights(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "lama", "architectures": ["LamaForCausalLM"]}')
    with pytest.raises(UnsupportedModelError, match="model_type 'lama' is not supported"):
        export(str(folder), tmp_path / "bundle")


def test_a_good_config_without_weights_has_none(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "x", layout="trainer", **SMALL)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="holds no weights"):
        export(str(folder), tmp_path / "bundle")
