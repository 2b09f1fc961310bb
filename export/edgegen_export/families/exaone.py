"""EXAONE 3 and 3.5: Llama whose keys and tensors have other names. EXAONE 4: OLMo 2's norms after each block, QK norm
per head; where some layers have a window, only those rotate. EXAONE 4 MoE (K-EXAONE): norms before each sublayer, and
experts routed as in DeepSeek-V3 with shared ones."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.families.olmo import OLMO2_TENSORS
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.reading.experts import SHARED_EXPERTS, behind_dense, read_mlp_types, with_deepseek_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, read_window_pattern, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM

_LAYER = "h.{i}"

EXAONE = Architecture(
    model_types=("exaone",),
    classes=("ExaoneForCausalLM", "LlamaForCausalLM"),
    read=read_llama,
    tensors={
        "embed.weight": "wte.weight",
        "layers.{i}.attn_norm.weight": f"{_LAYER}.ln_1.weight",
        **{f"layers.{{i}}.attn.{x}.weight": f"{_LAYER}.attn.attention.{x}_proj.weight" for x in "qkv"},
        "layers.{i}.attn.o.weight": f"{_LAYER}.attn.attention.out_proj.weight",
        "layers.{i}.mlp_norm.weight": f"{_LAYER}.ln_2.weight",
        "layers.{i}.mlp.gate.weight": f"{_LAYER}.mlp.c_fc_0.weight",
        "layers.{i}.mlp.up.weight": f"{_LAYER}.mlp.c_fc_1.weight",
        "layers.{i}.mlp.down.weight": f"{_LAYER}.mlp.c_proj.weight",
        "final_norm.weight": "ln_f.weight",
        "head.weight": "lm_head.weight",
    },
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 102400,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
    },
    prefixes=("", "transformer."),
    aliases={
        "num_layers": "num_hidden_layers",
        "layer_norm_epsilon": "rms_norm_eps",
        "activation_function": "hidden_act",
    },
)


def read_exaone4(read: ConfigReader) -> DecoderConfig:
    """``Exaone4Config``."""
    config, window = read_llama(read), read_window(read)
    count = config.num_layers
    if read.has("layer_types"):
        read.ignore("sliding_window_pattern")  # a number, or a word such as LLLG
        windowed = read_layer_types(read, count, [False] * count)
    else:
        windowed = read_window_pattern(read, count, period=4) if window else [False] * count
        read.ignore("sliding_window_pattern")
    config = rotating(config, None, [window is not None and not slides for slides in windowed])
    config = with_qk_norm(replace(config, block="post_norm"))
    return sliding(config, window, windowed)


EXAONE4 = Architecture(
    model_types=("exaone4",),
    classes=("Exaone4ForCausalLM",),
    read=read_exaone4,
    tensors=OLMO2_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 102400,
        "intermediate_size": 16384,
        "num_key_value_heads": 32,
        "rms_norm_eps": 1e-5,
        "sliding_window": 4096,
    },
)


def read_exaone_moe(read: ConfigReader) -> DecoderConfig:
    """``ExaoneMoeConfig``."""
    config = replace(read_exaone4(read), block="sequential")
    dense = behind_dense(read, "first_k_dense_replace", config.num_layers)
    sparse = read_mlp_types(read, config.num_layers, dense)
    return with_deepseek_experts(read, config, sparse, count_key="num_experts", shared_key="num_shared_experts")


def _moe_tensors(config: DecoderConfig) -> TensorMap:
    bias: TensorMap = {"layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.e_score_correction_bias"}
    return {**BESIDE_MLP, **QK_NORM, **qwen_mlp_tensors(config, {**SHARED_EXPERTS, **bias})}


EXAONE_MOE = Architecture(
    model_types=("exaone_moe",),
    classes=("ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"),
    read=read_exaone_moe,
    tensors=_moe_tensors,
    defaults={
        **EXAONE4.defaults,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 1024,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "num_shared_experts": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "n_group": 1,
        "topk_group": 1,
    },
    heads=(r"mtp.*",),
    aliases={"num_local_experts": "num_experts"},
)
