"""Kolibri 1: a norm before and after each sublayer, no rotation where attention is full, and experts in every layer,
chosen by their logits with a bias of each and weighed by sigmoids, with a shared one."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.reading.experts import SHARED_EXPERTS, with_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM


def read_kolibri1(read: ConfigReader) -> DecoderConfig:
    """``Kolibri1Config``, which has no dense MLP, and so no width of one."""
    width = read.positive("moe_intermediate_size")
    config, window = read_llama(read.with_defaults({"intermediate_size": width})), read_window(read)
    count = config.num_layers
    windowed = read_layer_types(read, count, [(i + 1) % 5 != 0 for i in range(count)])
    config = rotating(config, None, [window is not None and not slides for slides in windowed])
    config = with_qk_norm(replace(config, block="sandwich"))
    config = with_experts(
        read, sliding(config, window, windowed), "num_experts", normalized=read.flag("norm_topk_prob"), width=width
    )
    routing = Routing("sigmoid", choice_bias=True, choice_by_logits=True)
    shared = read.positive("shared_expert_intermediate_size")
    return config.each_experts(lambda own: replace(own, routing=routing, shared_width=shared))


def tensors(config: DecoderConfig) -> TensorMap:
    bias: TensorMap = {"layers.{i}.mlp.router.choice_bias": "layers.{i}.moe.router.expert_bias"}
    return {
        **BESIDE_MLP,
        **QK_NORM,
        "layers.{i}.attn_post_norm.weight": "layers.{i}.post_attn_norm.weight",
        "layers.{i}.mlp_post_norm.weight": "layers.{i}.post_ffn_norm.weight",
        **qwen_mlp_tensors(config, {**SHARED_EXPERTS, **bias}),
    }


KOLIBRI1 = Architecture(
    model_types=("kolibri1",),
    classes=("Kolibri1ForCausalLM",),
    read=read_kolibri1,
    tensors=tensors,
    defaults={
        **{key: value for key, value in LLAMA_DEFAULTS.items() if key != "intermediate_size"},
        "vocab_size": 128000,
        "hidden_size": 2560,
        "num_hidden_layers": 50,
        "num_attention_heads": 48,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "sliding_window": 513,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts_per_tok": 6,
        "num_experts": 384,
    },
    aliases={"num_local_experts": "num_experts"},
)
