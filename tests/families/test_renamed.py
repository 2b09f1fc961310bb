"""Families that transformers does not have: a model of a type that it has, with their names of keys and tensors."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.errors import UnsupportedModelError
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families.telechat3 import TELECHAT3
from tests.export.bundles import decoded, export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.cases.sarvam_moe import LING
from tests.families.harness import checkpoint_of, oracle_of, tokens

Tensors = dict[str, NDArray[np.float32]]

INTERNLM2 = {
    "model.embed_tokens": "model.tok_embeddings",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "lm_head": "output",
}


def as_internlm2(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Of each key head: its queries, then its key, then its value."""
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = config["hidden_size"] // heads
    for i in range(config["num_hidden_layers"]):
        parts = [
            tensors.pop(f"model.layers.{i}.self_attn.{x}_proj.weight").reshape(groups, -1, size, config["hidden_size"])
            for x in "qkv"
        ]
        fused = np.concatenate(parts, axis=1).reshape(-1, config["hidden_size"])
        tensors[f"model.layers.{i}.attention.wqkv.weight"] = fused
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        for theirs, ours in INTERNLM2.items():
            name = name.replace(theirs, ours)
        renamed[name] = tensor
    return renamed


QWEN = {
    "model.embed_tokens": "transformer.wte",
    "model.layers": "transformer.h",
    "model.norm": "transformer.ln_f",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "self_attn.o_proj": "attn.c_proj",
    "mlp.up_proj": "mlp.w1",
    "mlp.gate_proj": "mlp.w2",
    "mlp.down_proj": "mlp.c_proj",
}


def as_qwen(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """Queries, keys and values in one; the config says the width of the gate and of what it gates together."""
    for i in range(config["num_hidden_layers"]):
        for kind in ("weight", "bias"):
            parts = [tensors.pop(f"model.layers.{i}.self_attn.{x}_proj.{kind}") for x in "qkv"]
            tensors[f"model.layers.{i}.attn.c_attn.{kind}"] = np.concatenate(parts)
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        for theirs, ours in QWEN.items():
            name = name.replace(theirs, ours)
        renamed[name] = tensor
    return renamed


def as_qwen_config(config: dict[str, Any]) -> dict[str, Any]:
    """As ``QWenConfig`` writes it."""
    return {
        **{key: config[key] for key in ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")},
        "intermediate_size": 2 * config["intermediate_size"],
        "kv_channels": config["hidden_size"] // config["num_attention_heads"],
        "seq_length": config["max_position_embeddings"],
        "max_position_embeddings": 4 * config["max_position_embeddings"],
        "rotary_emb_base": config["rope_theta"],
        "rotary_pct": 1.0,
        "layer_norm_epsilon": config["rms_norm_eps"],
        "tie_word_embeddings": config["tie_word_embeddings"],
        **dict.fromkeys(("use_dynamic_ntk", "use_logn_attn", "scale_attn_weights", "no_bias"), True),
        **dict.fromkeys(("bf16", "fp16", "fp32", "onnx_safe"), False),
        "use_flash_attn": "auto",
    }


def as_it_is(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    return tensors


def as_orion_config(config: dict[str, Any]) -> dict[str, Any]:
    """As ``OrionConfig`` writes it."""
    kept = """
        hidden_size num_attention_heads num_hidden_layers vocab_size num_key_value_heads intermediate_size
        max_position_embeddings rope_theta tie_word_embeddings hidden_act
    """.split()
    return {**{key: config[key] for key in kept}, "rms_norm_eps": config["layer_norm_eps"], "pretraining_tp": 1}


def as_mimo(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    draft = np.ones((config["hidden_size"], 2 * config["hidden_size"]), np.float32)
    return {**tensors, "model.mtp_layers.0.input_proj.weight": draft}


def as_bailing_moe(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """With a layer after the last one, which proposes further tokens."""
    last, hidden = config["num_hidden_layers"], config["hidden_size"]
    drafts = {
        name.replace(f"layers.{last - 1}.", f"layers.{last}."): tensor
        for name, tensor in tensors.items()
        if f"layers.{last - 1}." in name
    }
    joined = np.ones((hidden, 2 * hidden), np.float32)
    return {**tensors, **drafts, f"model.layers.{last}.eh_proj.weight": joined}


def as_paired_dory(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """As published: attention and MLP are a layer each."""
    rates = {"lambda_1": (0, "attn_alpha"), "lambda_2": (1, "mlp_alpha")}
    blocks = {"self_attn": (0, "mixer"), "mlp": (1, "mixer"), **rates}

    def paired(found: re.Match[str]) -> str:
        place, name = blocks[found[2]]
        return f"layers.{2 * int(found[1]) + place}.{name}"

    return {re.sub(r"layers\.(\d+)\.(\w+)", paired, name): tensor for name, tensor in tensors.items()}


def as_unfused_hrm_text(tensors: Tensors, config: dict[str, Any]) -> Tensors:
    """As transformers has it in memory."""
    fused = {
        "attn.gqkv_proj": [f"self_attn.{x}_proj" for x in ("gate", "q", "k", "v")],
        "mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"],
        "attn.o_proj": ["self_attn.o_proj"],
    }
    found: Tensors = {}
    for name, tensor in tensors.items():
        kind = next((kind for kind in fused if f".{kind}." in name), name)
        parts = fused.get(kind, [name])
        found |= {name.replace(kind, part): x for part, x in zip(parts, np.split(tensor, len(parts)), strict=True)}
    return found


@pytest.mark.parametrize(
    ("like", "model_type", "name", "rename", "beside"),
    [
        ("llama", "internlm2", "InternLM2ForCausalLM", as_internlm2, {"bias": False}),
        ("qwen2", "mimo", "MiMoForCausalLM", as_mimo, {"num_nextn_predict_layers": 1, "use_mrope": False}),
        ("sarvam_moe", "bailing_moe", "BailingMoeV2ForCausalLM", as_bailing_moe, LING),
        ("dory", "dory", "DoryForCausalLM", as_paired_dory, {}),
        ("hrm_text", "hrm_text", "HrmTextForCausalLM", as_unfused_hrm_text, {}),
    ],
)
def test_a_renamed_model_computes_the_same(
    like: str,
    model_type: str,
    name: str,
    rename: Callable[[Tensors, dict[str, Any]], Tensors],
    beside: dict[str, Any],
    tmp_path: Path,
) -> None:
    case = next(case for case in CASES if (case.family, case.name) == (like, "base"))
    original = checkpoint_of(case, tmp_path / "original")
    config = json.loads((original / "config.json").read_text())
    tensors = {key: each.read() for key, each in open_safetensors(original / "model.safetensors").items()}
    folder = tmp_path / "renamed"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", rename(tensors, config))
    config |= {"model_type": model_type, "architectures": [name], **beside}
    (folder / "config.json").write_text(json.dumps(config))
    ids = tokens(case, 40, seed=1)
    runner = runner_of(export_to(folder, tmp_path / "bundle"))
    found = decoded(runner, runner.new_cache(), ids)
    expected = oracle_of(case, original).logits(np.array([ids]))[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


WHOLE = {"partial_rotary_factor": 1.0, "use_qkv_bias": False, "use_parallel_residual": False, "qk_layernorm": False}
"""Keys that make a StableLM a Llama with LayerNorm."""


@pytest.mark.parametrize(
    ("like", "settings", "model_type", "name", "rename", "described"),
    [
        ("qwen2", {"num_key_value_heads": 4}, "qwen", "QWenLMHeadModel", as_qwen, as_qwen_config),
        ("stablelm", WHOLE, "orion", "OrionForCausalLM", as_it_is, as_orion_config),
    ],
)
def test_a_model_with_another_config_computes_the_same(
    like: str,
    settings: dict[str, Any],
    model_type: str,
    name: str,
    rename: Callable[[Tensors, dict[str, Any]], Tensors],
    described: Callable[[dict[str, Any]], dict[str, Any]],
    tmp_path: Path,
) -> None:
    case = next(case for case in CASES if (case.family, case.name) == (like, "base"))
    heads = {"num_attention_heads": 4, "hidden_size": 64}
    case = replace(case, config={**case.config, **heads, **settings})
    original = checkpoint_of(case, tmp_path / "original")
    config = json.loads((original / "config.json").read_text())
    tensors = {key: each.read() for key, each in open_safetensors(original / "model.safetensors").items()}
    folder = tmp_path / "renamed"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", rename(tensors, config))
    written = {"model_type": model_type, "architectures": [name], **described(config)}
    (folder / "config.json").write_text(json.dumps(written))
    ids = tokens(case, 40, seed=1)
    runner = runner_of(export_to(folder, tmp_path / "bundle"))
    expected = oracle_of(case, original).logits(np.array([ids]))[0]
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, rtol=0, atol=1e-3)


TELECHAT3_YARN = {"rope_type": "telechat3-yarn", "factor": 4.0, "original_max_position_embeddings": 24}
"""As in Tele-AI/TeleChat3-36B-Thinking, whose cosines and sines grow by 0.07 of the factor's logarithm."""


@pytest.mark.parametrize("scaling", [None, {**TELECHAT3_YARN, "beta_fast": 32.0, "beta_slow": 1.0}])
def test_telechat3_is_a_llama_with_a_yarn_of_its_own(scaling: dict[str, Any] | None, tmp_path: Path) -> None:
    case = next(case for case in CASES if str(case) == "llama: base")
    as_yarn = scaling and {**scaling, "rope_type": "yarn", "attention_factor": 1 + 0.07 * math.log(4)}
    case = replace(case, config={**case.config, "rope_scaling": as_yarn})
    folder = checkpoint_of(case, tmp_path / "checkpoint")
    ids = tokens(case, 80, seed=1)
    expected = oracle_of(case, folder).logits(np.array([ids]))[0]
    config = json.loads((folder / "config.json").read_text())
    named = scaling and {**scaling, "type": "telechat3-yarn"}
    config |= {"model_type": "telechat3", "architectures": ["Telechat3ForCausalLM"], "rope_scaling": named}
    (folder / "config.json").write_text(json.dumps(config))
    runner = runner_of(export_to(folder, tmp_path / "bundle"))
    found = decoded(runner, runner.new_cache(), ids)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)
    np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rope_type": "yarn"}, "rope_type = 'yarn': this scaling is not supported"),
        ({"mscale": 1.0}, "mscale = 1.0: this family computes it from the factor"),
        ({"original_max_position_embeddings": None}, "rope_scaling.original_max_position_embeddings: missing"),
    ],
)
def test_another_yarn_is_not_telechat3s(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        TELECHAT3.read_config({"rope_scaling": {**TELECHAT3_YARN, **changes}})
