"""Cases of the families before 2025."""

from tests.export.checkpoint.gguf_case import BIGGER_HEADS, LLAMA, LLAMA3, LLAMA_STEPS, Case
from tests.export.checkpoint.gguf_steps import (
    bare,
    cohere,
    cohere2,
    dbrx,
    experts_apart,
    falcon,
    fused,
    gemma2,
    gemma3,
    gptj,
    granite,
    input_last,
    key_length,
    kv_heads,
    llama3_factors,
    long_factors,
    mpt,
    neox,
    olmo,
    one_key,
    one_plus,
    partial_rotary,
    permuted,
    phi3,
    pictures,
    rope,
    sizes,
    stablelm,
    stacked_norms,
    ungrouped,
)

_FALCON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 40,
    "bias": False,
    "max_position_embeddings": 64,
    "parallel_attn": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

_MPT = {
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 4,
    "max_seq_len": 64,
    "vocab_size": 40,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

_DBRX = {
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 4,
    "max_seq_len": 64,
    "vocab_size": 40,
    "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.5, "rope_theta": 5000.0},
    "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}

CASES: dict[str, Case] = {
    "dbrx": Case("dbrx", "DbrxConfig", "DbrxForCausalLM", _DBRX, (dbrx,), (experts_apart,)),
    "mpt": Case("mpt", "MptConfig", "MptForCausalLM", {**_MPT, "attn_config": {"clip_qkv": 0.5}}, (mpt,)),
    "mpt without a limit": Case("mpt", "MptConfig", "MptForCausalLM", {**_MPT, "n_heads": 2}, (mpt,)),
    "xverse": Case("xverse", "LlamaConfig", "LlamaForCausalLM", LLAMA, LLAMA_STEPS, (permuted,)),
    "baichuan": Case(
        "baichuan",
        "LlamaConfig",
        "LlamaForCausalLM",
        {**LLAMA, "num_key_value_heads": 4},
        LLAMA_STEPS,
        (permuted,),
    ),
    "llama": Case(
        "llama", "LlamaConfig", "LlamaForCausalLM", LLAMA, LLAMA_STEPS, (permuted, llama3_factors), loader=True
    ),
    "llama with biases, tied, linear scaling": Case(
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
        | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        LLAMA_STEPS,
        (permuted, llama3_factors),
    ),
    "llama 3": Case(
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        {**LLAMA, "head_dim": 16, "rope_theta": 500000.0, "rope_scaling": LLAMA3},
        (*LLAMA_STEPS, key_length),
        (permuted, llama3_factors),
    ),
    "qwen2": Case("qwen2", "Qwen2Config", "Qwen2ForCausalLM", LLAMA, (*LLAMA_STEPS[:2], rope), loader=True),
    "qwen2 with yarn": Case(
        "qwen2",
        "Qwen2Config",
        "Qwen2ForCausalLM",
        {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
        LLAMA_STEPS,
    ),
    "qwen2vl": Case(
        "qwen2vl", "Qwen2Config", "Qwen2ForCausalLM", {**LLAMA, "rope_theta": 1e6}, (sizes, kv_heads, rope, pictures)
    ),
    "paddleocr": Case(
        "paddleocr",
        "LlamaConfig",
        "LlamaForCausalLM",
        {**LLAMA, "head_dim": 16, "rope_theta": 500000.0},
        (sizes, kv_heads, rope, key_length, pictures),
    ),
    "qwen3vl": Case(
        "qwen3vl",
        "Qwen3Config",
        "Qwen3ForCausalLM",
        {**BIGGER_HEADS, "rope_theta": 5e6},
        (sizes, kv_heads, rope, key_length, pictures),
    ),
    "qwen3": Case("qwen3", "Qwen3Config", "Qwen3ForCausalLM", BIGGER_HEADS, (sizes, kv_heads, rope, key_length)),
    "smollm3": Case(
        "smollm3",
        "SmolLM3Config",
        "SmolLM3ForCausalLM",
        {**LLAMA, "num_hidden_layers": 5, "rope_theta": 2000000.0},
        LLAMA_STEPS,
        (permuted,),
    ),
    "granite": Case(
        "granite",
        "GraniteConfig",
        "GraniteForCausalLM",
        {**LLAMA, "attention_multiplier": 0.0625, "embedding_multiplier": 12.0, "residual_multiplier": 0.22}
        | {"logits_scaling": 8.0},
        (*LLAMA_STEPS, granite),
        (permuted,),
    ),
    "olmo": Case(
        "olmo",
        "OlmoConfig",
        "OlmoForCausalLM",
        {**LLAMA, "clip_qkv": 8.0},
        (sizes, kv_heads, rope, olmo),
        (permuted,),
    ),
    "olmo2": Case("olmo2", "Olmo2Config", "Olmo2ForCausalLM", LLAMA, (sizes, kv_heads, rope)),
    "command-r": Case(
        "command-r",
        "CohereConfig",
        "CohereForCausalLM",
        {**LLAMA, "use_qk_norm": True, "logit_scale": 0.0625},
        (sizes, kv_heads, rope, cohere),
    ),
    "cohere2": Case(
        "cohere2",
        "Cohere2Config",
        "Cohere2ForCausalLM",
        {**LLAMA, "num_hidden_layers": 5, "sliding_window": 8, "logit_scale": 0.25, "rope_theta": 50000.0}
        | {"tie_word_embeddings": True},
        (sizes, kv_heads, rope, cohere2),
    ),
    "gemma": Case(
        "gemma",
        "GemmaConfig",
        "GemmaForCausalLM",
        {**BIGGER_HEADS, "hidden_activation": "gelu_pytorch_tanh"},
        (sizes, kv_heads, key_length),
        (one_plus,),
    ),
    "gemma2": Case(
        "gemma2",
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {**BIGGER_HEADS, "sliding_window": 16, "query_pre_attn_scalar": 16},
        (sizes, kv_heads, key_length, gemma2),
        (one_plus,),
        loader=True,
    ),
    "gemma3": Case(
        "gemma3",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {**BIGGER_HEADS, "num_hidden_layers": 7, "sliding_window": 16, "query_pre_attn_scalar": 16}
        | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        (sizes, kv_heads, key_length, rope, gemma3),
        (one_plus,),
        not_said=frozenset({"_sliding_window_pattern"}),
        loader=True,
    ),
    "phi2": Case(
        "phi2",
        "PhiConfig",
        "PhiForCausalLM",
        {**LLAMA, "num_key_value_heads": 4, "intermediate_size": 128, "partial_rotary_factor": 0.5},
        (sizes, kv_heads, partial_rotary),
    ),
    "phi2 of an older converter": Case(
        "phi2",
        "PhiConfig",
        "PhiForCausalLM",
        {**LLAMA, "num_key_value_heads": 4, "partial_rotary_factor": 0.5},
        (sizes, kv_heads, partial_rotary),
        (fused,),
    ),
    "phi3": Case(
        "phi3",
        "Phi3Config",
        "Phi3ForCausalLM",
        {**LLAMA, "sliding_window": 2047, "original_max_position_embeddings": 64},
        (sizes, kv_heads, rope, phi3),
        (long_factors,),
        loader=True,
    ),
    "phi3 with long factors": Case(
        "phi3",
        "Phi3Config",
        "Phi3ForCausalLM",
        {**LLAMA, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 16, "hidden_size": 64}
        | {
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 4.0],
                "long_factor": [8.0] * 6,
            }
        },
        (sizes, kv_heads, rope, partial_rotary, phi3),
        (long_factors,),
    ),
    "starcoder2": Case(
        "starcoder2", "Starcoder2Config", "Starcoder2ForCausalLM", LLAMA, (sizes, kv_heads, rope), loader=True
    ),
    "stablelm": Case(
        "stablelm",
        "StableLmConfig",
        "StableLmForCausalLM",
        {**LLAMA, "partial_rotary_factor": 0.25, "use_qkv_bias": True},
        (sizes, kv_heads, partial_rotary, stablelm),
        (stacked_norms,),
    ),
    "stablelm 12b": Case(
        "stablelm",
        "StableLmConfig",
        "StableLmForCausalLM",
        {**LLAMA, "partial_rotary_factor": 0.25, "qk_layernorm": True, "use_parallel_residual": True},
        (sizes, kv_heads, partial_rotary, stablelm),
        (stacked_norms,),
    ),
    "gpt2": Case(
        "gpt2",
        "GPT2Config",
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024, "vocab_size": 40, "n_inner": 128}
        | {"bos_token_id": 1, "eos_token_id": 2},
        (sizes,),
        (input_last,),
        loader=True,
    ),
    "gptj": Case(
        "gptj",
        "GPTJConfig",
        "GPTJForCausalLM",
        {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 40, "n_inner": 128, "rotary_dim": 8}
        | {"bos_token_id": 1, "eos_token_id": 2},
        (sizes, gptj),
    ),
    "starcoder": Case(
        "starcoder",
        "GPTBigCodeConfig",
        "GPTBigCodeForCausalLM",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 40, "n_inner": 128}
        | {"bos_token_id": 1, "eos_token_id": 2, "multi_query": True},
        (sizes, one_key),
    ),
    "falcon 7b": Case(
        "falcon",
        "FalconConfig",
        "FalconForCausalLM",
        {**_FALCON, "new_decoder_architecture": False, "multi_query": True},
        (sizes, falcon, rope),
        (ungrouped,),
        not_said=frozenset({"num_kv_heads"}),  # not read, there is one
    ),
    "falcon 40b": Case(
        "falcon",
        "FalconConfig",
        "FalconForCausalLM",
        {**_FALCON, "new_decoder_architecture": True, "multi_query": False, "num_kv_heads": 2},
        (sizes, falcon, rope),
        (ungrouped,),
        not_said=frozenset({"num_ln_in_parallel_attn"}),  # its default is what the file has
    ),
    "falcon 11b": Case(
        "falcon",
        "FalconConfig",
        "FalconForCausalLM",
        {**_FALCON, "new_decoder_architecture": True, "multi_query": False, "num_kv_heads": 2}
        | {"num_ln_in_parallel_attn": 1},
        (sizes, falcon, rope),
        (ungrouped,),
    ),
    "bloom": Case(
        "bloom",
        "BloomConfig",
        "BloomForCausalLM",
        {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 40, "seq_length": 64}
        | {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3},
        (sizes,),
        (ungrouped, bare),
        loader=True,
    ),
    "gptneox": Case(
        "gptneox",
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "bos_token_id": 1}
        | {"eos_token_id": 2, "intermediate_size": 48, "max_position_embeddings": 64, "rotary_pct": 0.25},
        (sizes, partial_rotary, neox),
        (ungrouped,),
    ),
}
