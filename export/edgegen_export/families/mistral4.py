"""Mistral 4: latent attention whose queries grow with their position, and experts weighed by a softmax, chosen from the
best groups, with shared ones."""

from dataclasses import replace
from functools import partial

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.latent import LATENT_DEFAULTS, latent_tensors, read_latent
from edgegen_export.families.mistral import with_query_scale
from edgegen_export.reading.experts import SHARED_EXPERTS, behind_dense, with_deepseek_experts


def read_mistral4(read: ConfigReader) -> DecoderConfig:
    """``Mistral4Config``."""
    whole = read.positive("qk_nope_head_dim") + read.positive("qk_rope_head_dim")
    config = read_latent(read, interleaved=read.flag("rope_interleave"), whole=whole)
    config = with_query_scale(read, config)
    config = with_deepseek_experts(read, config, behind_dense(read, "first_k_dense_replace", config.num_layers))
    return config.each_experts(
        lambda own: replace(own, routing=replace(own.routing, scores="softmax", choice_bias=False))
    )


MISTRAL4 = Architecture(
    model_types=("mistral4",),
    classes=("Mistral4ForCausalLM",),
    read=read_mistral4,
    tensors=partial(latent_tensors, shared=SHARED_EXPERTS),
    defaults={
        **{key: value for key, value in LATENT_DEFAULTS.items() if key != "rope_theta"},
        "vocab_size": 131072,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "max_position_embeddings": 1048576,
        "rope_interleave": True,
        "kv_lora_rank": 256,
        "q_lora_rank": 1024,
        "qk_nope_head_dim": 64,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "routed_scaling_factor": 1.0,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "rope_parameters": {
            "type": "yarn",
            "rope_theta": 10000.0,
            "factor": 128.0,
            "original_max_position_embeddings": 8192,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale_all_dim": 1.0,
            "mscale": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
    variant=("mlp.experts.gate_up_proj", lambda config, _: latent_tensors(config, SHARED_EXPERTS, stacked=True)),
    aliases={"num_local_experts": "n_routed_experts"},
)
