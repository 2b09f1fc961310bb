"""Merged tensors against PEFT's ``merge_and_unload``, on Llama's names and GPT-2's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen_export.checkpoint import Adapter, Checkpoint, merge_adapter
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from tests.export.checkpoint.adapters import GPT2_NAMES, LLAMA_NAMES
from tests.export.checkpoint.layouts import write_gpt2, write_safetensors
from tests.oracle import write_random_gpt2
from tests.peft_oracle import State, merged_state, write_adapter, write_random

pytestmark = pytest.mark.parity

TOLERANCE = 1e-6
"""Largest allowed difference of any value, relative to the largest of its tensor."""

EMBEDDING = {"llama": "model.embed_tokens", "gpt2": "transformer.wte"}
Q: dict[str, Any] = {"target_modules": ["q_proj"]}
C: dict[str, Any] = {"target_modules": ["c_attn", "c_proj"]}

LLAMA: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    "every linear layer": {"target_modules": "all-linear", "r": 3, "lora_alpha": 5},
    "patterns": {
        "target_modules": "all-linear",
        "r": 3,
        "lora_alpha": 7,
        "rank_pattern": {"q_proj": 5, "layers.0.mlp.up_proj": 2},
        "alpha_pattern": {"v_proj": 11, r"layers\.1\.mlp\..*": 1, "proj": 99},
    },
    "rank-stabilized patterns": {
        "target_modules": ["q_proj", "down_proj"],
        "use_rslora": True,
        "r": 3,
        "rank_pattern": {"down_proj": 6},
        "alpha_pattern": {r"model\.layers\.0\.self_attn\.q_proj": 3},
    },
    "some layers": {"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1], "layers_pattern": "layers"},
    "a rank above the width": {**Q, "r": 40},
    "norms trained whole": {**Q, "modules_to_save": ["norm", "input_layernorm"]},
    "embeddings trained whole": {**Q, "modules_to_save": ["embed_tokens", "lm_head"]},
    "embedding trained whole": {**Q, "modules_to_save": ["embed_tokens"]},
    "head trained whole": {**Q, "modules_to_save": ["lm_head"]},
    "a part trained whole": {"target_modules": ["q_proj"], "modules_to_save": ["mlp"]},
    "embeddings adapted": {"target_modules": ["embed_tokens", "lm_head"]},
    "embedding adapted": {"target_modules": ["embed_tokens", "q_proj"]},
    "head adapted": {"target_modules": ["lm_head"]},
    "tokens": {**Q, "trainable_token_indices": [7, 0, 22]},
    "tokens of both": {**Q, "trainable_token_indices": {"embed_tokens": [2, 1], "lm_head": [3]}},
    "the same tokens of both": {**Q, "trainable_token_indices": {"embed_tokens": [2, 1], "lm_head": [2, 1]}},
    "tokens of the head": {**Q, "trainable_token_indices": {"lm_head": [3, 0]}},
    "more tokens": {**Q, "vocabulary": 29},
    "fewer tokens": {**Q, "vocabulary": 20},
    "more tokens, trained": {**Q, "vocabulary": 29, "trainable_token_indices": [28, 23]},
    "more tokens, embedding trained whole": {**Q, "vocabulary": 29, "modules_to_save": ["embed_tokens"]},
    "more tokens, both trained whole": {**Q, "vocabulary": 29, "modules_to_save": ["embed_tokens", "lm_head"]},
    "more tokens, both adapted": {"target_modules": ["embed_tokens", "lm_head"], "vocabulary": 29},
    **{f"init {init}": {**Q, "init_lora_weights": init} for init in ("gaussian", "orthogonal", "eva", "mica")},
}
TIES_KEPT: dict[str, dict[str, Any]] = {
    "adapted": {"target_modules": ["embed_tokens"], "ensure_weight_tying": True},
    "both adapted": {"target_modules": ["embed_tokens", "lm_head"], "ensure_weight_tying": True},
    "trained whole": {**Q, "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    "tokens": {**Q, "trainable_token_indices": [3], "ensure_weight_tying": True},
}
GPT2: dict[str, dict[str, Any]] = {
    "every matrix": {"target_modules": ["c_attn", "c_proj", "c_fc"], "r": 5},
    "every module": {"target_modules": ["c_attn", "c_proj", "c_fc", "wte", "wpe", "lm_head"]},
    "the square matrix": {"target_modules": r".*h\.1\.attn\.c_proj"},
    "some layers": {"target_modules": ["c_proj"], "layers_to_transform": 1},
    "their biases": {**C, "bias": "lora_only"},
    "all biases": {"target_modules": ["c_attn"], "bias": "all", "modules_to_save": ["ln_f"]},
    "biases of B": {**C, "lora_bias": True, "use_rslora": True},
    "all biases and a part trained whole": {"target_modules": ["c_attn"], "bias": "all", "modules_to_save": ["mlp"]},
    "embedding trained whole": {**C, "modules_to_save": ["wte"]},
    "more tokens": {**C, "vocabulary": 101},
    "more tokens, embedding adapted": {"target_modules": ["wte"], "vocabulary": 101},
    "more tokens, trained": {**C, "vocabulary": 101, "trainable_token_indices": [100, 97]},
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    """Checkpoints by kind and whether the head is tied."""
    folder = tmp_path_factory.mktemp("bases")
    return {
        ("llama", False): write_random(folder / "llama", tie_word_embeddings=False),
        ("llama", True): write_random(folder / "tied-llama", tie_word_embeddings=True, dtype="bfloat16"),
        ("gpt2", False): write_random_gpt2(folder / "gpt2", tie_word_embeddings=False),
        ("gpt2", True): write_random_gpt2(folder / "tied-gpt2", tie_word_embeddings=True),
    }


def merge(base: Path, adapter: Path, *, tied: bool) -> Checkpoint:
    checkpoint = Checkpoint.open(str(base))
    names = GPT2_NAMES if checkpoint.config["model_type"] == "gpt2" else LLAMA_NAMES
    return merge_adapter(checkpoint, Adapter.open(str(adapter)), names, tied_head=tied)


def check(kind: str, merged: Checkpoint, wanted: State, *, tied: bool) -> None:
    """The same tensors; one for head and embedding where, and only where, PEFT's are equal and one was there before."""
    found = dict(merged.tensors)
    head, embedding = "lm_head.weight", f"{EMBEDDING[kind]}.weight"
    still_tied = tied and wanted[head].shape == wanted[embedding].shape
    still_tied = still_tied and np.allclose(wanted[head], wanted[embedding], rtol=1e-5, atol=1e-6)
    assert merged.config.get("tie_word_embeddings", True) is still_tied
    assert (head in found) is not still_tied
    found.setdefault(head, found[embedding])
    assert found.keys() == wanted.keys()
    assert merged.config["vocab_size"] == len(wanted[embedding])
    for name, array in wanted.items():
        values = found[name].read()
        assert values.shape == array.shape, name
        assert np.abs(values - array).max() <= TOLERANCE * np.abs(array).max(), name


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("settings", LLAMA.values(), ids=LLAMA.keys())
def test_llama(bases: dict[tuple[str, bool], Path], tmp_path: Path, settings: dict[str, Any], tied: bool) -> None:
    base = bases["llama", tied]
    adapted = write_adapter(tmp_path / "adapter", base, **settings)
    check("llama", merge(base, tmp_path / "adapter", tied=tied), merged_state(adapted), tied=tied)


@pytest.mark.parametrize("settings", TIES_KEPT.values(), ids=TIES_KEPT.keys())
def test_ties_that_are_kept(bases: dict[tuple[str, bool], Path], tmp_path: Path, settings: dict[str, Any]) -> None:
    base = bases["llama", True]
    adapted = write_adapter(tmp_path / "adapter", base, **settings)
    merged = merge(base, tmp_path / "adapter", tied=True)
    assert merged.config["tie_word_embeddings"] is True
    check("llama", merged, merged_state(adapted), tied=True)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("settings", GPT2.values(), ids=GPT2.keys())
def test_gpt2(bases: dict[tuple[str, bool], Path], tmp_path: Path, settings: dict[str, Any], tied: bool) -> None:
    base = bases["gpt2", tied]
    adapted = write_adapter(tmp_path / "adapter", base, **settings)
    check("gpt2", merge(base, tmp_path / "adapter", tied=tied), merged_state(adapted), tied=tied)


@pytest.mark.parametrize("layout", ["original", "tied_with_head"])
def test_a_base_with_other_prefixes_or_a_stored_head(tmp_path: Path, layout: Any) -> None:
    base = write_gpt2(tmp_path / "base", layout=layout)
    everything = ["c_attn", "c_proj", "c_fc", "wte", "lm_head"]
    adapted = write_adapter(tmp_path / "adapter", base, target_modules=everything)
    prefix = "" if layout == "original" else "transformer."
    wanted = {k.replace("transformer.", prefix, 1): v for k, v in merged_state(adapted).items()}
    merged = merge(base, tmp_path / "adapter", tied=True)
    assert merged.config["tie_word_embeddings"] is False
    for name, array in wanted.items():
        assert np.abs(merged.tensors[name].read() - array).max() <= TOLERANCE * np.abs(array).max(), name


def test_a_stored_head_goes_where_the_embedding_changes_for_both(tmp_path: Path) -> None:
    base = write_gpt2(tmp_path / "base", layout="tied_with_head")
    adapted = write_adapter(tmp_path / "adapter", base, **C, trainable_token_indices=[5])
    merged = merge(base, tmp_path / "adapter", tied=True)
    assert "lm_head.weight" not in merged.tensors
    wanted = merged_state(adapted)["transformer.wte.weight"]
    np.testing.assert_allclose(merged.tensors["transformer.wte.weight"].read(), wanted, rtol=1e-6)


# Other ways in which the same adapter is written.


def rename(adapter: Path, *pairs: tuple[str, str]) -> None:
    path = adapter / "adapter_model.safetensors"
    tensors: dict[str, NDArray[Any]] = {name: tensor.read().copy() for name, tensor in open_safetensors(path).items()}
    for old, new in pairs:
        assert any(old in name for name in tensors)
        tensors = {name.replace(old, new): array for name, array in tensors.items()}
    write_safetensors(path, tensors)


@pytest.mark.parametrize(
    "pairs",
    [
        [("lora_A.weight", "lora_A.default.weight"), ("lora_B.weight", "lora_B.default.weight")],
        [("lora_embedding_A", "lora_embedding_A.default"), ("lora_embedding_B", "lora_embedding_B.default")],
        [("base_model.model.", "")],
        [("base_model.model.", "base_model.")],
        [("base_model.model.model.", "base_model.model.")],  # adapted by itself, without a head
        [("norm.weight", "norm.modules_to_save.weight")],
        [("norm.weight", "norm.modules_to_save.default.weight")],
    ],
    ids=[
        "named A and B",
        "named embedding",
        "no prefix",
        "short prefix",
        "inner model",
        "wrapped",
        "wrapped and named",
    ],
)
def test_names_of_other_writers(
    bases: dict[tuple[str, bool], Path], tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    base = bases["llama", False]
    settings: dict[str, Any] = {"target_modules": ["q_proj", "embed_tokens"], "modules_to_save": ["norm"]}
    adapted = write_adapter(tmp_path / "adapter", base, **settings)
    rename(tmp_path / "adapter", *pairs)
    check("llama", merge(base, tmp_path / "adapter", tied=False), merged_state(adapted), tied=False)


def test_a_gguf_base(test_data: Path, tmp_path: Path) -> None:
    base = test_data / "models" / "stories260K"
    adapted = write_adapter(tmp_path / "adapter", base, target_modules="all-linear")
    merged = merge(base / "stories260K-f32.gguf", tmp_path / "adapter", tied=True)
    wanted = merged_state(adapted)
    for name, tensor in merged.tensors.items():
        assert np.abs(tensor.read() - wanted[name]).max() <= TOLERANCE * np.abs(wanted[name]).max(), name
    assert merged.metadata
    (tmp_path / "adapter" / "tokenizer.json").write_text("{}")
    assert not merge(base / "stories260K-f32.gguf", tmp_path / "adapter", tied=True).metadata
