"""Configs and tensor names that families with latent attention share."""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from edgegen_export.architecture.architecture import TensorMap
from edgegen_export.architecture.components.latent_attention import Latent, LatentAttention
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import HEAD_DIM_STEP, ConfigReader
from edgegen_export.architecture.rope import Rope
from edgegen_export.architecture.tensor_layouts import Interleaved
from edgegen_export.families.llama import DENSE_MLP, LLAMA_DEFAULTS, LLAMA_TENSORS
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.reading.decoder import read_decoder
from edgegen_export.reading.experts import by_layer, stacked_expert_tensors
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.rope import read_rope, rope_key
from edgegen_export.reading.tensor_names import fused, joined, named

LATENT_DEFAULTS: Mapping[str, Any] = {
    **LLAMA_DEFAULTS,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def read_latent(
    read: ConfigReader,
    *,
    interleaved: bool,
    value: int | None = None,
    whole: int | None = None,
    rotates: bool = True,
) -> DecoderConfig:
    """A Llama with latent attention. ``interleaved``: whether adjacent channels are rotated in pairs; ``value``: the
    size of values where the file does not say it; ``whole``: of how many channels the file says the rotated share, of
    those that all heads share without it; ``rotates``: whether any is."""
    heads, positions = read.count("num_attention_heads"), read.positive("max_position_embeddings")
    rank, rotated = read.positive("kv_lora_rank"), read.positive("qk_rope_head_dim")
    unrotated, value = read.positive("qk_nope_head_dim"), read.positive("v_head_dim", value)
    query_rank = read.positive("q_lora_rank") if read.has("q_lora_rank") else read.optional("q_lora_rank", int)
    if rotated % 2 and read.sound("qk_rope_head_dim"):
        read.problem(f"qk_rope_head_dim = {rotated}: channels are rotated in pairs", "qk_rope_head_dim")
    elif (rank + rotated) % HEAD_DIM_STEP and read.sound("kv_lora_rank", "qk_rope_head_dim"):
        read.problem(
            f"kv_lora_rank + qk_rope_head_dim = {rank + rotated}: latents of this size are not supported, only "
            f"multiples of {HEAD_DIM_STEP}"
        )
    rotated += rotated % 2
    # Of older or newer files, other names of sizes: all heads share one latent, and rope rotates a part of its own.
    read.ignore("head_dim", "qk_head_dim", "num_key_value_heads", "attention_bias", "mlp_bias")
    rope, scale = None, (unrotated + rotated) ** -0.5
    if rotates:
        rope = _read_rope(read, rotated, whole or rotated, positions, interleaved=interleaved)
        scale *= _sharpening(read) ** 2
    sizes = Latent(rank, unrotated, value, query_rank, Norm("rms", 1e-6))
    attention = LatentAttention(heads, 1, rotated + rank, scale, rope=rope, sizes=sizes)
    mlp = MLP(read.positive("intermediate_size"), read.choice("hidden_act", ACTIVATIONS, "silu"), gated=True)
    layers = [Layer(attention, mlp)] * read.count("num_hidden_layers")
    return read_decoder(read, layers, Norm("rms", read.number("rms_norm_eps", least=0)), rope)


def _read_rope(read: ConfigReader, rotated: int, size: int, positions: int, *, interleaved: bool) -> Rope:
    """The rotation of ``rotated`` channels; ``size``: those that the file gives the rotated share of."""
    share = rotated / size
    rope = read_rope(read, size, positions, interleaved=interleaved, partial=share < 1, share=share)
    if rope.dim != rotated and read.sound("head_dim", "qk_rope_head_dim"):
        read.problem(f"partial_rotary_factor: it rotates {rope.dim} channels, and qk_rope_head_dim is {rotated}")
        return replace(rope, dim=rotated)
    return rope


def _sharpening(read: ConfigReader) -> float:
    """By what YaRN multiplies queries, and keys, in these families: by ``mscale_all_dim``, beside what it does to
    cosines and sines."""
    inner = read.inner(rope_key(read))
    kind = inner and (inner.optional("rope_type", str) or inner.optional("type", str))
    if inner is None or kind in (None, "default"):
        return 1.0
    share, factor = inner.number("mscale_all_dim", 0.0, least=0), inner.number("factor", 1.0)
    return 0.1 * share * math.log(factor) + 1.0 if share and factor > 1 else 1.0


_OURS = "layers.{i}.attn"


def latent_tensors(
    config: DecoderConfig, shared: TensorMap = MappingProxyType({}), *, stacked: bool = False
) -> TensorMap:
    """Llama's names, but for those of the attention of ``config``, and of its experts, which may be ``stacked``;
    ``shared``: those of shared ones, beside the others."""
    mlps = qwen_mlp_tensors(config, shared)
    if stacked and config.experts:
        mlps = by_layer(config, {**stacked_expert_tensors(config, "layers.{i}.mlp"), **shared}, DENSE_MLP)
    return {**tensors_beside_mlp(config), **mlps}


def tensors_beside_mlp(config: DecoderConfig, module: str = "layers.{i}.self_attn") -> TensorMap:
    """Llama's names, but for those of the attention of ``config``, which is ``module``, and without those of MLPs."""
    own = config.only(LatentAttention)
    queries = "q_proj" if own.sizes.query_rank is None else "q_b_proj"
    return {
        **{ours: theirs for ours, theirs in LLAMA_TENSORS.items() if ".attn." not in ours and ".mlp." not in ours},
        **named(f"{_OURS}.q_a", f"{module}.q_a_proj"),
        f"{_OURS}.q_a_norm.weight": f"{module}.q_a_layernorm.weight",
        **fused(f"{module}.{queries}", (f"{_OURS}.q", f"{_OURS}.q_rotated"), own.heads),
        **joined(f"{module}.kv_a_proj_with_mqa", (f"{_OURS}.latent", f"{_OURS}.k_rotated")),
        f"{_OURS}.latent_norm.weight": f"{module}.kv_a_layernorm.weight",
        (f"{_OURS}.k_b.weight", f"{_OURS}.v_b.weight"): Interleaved(f"{module}.kv_b_proj.weight", own.heads),
        **named(f"{_OURS}.o", f"{module}.o_proj"),
    }
