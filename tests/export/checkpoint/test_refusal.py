"""Weights that are not opened, and the command that leads out of it, run."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.checkpoint.refusal import weights_refusal
from tests.export.checkpoint.layouts import TRAINER_COMPANY, gpt2_tensors, write_gpt2

SMALL: dict[str, Any] = {"n_embd": 8, "n_head": 2, "vocab_size": 11, "n_positions": 6}


def refusal(source: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(str(source))
    return str(caught.value)


def command_of(message: str) -> str:
    (line,) = [line.strip() for line in message.splitlines() if line.startswith("  ")]
    assert line.startswith("python -c ")
    return line


def run(command: str) -> None:
    """The command as a reader's shell would run it, with this interpreter as ``python``."""
    words = shlex.split(command)
    env = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, *words[1:]], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def bare_folder(folder: Path, *names: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    for name in names:
        (folder / name).write_bytes(b"must not be opened")
    return folder


@pytest.mark.parametrize("names", [("pytorch_model.bin",), ("pytorch_model.bin.index.json", "pytorch_model-1.bin")])
def test_pickled_weights_are_refused_with_a_command(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = bare_folder(tmp_path / "it's a $model", *names, *TRAINER_COMPANY)
    message = refusal(folder)
    assert "pickled weights only" in message
    assert "training_args" not in message
    words = shlex.split(command_of(message))
    assert words[3:] == [str(folder), f"{folder}-safetensors"]
    compile(words[2], "command", "exec")


@pytest.mark.parametrize(("name", "option"), [("tf_model.h5", "from_tf"), ("flax_model.msgpack", "from_flax")])
def test_other_frameworks_are_refused_with_a_command(tmp_path: Path, name: str, option: str) -> None:
    message = refusal(bare_folder(tmp_path / "a", name))
    assert f"another framework only ({name})" in message
    code = shlex.split(command_of(message))[2]
    assert f"{option}=True" in code
    compile(code, "command", "exec")


def test_hub_ids_are_converted_by_id_at_their_commit() -> None:
    message = weights_refusal(["config.json", "pytorch_model.bin"], "org/name", hub=True, revision="c0ffee")
    words = shlex.split(command_of(message))
    assert words[3:] == ["org/name", "name-safetensors"]
    assert words[2].count('revision="c0ffee"') == 2
    compile(words[2], "command", "exec")


def test_pickles_beside_safetensors_are_ignored(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "a", layout="trainer", **SMALL)
    for name in ("pytorch_model.bin", "tf_model.h5"):
        (folder / name).write_bytes(b"must not be opened")
    assert "transformer.wte.weight" in Checkpoint.open(str(folder)).tensors


def test_the_state_of_a_trainer_is_no_model(tmp_path: Path) -> None:
    message = refusal(bare_folder(tmp_path / "a", *TRAINER_COMPANY))
    assert "no weights in safetensors or GGUF files" in message
    assert "python" not in message


def test_adapters_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(b"")
    assert "holds an adapter only" in refusal(folder)


def test_the_command_for_pickled_weights_works(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the command needs torch")
    pytest.importorskip("transformers", reason="the command needs transformers")
    folder = write_gpt2(tmp_path / "it's pickled", layout="trainer", **SMALL)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").unlink()
    plain = gpt2_tensors(n_embd=8, vocab_size=11, n_positions=6)
    state = {f"transformer.{name}": torch.from_numpy(array) for name, array in plain.items()}
    torch.save(state | {"lm_head.weight": state["transformer.wte.weight"]}, folder / "pytorch_model.bin")
    command = command_of(refusal(folder))
    run(command)
    checkpoint = Checkpoint.open(shlex.split(command)[-1])
    assert checkpoint.file("tokenizer.json") is not None
    assert not list(checkpoint.path.glob("*.bin"))
    for name, array in plain.items():
        np.testing.assert_array_equal(checkpoint.tensors[f"transformer.{name}"].read(), array)


def test_the_command_for_a_state_dict_works(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the command needs torch")
    folder = bare_folder(tmp_path / "a")
    state = {"a": torch.ones(2, 3).T, "b": torch.zeros(4)}
    torch.save({"state_dict": state | {"tied": state["b"]}}, folder / "last.ckpt")
    run(command_of(refusal(folder)))
    tensors = Checkpoint.open(str(folder)).tensors
    assert {name: tensor.shape for name, tensor in tensors.items()} == {"a": (3, 2), "b": (4,), "tied": (4,)}
    shutil.rmtree(folder)
