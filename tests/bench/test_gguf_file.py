"""GGUF files written by the benchmark hold the checkpoint bit for bit, read back by the exporter.

The reader is compared with transformers elsewhere (tests/export/checkpoint); the second row of the table of
``bench.gguf`` shows that llama.cpp computes the same from such a file.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file, save_file  # pyright: ignore[reportUnknownVariableType]

from bench.compare.checkpoints import Shape, write_checkpoint
from bench.compare.peers.llama_cpp import kept_numbers, kv_heads
from bench.compare.routed_shapes import Experts, GlmLiteShape, LingShape
from bench.compare.shapes import AnyShape, Lfm2Shape, MambaShape, Qwen35Shape
from bench.gguf.gguf_file import LAYOUTS, write_gguf
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families.qwen3_5 import QWEN3_5

VOCAB, WIDTH, INNER, HEADS, KEYS = 300, 32, 48, 4, 2
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 64,
    "bos_token_id": VOCAB - 1,
    "eos_token_id": VOCAB - 1,
}
LLAMA: dict[str, Any] = {
    **SIZES,
    "num_key_value_heads": KEYS,
    "rms_norm_eps": 1e-6,
    "rope_theta": 5000.0,
    "tie_word_embeddings": True,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA | {"model_type": "llama"},
    "qwen2": LLAMA | {"model_type": "qwen2"},
    "gpt_neox": SIZES
    | {"model_type": "gpt_neox", "layer_norm_eps": 1e-5, "rotary_pct": 0.25, "use_parallel_residual": True}
    | {"rotary_emb_base": 5000.0},
}
_KEYS_WIDTH = WIDTH * KEYS // HEADS
_LLAMA_LAYER = {
    "self_attn.q_proj.weight": (WIDTH, WIDTH),
    "self_attn.k_proj.weight": (_KEYS_WIDTH, WIDTH),
    "self_attn.v_proj.weight": (_KEYS_WIDTH, WIDTH),
    "self_attn.o_proj.weight": (WIDTH, WIDTH),
    "mlp.gate_proj.weight": (INNER, WIDTH),
    "mlp.up_proj.weight": (INNER, WIDTH),
    "mlp.down_proj.weight": (WIDTH, INNER),
    "input_layernorm.weight": (WIDTH,),
    "post_attention_layernorm.weight": (WIDTH,),
}
_LLAMA_ENDS = {"model.embed_tokens.weight": (VOCAB, WIDTH), "model.norm.weight": (WIDTH,)}
_BIASES = {"self_attn.q_proj.bias": (WIDTH,)} | {f"self_attn.{x}_proj.bias": (_KEYS_WIDTH,) for x in "kv"}
_NEOX_LAYER = {
    "attention.query_key_value": (3 * WIDTH, WIDTH),
    "attention.dense": (WIDTH, WIDTH),
    "mlp.dense_h_to_4h": (INNER, WIDTH),
    "mlp.dense_4h_to_h": (WIDTH, INNER),
    "input_layernorm": (WIDTH,),
    "post_attention_layernorm": (WIDTH,),
}

NEWER: dict[str, tuple[AnyShape, int]] = {
    "glm4_moe_lite": (
        GlmLiteShape(2, 64, 3, 96, Experts(8, 3, 32, 1.8, 1, 1), 24, 32, 12, 8, 16, vocab=VOCAB, context=64),
        2 * (32 + 8),
    ),
    "bailing_moe": (
        LingShape(2, 64, 6, 2, 16, 96, Experts(12, 3, 32, 2.5, 4, 2), vocab=VOCAB, context=64),
        2 * 2 * 2 * 16,
    ),
    "mamba": (MambaShape(2, 64, 128, 16, 4, vocab=VOCAB, context=64), 0),
}
"""Shapes of the comparison, and how many numbers a KV cache keeps of a token: of latents one for keys and values."""


def _shapes(family: str) -> dict[str, tuple[int, ...]]:
    if family == "gpt_neox":
        modules = {f"gpt_neox.layers.{i}.{name}": shape for i in (0, 1) for name, shape in _NEOX_LAYER.items()}
        modules["gpt_neox.final_layer_norm"] = (WIDTH,)
        both = {f"{name}.weight": shape for name, shape in modules.items()}
        both |= {f"{name}.bias": shape[:1] for name, shape in modules.items()}
        return both | {"gpt_neox.embed_in.weight": (VOCAB, WIDTH), "embed_out.weight": (VOCAB, WIDTH)}
    layer = _LLAMA_LAYER | (_BIASES if family == "qwen2" else {})
    return _LLAMA_ENDS | {f"model.layers.{i}.{name}": shape for i in (0, 1) for name, shape in layer.items()}


def _random_checkpoint(folder: Path, family: str) -> None:
    # GPT-2's, and of it the tokenizer for the others.
    write_checkpoint(folder, Shape(layers=2, width=WIDTH, heads=HEADS, vocab=VOCAB, context=64))
    if family != "gpt2":
        (folder / "config.json").write_text(json.dumps(CONFIGS[family]))
        rng = np.random.default_rng(0)
        tensors = {name: rng.standard_normal(shape, np.float32) for name, shape in _shapes(family).items()}
        save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("family", sorted(LAYOUTS.keys() - {"lfm2", "qwen3_5_text", *NEWER}))
def test_the_file_holds_the_checkpoint(tmp_path: Path, family: str) -> None:
    _random_checkpoint(tmp_path / "checkpoint", family)
    write_gguf(tmp_path / "checkpoint", tmp_path / "model.gguf")
    restored = Checkpoint.open(str(tmp_path / "model.gguf"))
    wanted = load_file(tmp_path / "checkpoint/model.safetensors")
    names = {name.removeprefix("transformer."): tensor for name, tensor in restored.tensors.items()}
    assert names.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(names[name].read(), values, err_msg=name)


def test_the_file_of_a_hybrid_says_which_layers_attend(tmp_path: Path) -> None:
    shape = Lfm2Shape(3, 64, 4, 2, 96, attending=(1,), vocab=VOCAB, context=64)
    write_checkpoint(tmp_path / "checkpoint", shape)
    write_gguf(tmp_path / "checkpoint", tmp_path / "model.gguf")
    written = GGUFReader(tmp_path / "model.gguf")
    assert written.fields["lfm2.attention.head_count_kv"].contents() == kv_heads(written) == [0, 2, 0]
    assert written.fields["lfm2.shortconv.l_cache"].contents() == 3
    tensors = {tensor.name: tensor.data for tensor in written.tensors}
    wanted = load_file(tmp_path / "checkpoint/model.safetensors")
    assert len(tensors) == len(wanted)
    kernel = wanted["model.layers.2.conv.conv.weight"]
    np.testing.assert_array_equal(tensors["blk.2.shortconv.conv.weight"], kernel[:, 0])
    np.testing.assert_array_equal(
        tensors["blk.1.attn_k_norm.weight"], wanted["model.layers.1.self_attn.k_layernorm.weight"]
    )


def test_the_file_of_gated_delta_nets_holds_the_checkpoint(tmp_path: Path) -> None:
    """But for rates and norms, which the file has as they multiply."""
    shape = Qwen35Shape(4, 64, 4, 2, 96, 32, 4, 16, vocab=VOCAB, context=64)
    write_checkpoint(tmp_path / "checkpoint", shape)
    write_gguf(tmp_path / "checkpoint", tmp_path / "model.gguf")
    restored = Checkpoint.open(str(tmp_path / "model.gguf"))
    wanted = load_file(tmp_path / "checkpoint/model.safetensors")
    assert restored.tensors.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(restored.tensors[name].read(), values, rtol=0, atol=3e-7, err_msg=name)
    wanted_config, found = (QWEN3_5.read_config(config) for config in (shape.config(), restored.config))
    assert found.layers == wanted_config.layers
    assert kv_heads(GGUFReader(tmp_path / "model.gguf")) == [0, 0, 0, 2]


@pytest.mark.parametrize("family", list(NEWER))
def test_the_file_of_experts_and_states_holds_the_checkpoint(tmp_path: Path, family: str) -> None:
    """But for rates, which the file has as they multiply, and the class of GLM-4.7-Flash, which is DeepSeek's there."""
    shape, kept = NEWER[family]
    write_checkpoint(tmp_path / "checkpoint", shape)
    write_gguf(tmp_path / "checkpoint", tmp_path / "model.gguf")
    restored = Checkpoint.open(str(tmp_path / "model.gguf"))
    wanted = load_file(tmp_path / "checkpoint/model.safetensors")
    assert restored.tensors.keys() == wanted.keys()
    for name, values in wanted.items():
        atol = 3e-7 if name.endswith("A_log") else 0
        np.testing.assert_allclose(restored.tensors[name].read(), values, rtol=0, atol=atol, err_msg=name)
    said = {key: value for key, value in shape.config().items() if key in restored.config}
    differs = {key for key, value in said.items() if restored.config[key] != pytest.approx(value)}
    assert differs <= {"model_type", "architectures"}
    assert len(said) > 8
    assert kept_numbers(GGUFReader(tmp_path / "model.gguf")) == kept


@pytest.mark.parametrize("family", list(CONFIGS))
def test_the_file_says_what_the_configuration_says(tmp_path: Path, family: str) -> None:
    _random_checkpoint(tmp_path / "checkpoint", family)
    write_gguf(tmp_path / "checkpoint", tmp_path / "model.gguf")
    restored = Checkpoint.open(str(tmp_path / "model.gguf")).config
    said = {key: value for key, value in CONFIGS[family].items() if key in restored}
    assert len(said) > len(SIZES)
    assert {key: restored[key] for key in said} == pytest.approx(said)
