"""OpenELM, which transformers does not have, against its formulas in torch, as apple/OpenELM-270M's code has them."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.errors import TensorError, UnsupportedModelError
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.families.openelm import OPENELM
from edgegen_export.options import ExportOptions
from edgegen_export.pipeline import export
from tests.export.bundles import export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import Case
from tests.families.harness import assert_computes, worst_kl
from tests.families.test_exactness import assert_bit_exact
from tests.oracle import import_torch

pytestmark = pytest.mark.usefixtures("divergence")

Floats = NDArray[np.float32]

BASE: dict[str, Any] = {
    "model_type": "openelm",
    "architectures": ["OpenELMForCausalLM"],
    "activation_fn_name": "swish",
    "ffn_dim_divisor": 16,
    "ffn_multipliers": [0.5, 1.3, 2.0],
    "ffn_with_glu": True,
    "head_dim": 16,
    "max_context_length": 128,
    "model_dim": 64,
    "normalization_layer_name": "rms_norm",
    "normalize_qk_projections": True,
    "num_gqa_groups": 2,
    "num_kv_heads": [1, 2, 3],
    "num_query_heads": [2, 4, 6],
    "num_transformer_layers": 3,
    "qkv_multipliers": [0.5, 1.0],
    "rope_freq_constant": 10000,
    "rope_max_length": 256,
    "share_input_output_layers": True,
    "vocab_size": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WIDTHS = {0.5: 32, 1.3: 80, 2.0: 128}
"""Of the base's MLPs, by their multipliers."""

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "no norms of queries and keys": {"normalize_qk_projections": False},
    "no gate": {"ffn_with_glu": False, "activation_fn_name": "gelu"},
    "untied": {"share_input_output_layers": False},
    "theta": {"rope_freq_constant": 100},
}
SEED = 29
"""Chosen so that greedy decoding meets no near ties."""


def written(variant: str, folder: Path) -> tuple[dict[str, Any], dict[str, Floats]]:
    """A random checkpoint."""
    config, rng = {**BASE, **VARIANTS[variant]}, np.random.default_rng(SEED)
    width, size = config["model_dim"], config["head_dim"]
    tensors: dict[str, Floats] = {}

    def add(name: str, *shape: int) -> None:
        noise = rng.standard_normal(shape).astype(np.float32)
        tensors[name] = 1 + 0.3 * noise if len(shape) == 1 else noise * np.float32(2.5 / shape[-1] ** 0.5)

    add("transformer.token_embeddings.weight", config["vocab_size"], width)
    add("transformer.norm.weight", width)
    for i, (heads, groups) in enumerate(zip(config["num_query_heads"], config["num_kv_heads"], strict=True)):
        layer, inner = f"transformer.layers.{i}", WIDTHS[config["ffn_multipliers"][i]]
        add(f"{layer}.attn_norm.weight", width)
        add(f"{layer}.ffn_norm.weight", width)
        add(f"{layer}.attn.qkv_proj.weight", (heads + 2 * groups) * size, width)
        add(f"{layer}.attn.out_proj.weight", width, heads * size)
        if config["normalize_qk_projections"]:
            add(f"{layer}.attn.q_norm.weight", size)
            add(f"{layer}.attn.k_norm.weight", size)
        add(f"{layer}.ffn.proj_1.weight", 2 * inner if config["ffn_with_glu"] else inner, width)
        add(f"{layer}.ffn.proj_2.weight", width, inner)
    if config["share_input_output_layers"]:
        tensors["transformer.token_embeddings.weight"] *= 0.4
    else:
        add("lm_head.weight", config["vocab_size"], width)
        tensors["transformer.classifier.weight"] = np.ones((config["vocab_size"], width), np.float32)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return config, tensors


def computed(config: Mapping[str, Any], tensors: Mapping[str, Floats], ids: list[int]) -> Floats:
    """The logits of every position, [t, vocab]."""
    torch = import_torch()
    act = {"swish": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}[config["activation_fn_name"]]
    size, stored = config["head_dim"], {name: torch.from_numpy(array) for name, array in tensors.items()}
    frequencies = config["rope_freq_constant"] ** -(torch.arange(0, size, 2) / size)
    angles = torch.arange(len(ids))[:, None] * frequencies
    cos, sin = (torch.cat([x, x], -1) for x in (angles.cos(), angles.sin()))

    def normed(x: Any, name: str) -> Any:
        weight = stored.get(f"transformer.{name}.weight")
        return x if weight is None else x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight

    def rotated(x: Any) -> Any:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    embedding = stored["transformer.token_embeddings.weight"]
    x = embedding[ids]
    for i, (heads, groups) in enumerate(zip(config["num_query_heads"], config["num_kv_heads"], strict=True)):
        fused = normed(x, f"layers.{i}.attn_norm") @ stored[f"transformer.layers.{i}.attn.qkv_proj.weight"].T
        q, k, v = fused.reshape(len(ids), -1, size).transpose(0, 1).split([heads, groups, groups])
        q, k = rotated(normed(q, f"layers.{i}.attn.q_norm")), rotated(normed(k, f"layers.{i}.attn.k_norm"))
        k, v = (each.repeat_interleave(heads // groups, 0) for each in (k, v))
        scores = q @ k.transpose(1, 2) * size**-0.5 + torch.full((len(ids), len(ids)), -torch.inf).triu(1)
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(ids), -1)
        x = x + mixed @ stored[f"transformer.layers.{i}.attn.out_proj.weight"].T
        wide = normed(x, f"layers.{i}.ffn_norm") @ stored[f"transformer.layers.{i}.ffn.proj_1.weight"].T
        if config["ffn_with_glu"]:
            gate, up = wide.chunk(2, -1)
            wide = act(gate) * up
        else:
            wide = act(wide)
        x = x + wide @ stored[f"transformer.layers.{i}.ffn.proj_2.weight"].T
    head = embedding if config["share_input_output_layers"] else stored["lm_head.weight"]
    return (normed(x, "norm") @ head.T).numpy()


@pytest.mark.parametrize("variant", VARIANTS)
def test_openelm_computes_its_formulas(variant: str, tmp_path: Path) -> None:
    config, tensors = written(variant, tmp_path / "checkpoint")
    ids: list[int] = np.random.default_rng(0).integers(3, 96, 50).tolist()
    judge = partial(computed, config, tensors)
    assert judge(ids).std() > 0.5
    bundle = export_to(tmp_path / "checkpoint", tmp_path / "bundle")
    assert_computes(runner_of(bundle), judge, ids)
    assert [layer.kv_heads for layer in bundle.variant.kv.layers] == [1, 2, 3]


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_quantized_is_bit_exact(scheme: Any, tmp_path: Path) -> None:
    written("base", tmp_path / "checkpoint")
    bundle, report = export(str(tmp_path / "checkpoint"), tmp_path / "bundle", ExportOptions(scheme=scheme))
    assert worst_kl(report) < (0.5 if scheme == "int8" else 2.5)
    case = Case("openelm", "base", BASE)
    assert_bit_exact(bundle, case)


def test_the_published_sizes_give_the_published_number_of_parameters() -> None:
    """Sizes of apple/OpenELM-270M, 271,527,168 parameters."""
    config = {
        **BASE,
        "ffn_dim_divisor": 256,
        "ffn_multipliers": [
            *(0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13, 2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0),
        ],
        "head_dim": 64,
        "max_context_length": 2048,
        "model_dim": 1280,
        "num_gqa_groups": 4,
        "num_kv_heads": [3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5],
        "num_query_heads": [12, 12, 12, 12, 12, 16, 16, 16, 16, 16, 16, 16, 20, 20, 20, 20],
        "num_transformer_layers": 16,
        "rope_max_length": 4096,
        "vocab_size": 32000,
    }
    required, optional = decoder_tensors(OPENELM.read_config(config))
    assert all(name.endswith(".bias") for name in optional)
    assert sum(int(np.prod(shape)) for shape in required.values()) == 271_527_168


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_kv_heads": [1, 3, 3]}, "num_kv_heads: 3 of layer 1 does not divide num_query_heads = 4"),
        ({"num_query_heads": [2, 4]}, "num_query_heads: 3 positive numbers expected, found 2"),
        ({"num_query_heads": None}, "num_query_heads: missing"),
        ({"ffn_multipliers": [0.5, 4.0]}, "ffn_multipliers: 3 positive numbers expected, found 2"),
        ({"ffn_multipliers": 4.0}, "ffn_multipliers: a list expected, found 4.0"),
        ({"normalization_layer_name": "layer_norm"}, "normalization_layer_name = 'layer_norm': only rms_norm is known"),
        ({"rope_freq_constant": 1}, "rope_freq_constant: must be greater than 1"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling = .*: not understood"),
    ],
)
def test_what_its_class_does_not_write_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said) as caught:
        OPENELM.read_config({**BASE, **changes})
    assert "problems" not in str(caught.value)


def test_heads_that_the_checkpoint_does_not_have_are_refused(tmp_path: Path) -> None:
    config, _ = written("base", tmp_path / "checkpoint")
    changed = {**config, "num_query_heads": [2, 4, 3]}
    (tmp_path / "checkpoint" / "config.json").write_text(json.dumps(changed), "utf-8")
    with pytest.raises(TensorError, match=r"layers\.2\.attn\.out_proj\.weight: shape \[64, 96\], but .* \[64, 48\]"):
        export_to(tmp_path / "checkpoint", tmp_path / "bundle")
