"""AFMoE (Arcee's Trinity): layers whose attention has a window rotate, the others do not; attention has gates,
sublayers have norms after them, and experts are weighed by sigmoids and chosen with a bias of each."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Gate
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.reading.experts import SHARED_EXPERTS, behind_dense, with_sigmoid_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM


def read_afmoe(read: ConfigReader) -> DecoderConfig:
    """``AfmoeConfig``."""
    config = read_llama(read)
    count = config.num_layers
    windowed = read_layer_types(read, count, every(read.positive("global_attn_every_n_layers"), False, True, count))
    config = sliding(rotating(config, None, [not slides for slides in windowed]), read_window(read), windowed)
    config = with_qk_norm(config).each_attention(lambda own: replace(own, gate=Gate("channel")))
    scale = config.hidden_size**0.5 if read.flag("mup_enabled") else 1.0
    return _with_experts(read, replace(config, block="sandwich", embedding_multiplier=scale))


def _with_experts(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    read.ignore("load_balance_coeff", "use_grouped_mm")  # of the training, and of how experts are computed
    read.refuse("score_func", ("sigmoid",), "experts are weighed by sigmoids only in this family")
    read.refuse("route_norm", (True,), "the weights of experts add up to one in this family")
    for key in ("n_group", "topk_group", "num_expert_groups", "num_limited_groups"):
        read.refuse(key, (1,), "experts are in one group in this family")
    sparse = behind_dense(read, "num_dense_layers", config.num_layers)
    return with_sigmoid_experts(read, config, sparse, "num_experts", "num_shared_experts", "route_scale")


def tensors(config: DecoderConfig) -> TensorMap:
    bias: TensorMap = {"layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.expert_bias"}
    return {
        **BESIDE_MLP,
        **QK_NORM,
        "layers.{i}.attn.gate.weight": "layers.{i}.self_attn.gate_proj.weight",
        "layers.{i}.attn_post_norm.weight": "layers.{i}.post_attention_layernorm.weight",
        "layers.{i}.mlp_norm.weight": "layers.{i}.pre_mlp_layernorm.weight",
        "layers.{i}.mlp_post_norm.weight": "layers.{i}.post_mlp_layernorm.weight",
        **qwen_mlp_tensors(config, {**SHARED_EXPERTS, **bias}, "router.gate"),
    }


AFMOE = Architecture(
    model_types=("afmoe",),
    classes=("AfmoeForCausalLM",),
    read=read_afmoe,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 200192,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 1408,
        "num_dense_layers": 1,
        "num_attention_heads": 16,
        "head_dim": 128,
        "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-5,
        "num_experts": 64,
        "num_experts_per_tok": 6,
        "num_shared_experts": 2,
        "route_scale": 1.0,
        "global_attn_every_n_layers": 4,
        "sliding_window": 1024,
    },
    aliases={"num_local_experts": "num_experts"},
)
