"""GLM-4.7-Flash: DeepSeek-V3's attention and routing after a dense first layer."""

from dataclasses import replace

from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.deepseek import DEEPSEEK_V3
from edgegen_export.families.latent import read_latent
from edgegen_export.reading.experts import behind_dense, read_mlp_types, with_deepseek_experts


def read_glm4_moe_lite(read: ConfigReader) -> DecoderConfig:
    """``Glm4MoeLiteConfig``."""
    config = read_latent(read, interleaved=read.flag("rope_interleave"))
    read.refuse("topk_method", ("noaux_tc",), "experts are chosen with a bias of each in this family")
    behind = behind_dense(read, "first_k_dense_replace", config.num_layers)
    return with_deepseek_experts(read, config, read_mlp_types(read, config.num_layers, behind))


GLM4_MOE_LITE = replace(
    DEEPSEEK_V3,
    model_types=("glm4_moe_lite",),
    classes=("Glm4MoeLiteForCausalLM",),
    read=read_glm4_moe_lite,
    defaults={
        **DEEPSEEK_V3.defaults,
        "vocab_size": 154880,
        "hidden_size": 2048,
        "intermediate_size": 10240,
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "max_position_embeddings": 202752,
        "rms_norm_eps": 1e-5,
        "q_lora_rank": 768,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 64,
        "num_experts_per_tok": 4,
        "routed_scaling_factor": 1.8,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
    },
)
