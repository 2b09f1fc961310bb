"""Checkpoint.open on GGUF files: a path, a folder, parts, real files; and an export from one, end to end."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from edgegen.errors import CheckpointError, UsageError
from edgegen_export.checkpoint import Checkpoint, Source
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import decoded, random_ids, runner_of
from tests.export.checkpoint.gguf_bytes import LLAMA_METADATA, Raw, gguf_bytes, write_llama
from tests.export.checkpoint.gguf_models import CASES, arrays_of, random_model, write_gguf
from tests.export.checkpoint.layouts import write_gpt2
from tests.oracle import import_torch

SMALL: dict[str, Any] = {"n_embd": 8, "n_head": 2, "vocab_size": 11, "n_positions": 6}


def refusal(source: Path | str, gguf_file: str | None = None) -> str:
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(str(source), gguf_file=gguf_file)
    return str(caught.value)


def test_a_real_file_is_the_checkpoint_it_was_made_of(test_data: Path) -> None:
    folder = test_data / "models" / "stories260K"
    original, checkpoint = Checkpoint.open(str(folder)), Checkpoint.open(str(folder / "stories260K-f32.gguf"))
    assert set(checkpoint.tensors) == set(original.tensors)
    for name, tensor in original.tensors.items():
        np.testing.assert_array_equal(checkpoint.tensors[name].read(), tensor.read(), err_msg=name)
    absent = {name for name, value in checkpoint.config.items() if original.config.get(name) != value}
    assert not absent
    assert checkpoint.metadata["tokenizer.ggml.tokens"][:3] == ["<unk>", "<s>", "</s>"]
    assert checkpoint.metadata["tokenizer.ggml.scores"][-1] == -252.0
    assert not original.metadata
    assert original.gguf is None


def test_files_beside_a_gguf_file_do_not_belong_to_it(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "model.GGUF")
    (tmp_path / "tokenizer.json").write_text("{}")
    checkpoint = Checkpoint.open(str(path))
    assert (checkpoint.source, checkpoint.gguf) == (Source("folder", "model.GGUF"), "model.GGUF")
    assert checkpoint.file("tokenizer.json") is None
    assert checkpoint.path == path


def test_a_folder_with_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "fine"
    folder.mkdir()
    write_llama(folder / "only.gguf")
    for name in ("config.json", "generation_config.json", "mmproj-only.gguf", "pytorch_model.bin"):
        (folder / name).write_text("{}")
    checkpoint = Checkpoint.open(str(folder))
    assert (checkpoint.source, checkpoint.gguf) == (Source("folder", "fine"), "only.gguf")
    assert checkpoint.config["hidden_size"] == 8
    assert checkpoint.file("generation_config.json") is not None
    assert Checkpoint.open(str(folder), gguf_file="only.gguf").gguf == "only.gguf"


def test_one_of_several_must_be_chosen(tmp_path: Path) -> None:
    for name in ("a-Q4_0.gguf", "a-Q8_0.gguf"):
        write_llama(tmp_path / name)
    message = refusal(tmp_path)
    assert "holds 2 GGUF files, choose one with --gguf-file: a-Q4_0.gguf, a-Q8_0.gguf" in message
    assert Checkpoint.open(str(tmp_path), gguf_file="a-Q8_0.gguf").gguf == "a-Q8_0.gguf"
    message = refusal(tmp_path, "a-Q8_1.gguf")
    assert "has no file 'a-Q8_1.gguf' (did you mean 'a-Q8_0.gguf'?); it holds a-Q4_0.gguf, a-Q8_0.gguf" in message
    (tmp_path / "more").mkdir()
    write_llama(tmp_path / "more" / "b.gguf")
    assert Checkpoint.open(str(tmp_path), gguf_file="more/b.gguf").gguf == "b.gguf"


def test_safetensors_win_unless_a_file_is_chosen(tmp_path: Path) -> None:
    folder = write_gpt2(tmp_path / "a", layout="trainer", **SMALL)
    for name in ("x.gguf", "y.gguf"):
        write_llama(folder / name)
    assert Checkpoint.open(str(folder)).config["model_type"] == "gpt2"
    assert Checkpoint.open(str(folder), gguf_file="x.gguf").config["model_type"] == "llama"


def test_wrong_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_llama(tmp_path / "model.gguf")
    with pytest.raises(UsageError, match="leave --gguf-file out"):
        Checkpoint.open(str(path), gguf_file="model.gguf")
    with pytest.raises(UsageError, match="no revision 'main'"):
        Checkpoint.open(str(path), revision="main")
    assert "there is no GGUF file" in refusal(tmp_path / "modle.gguf")
    assert "(did you mean 'model.gguf'?)" in refusal(tmp_path / "modle.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgegen_export.checkpoint.hub.fetch", None)
    assert "(did you mean 'model.gguf'?)" in refusal("modle.gguf")  # not asked of the hub
    assert Checkpoint.open("model.gguf").gguf == "model.gguf"
    folder = write_gpt2(tmp_path / "a", layout="trainer", **SMALL)
    assert "has no file 'x.gguf' and no other GGUF file" in refusal(folder, "x.gguf")


def test_a_refused_config_ends_the_opening(tmp_path: Path) -> None:
    def refuse(config: Any) -> None:
        raise CheckpointError(f"not this one: {config['model_type']}")

    path = write_llama(tmp_path / "x.gguf", [Raw("strange", (4,))], bytes(16))
    with pytest.raises(CheckpointError, match="not this one: llama"):
        Checkpoint.open(str(path), check_config=refuse)


def write_parts(folder: Path) -> list[Path]:
    """A model in three parts, the first of them without tensors, as llama.cpp splits it by default."""
    split: dict[str, Any] = {"split.count": 3, "split.tensors.count": 2}
    data = np.arange(24, dtype="<f4").tobytes()
    contents = [
        gguf_bytes({**LLAMA_METADATA, **split, "split.no": 0}),
        gguf_bytes({**split, "split.no": 1}, [Raw("token_embd.weight", (8, 3))], data),
        gguf_bytes({**split, "split.no": 2}, [Raw("output_norm.weight", (8,))], data[:32]),
    ]
    paths = [folder / f"big-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def test_parts_are_opened_together(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    for source, chosen in ((tmp_path, None), (tmp_path, paths[2].name), (paths[1], None)):
        checkpoint = Checkpoint.open(str(source), gguf_file=chosen)
        assert set(checkpoint.tensors) == {"model.embed_tokens.weight", "model.norm.weight"}
        assert checkpoint.tensors["model.norm.weight"].read().tolist() == list(range(8))


def test_parts_that_do_not_fit_together(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    shutil.copy(paths[1], paths[2])
    message = refusal(tmp_path)
    assert f"tensor 'token_embd.weight' of {paths[2].name} is in a part before it" in message
    assert "its parts hold 1 tensors, its header promises 2" in message
    paths[2].unlink()
    assert f"is one of 3 parts; missing beside it: {paths[2].name}" in refusal(paths[0])
    assert f"lacks parts of {paths[0].name}: {paths[2].name}" in refusal(tmp_path, paths[0].name)
    renamed = tmp_path / "big-00001-of-00001.gguf"
    paths[0].rename(renamed)
    assert "it is one of 3 parts" in refusal(renamed)


@pytest.mark.filterwarnings("ignore")  # of transformers
@pytest.mark.parametrize("kind", [None, GGMLQuantizationType.Q8_0])
@pytest.mark.parametrize("scheme", ["fp32", "int8"])
def test_gpt2_is_exported_alike_from_both(tmp_path: Path, scheme: Any, kind: GGMLQuantizationType | None) -> None:
    """The same weights from safetensors and from a GGUF file give the same bundle, bit for bit."""
    torch, case = import_torch(), CASES["gpt2"]
    model = random_model(case)
    file = write_gguf(tmp_path / "model.gguf", case, model, kind)
    if kind is not None:  # the original of a quantized file is what it dequantizes to
        tensors = Checkpoint.open(str(file)).tensors
        model.load_state_dict({name: torch.from_numpy(t.read()) for name, t in tensors.items()}, strict=False)
        original = arrays_of(random_model(case))
        assert any((tensors[name].read() != array).any() for name, array in original.items())
    model.save_pretrained(str(tmp_path / "original"), safe_serialization=True)
    bundles = [
        export(str(tmp_path / name), tmp_path / f"to-{name}", ExportOptions(scheme=scheme))[0]
        for name in ("original", file.name)
    ]
    weights = [bundle.file("weights.data").read_bytes() for bundle in bundles]
    assert weights[0] == weights[1]
    ids = random_ids(bundles[0], 20)
    logits = [decoded(runner, runner.new_cache(), ids) for runner in map(runner_of, bundles)]
    np.testing.assert_array_equal(logits[0], logits[1])
    with torch.no_grad():
        wanted = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(logits[1] - wanted).max() < (1e-5 if scheme == "fp32" else 1e-2)
    manifest = bundles[1].manifest
    assert manifest.source == Source("folder", "model.gguf")
    assert manifest.provenance["gguf"] == "model.gguf"
