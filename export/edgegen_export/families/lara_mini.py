"""Lara Mini: gated delta nets, sliding windows that rotate and full attention that does not, with experts in every
layer and one more that every token uses."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.families import qwen3_5
from edgegen_export.families.llama import BESIDE_MLP, read_llama
from edgegen_export.families.qwen import UNGATED
from edgegen_export.reading.experts import stacked_expert_tensors, with_experts
from edgegen_export.reading.layer_types import read_window, rotating, sliding
from edgegen_export.reading.mixers import mixing
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM

_KINDS = ("linear_attention", "sliding_attention", "full_attention")
_PATTERN = ("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention")
"""Of the layers, in turns, where the file does not say it."""


def read_lara_mini(read: ConfigReader) -> DecoderConfig:
    """``LaraMiniConfig``."""
    config = read_llama(read)
    kinds = read.per_layer("layer_types", {kind: kind for kind in _KINDS}, config.num_layers)
    kinds = kinds or tuple(_PATTERN[i % len(_PATTERN)] for i in range(config.num_layers))
    windowed = [kind == "sliding_attention" for kind in kinds]
    config = sliding(rotating(config, None, [not slides for slides in windowed]), read_window(read), windowed)
    config = with_qk_norm(config)
    recurrent = [kind == "linear_attention" for kind in kinds]
    config = mixing(read, config, qwen3_5.read_net(read, config), recurrent)
    width, shared = read.positive("moe_intermediate_size"), read.positive("shared_expert_intermediate_size")
    config = with_experts(read, config, "num_experts", normalized=read.flag("norm_topk_prob"), width=width)
    return config.each_experts(lambda own: replace(own, shared_width=shared))


_NET = "layers.{i}.linear_attn"


def tensors(config: DecoderConfig) -> TensorMap:
    beside = {ours: theirs for ours, theirs in qwen3_5.net_tensors().items() if not qwen3_5.is_projected(ours)}
    return {
        **BESIDE_MLP,
        **QK_NORM,
        **beside,
        tuple(f"layers.{{i}}.delta.{x}.weight" for x in ("q", "k", "v", "z", "beta", "dt")): Concatenated(
            f"{_NET}.in_proj.weight"
        ),
        "layers.{i}.delta.norm.weight": f"{_NET}.out_norm.weight",
        **stacked_expert_tensors(config, "layers.{i}.mlp"),
        **UNGATED,
    }


LARA_MINI = Architecture(
    model_types=("lara_mini",),
    classes=("LaraMiniForCausalLM",),
    read=read_lara_mini,
    tensors=tensors,
    defaults={
        **{key: value for key, value in qwen3_5.DEFAULTS.items() if not key.startswith(("partial", "full_"))},
        "vocab_size": 151936,
        "hidden_size": 1024,
        "num_hidden_layers": 34,
        "max_position_embeddings": 131072,
        "head_dim": 128,
        "tie_word_embeddings": True,
        "sliding_window": 512,
        "linear_num_key_heads": 8,
        "linear_num_value_heads": 16,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts_per_tok": 4,
        "num_experts": 128,
        "norm_topk_prob": True,
    },
    aliases={"num_local_experts": "num_experts"},
)
