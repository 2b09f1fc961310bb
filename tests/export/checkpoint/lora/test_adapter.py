"""Adapter.open and merge_adapter on folders: how what does not fit is refused, and whose tokenizer wins."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.manifest import AdapterSource, Source
from edgegen.errors import CheckpointError, EdgegenError, TensorError, UnsupportedModelError
from edgegen_export.checkpoint import Adapter, Checkpoint, merge_adapter
from edgegen_export.checkpoint.companions import MORE_TEMPLATES
from tests.export.checkpoint.adapters import C_ATTN, GPT2_NAMES, PREFIX, factors, write_lora
from tests.export.checkpoint.layouts import Arrays, numpy_dtype, write_gpt2, write_safetensors
from tests.oracle import edit_json

SMALL: dict[str, Any] = {"n_embd": 8, "n_head": 2, "vocab_size": 11, "n_positions": 6}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_gpt2(tmp_path / "base", layout="trainer", **SMALL)


def merge(base: Path, adapter: Path, *, tied: bool = True) -> tuple[Checkpoint, list[str]]:
    said: list[str] = []
    checkpoint = Checkpoint.open(str(base))
    return merge_adapter(checkpoint, Adapter.open(str(adapter)), GPT2_NAMES, tied_head=tied, warn=said.append), said


def misfits(base: Path, adapter: Path, *, tied: bool = True) -> list[str]:
    with pytest.raises(TensorError) as caught:
        merge(base, adapter, tied=tied)
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(f"the adapter {adapter.name}, trained on org/base, does not fit base: ")
    return [line.removeprefix("  - ") for line in rest] or [first.split("does not fit base: ")[1]]


def refusal(source: Path | str, kind: type[EdgegenError] = CheckpointError) -> str:
    with pytest.raises(kind) as caught:
        Adapter.open(str(source))
    return str(caught.value)


# Merging.


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_any_float_factors_are_merged_in_float32(base: Path, tmp_path: Path, dtype: str) -> None:
    arrays = {name: array.astype(numpy_dtype(dtype)) for name, array in factors(C_ATTN, 8, 24).items()}
    merged, _ = merge(base, write_lora(tmp_path / "lora", arrays))
    a, b = (array.astype(np.float32) for array in arrays.values())
    name = "transformer.h.0.attn.c_attn.weight"
    before = Checkpoint.open(str(base)).tensors[name].read()
    np.testing.assert_allclose(merged.tensors[name].read(), before + 2 * (b @ a).T, rtol=1e-6, atol=1e-6)


def test_an_adapter_changes_its_targets_only(base: Path, tmp_path: Path) -> None:
    merged, _ = merge(base, write_lora(tmp_path / "lora", factors(C_ATTN, 8, 24)))
    before = Checkpoint.open(str(base))
    assert merged.tensors.keys() == before.tensors.keys()
    changed = [n for n in before.tensors if not np.array_equal(before.tensors[n].read(), merged.tensors[n].read())]
    assert changed == ["transformer.h.0.attn.c_attn.weight"]
    assert merged.config == before.config
    assert merged.source == Source("folder", "base", adapter=AdapterSource("folder", "lora"))


def test_a_bias_is_made_where_the_base_has_none(tmp_path: Path) -> None:
    base = write_gpt2(tmp_path / "base", layout="untied", **SMALL)
    arrays = {**factors("base_model.model.lm_head", 8, 11), "base_model.model.lm_head.base_layer.bias": ones(11)}
    arrays["base_model.model.lm_head.lora_B.bias"] = ones(11)
    merged, _ = merge(base, write_lora(tmp_path / "lora", arrays, bias="lora_only", lora_bias=True), tied=False)
    np.testing.assert_array_equal(merged.tensors["lm_head.bias"].read(), 1 + 2 * ones(11))


@pytest.mark.parametrize(("named", "is_noted"), [("org/base", False), ("/home/me/Base/", False), ("org/other", True)])
def test_another_base_is_noted_only(base: Path, tmp_path: Path, named: str, is_noted: bool) -> None:
    lora = write_lora(tmp_path / "lora", factors(C_ATTN, 8, 24), base_model_name_or_path=named)
    noted = ["the adapter lora was trained on org/other, and is merged into base"] if is_noted else []
    assert merge(base, lora)[1] == noted
    edit_json(lora / "adapter_config.json", base_model_name_or_path=None)
    assert merge(base, lora)[1] == []


# What does not fit.


def ones(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.ones(shape, np.float32)


A, B = f"{C_ATTN}.lora_A.weight", f"{C_ATTN}.lora_B.weight"
WTE = f"{PREFIX}wte"
HEAD = "base_model.model.lm_head"
BROKEN: dict[str, tuple[Arrays, str]] = {
    "A without B": ({A: ones(2, 8)}, "transformer.h.0.attn.c_attn: the adapter has one of lora_A and lora_B only"),
    "B without A": ({B: ones(24, 2)}, "one of lora_A and lora_B only"),
    "a bias of no B": ({f"{C_ATTN}.lora_B.bias": ones(24)}, "one of lora_A and lora_B only"),
    "half an embedding": ({f"{WTE}.lora_embedding_A": ones(2, 11)}, "one of lora_A and lora_B only"),
    "two ranks": ({A: ones(2, 8), B: ones(24, 3)}, "lora_A has rank 2, lora_B 3, adapter_config.json says 2"),
    "a rank of its own": (factors(C_ATTN, 8, 24, rank=4), "lora_A has rank 4, lora_B 4, adapter_config.json says 2"),
    "another width": (factors(C_ATTN, 16, 48), "an update of shape [48, 16], the base's weight is [8, 24]"),
    "parts that were not gathered": ({A: ones(0), B: ones(0)}, "shapes [0] and [0]: a distributed training"),
    "no such module": (factors(f"{PREFIX}h.0.attn.c_attm", 8, 24), "(did you mean 'transformer.h.0.attn.c_attn'?)"),
    "no such layer": (factors(f"{PREFIX}h.9.attn.c_attn", 8, 24), "transformer.h.9.attn.c_attn: the base has no such"),
    "experts": (factors(f"{PREFIX}h.0.mlp.experts.base_layer", 8, 24), "the base has no such module"),
    "a class of heads": ({"base_model.model.score.weight": ones(2, 8)}, "score: the head of another task"),
    "a whole weight of another shape": (
        {**factors(C_ATTN, 8, 24), f"{PREFIX}ln_f.weight": ones(9)},
        "transformer.ln_f: the adapter has a weight of shape [9], the base's weight is [8]",
    ),
    "a bias of another shape": ({f"{PREFIX}ln_f.bias": ones(9)}, "a bias of shape [9] does not fit"),
    "a vocabulary of another width": ({f"{WTE}.weight": ones(13, 9)}, "shape [13, 9], the base's weight is [11, 8]"),
    "positions that grew": ({f"{PREFIX}wpe.weight": ones(7, 8)}, "shape [7, 8], the base's weight is [6, 8]"),
    "DoRA": ({**factors(C_ATTN, 8, 24), f"{C_ATTN}.lora_magnitude_vector": ones(24)}, "DoRA's; merge the adapter"),
    "IA3": ({f"{C_ATTN}.ia3_l": ones(24, 1)}, "c_attn.ia3_l: not a tensor of a LoRA adapter"),
    "integers": ({A: ones(2, 8).astype(np.int8), **factors(f"{PREFIX}h.1.attn.c_attn", 8, 24)}, "stored as int8"),
    "two adapters": (
        {**factors(C_ATTN, 8, 24), f"{C_ATTN}.lora_A.second.weight": ones(2, 8)},
        "c_attn.lora_A.second.weight: a second tensor of this kind",
    ),
    "two names": (
        {**factors(C_ATTN, 8, 24), **factors("base_model.model.h.0.attn.c_attn", 8, 24)},
        "h.0.attn.c_attn: this module of the base has another name in the adapter, too",
    ),
    "a part of a name": ({"base_model.model.c_proj.bias": ones(8)}, "c_proj: the base has no such module"),
    "nothing": ({}, "it has no tensors of any module"),
    "an update of both kinds": (
        {**factors(WTE, 8, 11), f"{WTE}.lora_embedding_A": ones(2, 11), f"{WTE}.lora_embedding_B": ones(8, 2)},
        "two updates",
    ),
    "rows of no token": ({f"{WTE}.token_adapter.trainable_tokens_delta": ones(1, 8)}, "trainable_token_indices has 0"),
}


@pytest.mark.parametrize(("tensors", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_what_does_not_fit_is_refused(base: Path, tmp_path: Path, tensors: Arrays, said: str) -> None:
    (fault,) = misfits(base, write_lora(tmp_path / "lora", tensors))
    assert said in fault


def test_tokens_and_saved_modules_must_be_there(base: Path, tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "a", factors(C_ATTN, 8, 24), modules_to_save=["ln_f", "score", "lm_head"])
    said = misfits(base, lora)
    assert [fault.split(",")[0] for fault in said] == ["modules_to_save has 'ln_f'", "modules_to_save has 'lm_head'"]
    lora = write_lora(tmp_path / "b", factors(C_ATTN, 8, 24), trainable_token_indices=[1])
    assert misfits(base, lora) == ["trainable_token_indices is set, but the adapter has no rows of them"]
    rows = {f"{WTE}.token_adapter.trainable_tokens_delta": ones(2, 8)}
    lora = write_lora(tmp_path / "c", rows, trainable_token_indices=[1, 11])
    assert misfits(base, lora) == ["transformer.wte: token 11 is not among 11 rows"]
    lora = write_lora(tmp_path / "d", rows | factors(HEAD, 8, 11), trainable_token_indices=[1, 2])
    assert "trained for the tied lm_head as well" in misfits(base, lora)[0]


def test_a_larger_vocabulary_needs_both_ends(tmp_path: Path) -> None:
    base = write_gpt2(tmp_path / "base", layout="untied", **SMALL)
    for name, module in (("a", WTE), ("b", HEAD)):
        (fault,) = misfits(base, write_lora(tmp_path / name, {f"{module}.weight": ones(13, 8)}), tied=False)
        assert "a larger vocabulary's rows for one of them only" in fault
    tied = write_gpt2(tmp_path / "tied" / "base", layout="trainer", **SMALL)
    trained = write_lora(tmp_path / "c", {f"{WTE}.weight": ones(13, 8)}, modules_to_save=["wte"])
    assert "the embedding has 13 rows, the head 11" in misfits(tied, trained)[0]


def test_a_module_of_another_model_is_not_taken_for_one_without_prefix(tmp_path: Path) -> None:
    base = write_gpt2(tmp_path / "base", layout="original", **SMALL)
    assert "h.0.attn.c_attn.weight" in Checkpoint.open(str(base)).tensors
    (fault,) = misfits(base, write_lora(tmp_path / "lora", factors("base_model.model.encoder.h.0.attn.c_attn", 8, 24)))
    assert fault == "encoder.h.0.attn.c_attn: the base has no such module (did you mean 'h.0.attn.c_attn'?)"


def test_everything_that_does_not_fit_is_told_at_once_up_to_a_dozen(base: Path, tmp_path: Path) -> None:
    tensors = factors(C_ATTN, 8, 25) | {A.replace("c_attn", "c_proj"): ones(2, 8)} | {"strange": ones(1)}
    assert len(misfits(base, write_lora(tmp_path / "some", tensors))) == 3
    llama = [f"base_model.model.model.layers.{i}.self_attn.q_proj" for i in range(40)]
    problems = misfits(base, write_lora(tmp_path / "llama", {n: x for m in llama for n, x in factors(m, 8, 8).items()}))
    assert len(problems) == 13
    assert problems[0] == "model.layers.0.self_attn.q_proj: the base has no such module"
    assert problems[-1] == "and 28 more"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(base: Path, tmp_path: Path, value: float) -> None:
    tensors = factors(C_ATTN, 8, 24)
    tensors[B][3, 1] = value
    with pytest.raises(TensorError) as caught:
        merge(base, write_lora(tmp_path / "lora", tensors))
    assert str(caught.value) == f"the adapter lora is broken: {B}: has values that are NaN or infinite"


# What is no adapter.


def test_a_folder_without_an_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    assert refusal(base).startswith(f"{base} holds no adapter, but a whole model: export it by itself")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refusal(empty) == f"{empty} holds no adapter: it has no adapter_config.json (found: nothing)"
    lora = write_lora(tmp_path / "lora", {})
    assert "give the folder that it lies in" in refusal(lora / "adapter_model.safetensors")
    (lora / "adapter_model.safetensors").unlink()
    assert "has no adapter_model.safetensors (found: adapter_config.json)" in refusal(lora)
    assert "there is no folder './lara'" in refusal("./lara")
    (lora / "lora.gguf").write_bytes(b"GGUF")
    assert "lora.gguf is a file: an adapter is a folder as PEFT saves it" in refusal(lora / "lora.gguf")


def test_a_refused_config_is_told_before_the_weights_are_opened(tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "lora", {}, use_dora=True)
    (lora / "adapter_model.safetensors").write_bytes(b"must not be opened")
    assert f"{lora} asks for what cannot be merged at export: use_dora is set" in refusal(lora, UnsupportedModelError)
    (lora / "adapter_config.json").write_text("{")
    assert "line 1, column 2" in refusal(lora)


def test_pickled_weights_are_refused_with_a_command_that_works(base: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the command needs torch")
    lora = write_lora(tmp_path / "it's a lora", {})
    (lora / "adapter_model.safetensors").unlink()
    torch.save({n: torch.from_numpy(x) for n, x in factors(C_ATTN, 8, 24).items()}, lora / "adapter_model.bin")
    message = refusal(lora)
    assert "pickled weights only (adapter_model.bin)" in message
    words = shlex.split(message.splitlines()[-1])
    subprocess.run([sys.executable, *words[1:]], check=True)
    assert "transformer.h.0.attn.c_attn.weight" in merge(base, lora)[0].tensors


# An adapter in place of the model.


def test_an_adapter_as_the_source_is_sent_to_its_option(tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "my lora", {})
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(str(lora))
    assert str(caught.value) == (
        f"{lora} holds an adapter only: export its base model and merge it in, "
        f"`edgegen export org/base --adapter '{lora}'`"
    )
    (lora / "config.json").write_text('{"model_type": "gpt2"}')  # of its base, as some trainers leave it
    with pytest.raises(CheckpointError, match="edgegen export org/base --adapter"):
        Checkpoint.open(str(lora))
    (lora / "config.json").unlink()
    (lora / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="edgegen export BASE --adapter"):
        Checkpoint.open(str(lora))


# The tokenizer.


def test_a_tokenizer_of_the_adapter_replaces_the_whole_of_the_base_s(base: Path, tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "lora", factors(C_ATTN, 8, 24))
    for name in ("tokenizer.json", "added_tokens.json", "generation_config.json"):
        (base / name).write_text("{}")
    assert merge(base, lora)[0].file("tokenizer.json") == base / "tokenizer.json"
    (lora / "chat_template.jinja").write_text("x")
    merged, _ = merge(base, lora)
    assert merged.file("chat_template.jinja") == lora / "chat_template.jinja"
    assert merged.file("tokenizer.json") == base / "tokenizer.json"
    for folder, name in ((base, "rag"), (lora, "tool_use")):
        (folder / MORE_TEMPLATES).mkdir()
        (folder / MORE_TEMPLATES / f"{name}.jinja").write_text(name)
    more = merge(base, lora)[0].files_below(MORE_TEMPLATES, ".jinja")
    assert list(more) == [f"{MORE_TEMPLATES}/rag.jinja", f"{MORE_TEMPLATES}/tool_use.jinja"]
    (lora / "tokenizer.json").write_text("{ }")
    (lora / "generation_config.json").write_text("{ }")
    merged, _ = merge(base, lora)
    assert merged.file("tokenizer.json") == lora / "tokenizer.json"
    assert merged.file("added_tokens.json") is None  # of another tokenizer
    assert list(merged.files_below(MORE_TEMPLATES, ".jinja")) == [f"{MORE_TEMPLATES}/tool_use.jinja"]
    assert merged.file("generation_config.json") == base / "generation_config.json"


def test_a_broken_file_of_the_adapter_is_named(tmp_path: Path) -> None:
    lora = write_lora(tmp_path / "lora", {})
    write_safetensors(lora / "adapter_model.safetensors", {"a": ones(4)})
    with (lora / "adapter_model.safetensors").open("ab") as file:
        file.write(b"more")
    assert str(lora / "adapter_model.safetensors") in refusal(lora)
    assert json.loads((lora / "adapter_config.json").read_text())["r"] == 2
