"""Cases of mixtures of experts, and of LFM2."""

from tests.export.checkpoint.gguf_case import LLAMA, Case
from tests.export.checkpoint.gguf_steps import (
    experts,
    key_length,
    kv_heads,
    lfm2,
    llama,
    permuted,
    rope,
    sizes,
    stacked_experts,
    without_channel_axis,
)

_SOME = {**LLAMA, "num_experts": 6, "num_experts_per_tok": 3}
_QWEN = {**_SOME, "moe_intermediate_size": 16, "tie_word_embeddings": False}
_STEPS = (sizes, kv_heads, rope, experts)
_TRAINING = frozenset({"router_aux_loss_coef", "output_router_logits", "router_jitter_noise", "use_sliding_window"})

OF_EXPERTS: dict[str, Case] = {
    "qwen2moe": Case(
        "qwen2moe",
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {**_QWEN, "shared_expert_intermediate_size": 32, "norm_topk_prob": False},
        _STEPS,
        (stacked_experts,),
        not_said=_TRAINING,
    ),
    "qwen3moe": Case(
        "qwen3moe",
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {**_QWEN, "head_dim": 16, "norm_topk_prob": True},
        (*_STEPS, key_length),
        (stacked_experts,),
        not_said=_TRAINING,
    ),
    "olmoe": Case(
        "olmoe",
        "OlmoeConfig",
        "OlmoeForCausalLM",
        {**_SOME, "norm_topk_prob": False},
        _STEPS,
        (stacked_experts,),
        not_said=_TRAINING,
    ),
    "mixtral": Case(
        "llama",
        "MixtralConfig",
        "MixtralForCausalLM",
        {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
        (sizes, kv_heads, llama, rope, experts),
        (permuted, stacked_experts),
        not_said=_TRAINING,
    ),
    "lfm2": Case(
        "lfm2",
        "Lfm2Config",
        "Lfm2ForCausalLM",
        {
            **LLAMA,
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "tie_word_embeddings": True,
        }
        | {"block_auto_adjust_ff_dim": False, "conv_L_cache": 3},
        (sizes, rope, lfm2),
        (without_channel_axis,),
        not_said=frozenset({"full_attn_idxs"}),
    ),
    "lfm2 with biases, untied": Case(
        "lfm2",
        "Lfm2Config",
        "Lfm2ForCausalLM",
        {**LLAMA, "num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "full_attention"]}
        | {"block_auto_adjust_ff_dim": False, "conv_L_cache": 4, "conv_bias": True, "tie_word_embeddings": False},
        (sizes, rope, lfm2),
        (without_channel_axis,),
        not_said=frozenset({"full_attn_idxs"}),
    ),
}
