"""DeepSeek-V3 and R1, Moonlight and Kimi K2: latent attention that rotates adjacent channels of a part of each head,
and experts after the first layers, chosen from the best groups by sigmoids and a bias of each, with shared ones."""

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.glm4_moe import DRAFT_HEAD, DRAFTS
from edgegen_export.families.latent import LATENT_DEFAULTS, latent_tensors, read_latent
from edgegen_export.reading.experts import DEEPSEEK_EXPERTS, behind_dense, with_deepseek_experts


def read_deepseek_v3(read: ConfigReader) -> DecoderConfig:
    """``DeepseekV3Config``, and the keys of the model's own code."""
    config = read_latent(read, interleaved=read.flag("rope_interleave"))
    read.ignore("ep_size", "seq_aux", "aux_loss_alpha")  # of training and serving
    read.refuse("moe_layer_freq", (1,), "all layers behind the dense ones have experts in this family")
    read.refuse("scoring_func", ("sigmoid",), "experts are weighed by sigmoids only in this family")
    read.refuse("topk_method", ("noaux_tc",), "experts are chosen with a bias of each in this family")
    return with_deepseek_experts(read, config, behind_dense(read, "first_k_dense_replace", config.num_layers))


def tensors(config: DecoderConfig) -> TensorMap:
    return latent_tensors(config, DEEPSEEK_EXPERTS)


DEEPSEEK_V3 = Architecture(
    model_types=("deepseek_v3", "kimi_k2"),
    classes=("DeepseekV3ForCausalLM",),
    read=read_deepseek_v3,
    tensors=tensors,
    defaults={
        **LATENT_DEFAULTS,
        "vocab_size": 129280,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "max_position_embeddings": 4096,
        "rope_interleave": True,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "routed_scaling_factor": 2.5,
        "n_group": 8,
        "topk_group": 4,
        "first_k_dense_replace": 3,
        "norm_topk_prob": True,
    },
    drafts=DRAFTS,
    draft_head=DRAFT_HEAD,
    aliases={"num_local_experts": "n_routed_experts"},
)
