"""Cases of mixtures of experts."""

from tests.export.checkpoint.gguf_case import BIGGER_HEADS, LLAMA, LLAMA_STEPS, Case
from tests.export.checkpoint.gguf_steps import (
    experts,
    flat_gate,
    gpt_oss,
    granite,
    key_length,
    kv_heads,
    llama,
    merged,
    permuted,
    pictures,
    rope,
    sizes,
    split,
    unstacked_gpt_oss,
)

_EXPERTS = {**LLAMA, "num_experts_per_tok": 2}

CASES: dict[str, Case] = {
    "mixtral": Case(
        "llama",
        "MixtralConfig",
        "MixtralForCausalLM",
        {**_EXPERTS, "intermediate_size": 64, "num_local_experts": 4},
        (*LLAMA_STEPS, experts),
        (permuted, merged),
    ),
    "qwen2moe": Case(
        "qwen2moe",
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {**_EXPERTS, "num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32},
        (sizes, kv_heads, rope, experts),
        (merged, flat_gate),
    ),
    "qwen3moe": Case(
        "qwen3moe",
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {**_EXPERTS, "head_dim": 16, "num_experts": 4, "moe_intermediate_size": 16, "norm_topk_prob": True},
        (sizes, kv_heads, rope, key_length, experts),
        (merged,),
    ),
    "qwen3vlmoe": Case(
        "qwen3vlmoe",
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {**_EXPERTS, "head_dim": 16, "num_experts": 4, "moe_intermediate_size": 16, "norm_topk_prob": True},
        (sizes, kv_heads, rope, key_length, experts, pictures),
        (merged,),
    ),
    "olmoe": Case(
        "olmoe",
        "OlmoeConfig",
        "OlmoeForCausalLM",
        {**_EXPERTS, "num_experts": 4},
        (sizes, kv_heads, rope, experts),
        (merged,),
    ),
    "granitemoe": Case(
        "granitemoe",
        "GraniteMoeConfig",
        "GraniteMoeForCausalLM",
        {**_EXPERTS, "num_local_experts": 4, "attention_multiplier": 0.0625, "tie_word_embeddings": True},
        (sizes, kv_heads, llama, rope, granite, experts),
        (permuted, split),
    ),
    "granitemoe with a shared expert": Case(
        "granitemoe",
        "GraniteMoeSharedConfig",
        "GraniteMoeSharedForCausalLM",
        {**_EXPERTS, "num_local_experts": 4, "attention_multiplier": 0.0625, "shared_intermediate_size": 64},
        (sizes, kv_heads, llama, rope, granite, experts),
        (permuted, split),
    ),
    "gpt-oss": Case(
        "gpt-oss",
        "GptOssConfig",
        "GptOssForCausalLM",
        {**BIGGER_HEADS, "tie_word_embeddings": False, "num_experts_per_tok": 2, "num_local_experts": 4}
        | {"intermediate_size": 32, "sliding_window": 12}
        | {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 16,
            }
        },
        (sizes, kv_heads, rope, key_length, experts, gpt_oss),
        (unstacked_gpt_oss,),
    ),
}
