"""Unsupported model types, with the reason why each cannot be exported."""

_STATE = "it is a recurrent model: its state is not a KV cache, which a bundle's graphs share"
_HYBRID = "some of its layers are recurrent: their state is not a KV cache"
_ENCODER = "it is an encoder: it has no next token to generate"
_BOTH = "it is an encoder and a decoder; edgegen exports models that are a decoder only"
_LATENT = "its latent attention has a compressed KV cache, which no operator on the CPU reads; try --via optimum"
_SEES = "it reads more than text; a checkpoint of its language model alone may be exported"
_EXPERTS = "its mixture of experts is not one that ONNX Runtime's CPU operators compute; try --via optimum"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), _STATE),
    **dict.fromkeys(
        ("jamba", "zamba", "zamba2", "bamba", "recurrent_gemma", "falcon_h1", "lfm2", "nemotron_h"),
        _HYBRID,
    ),
    **dict.fromkeys(("qwen3_next", "minimax"), "some of its layers have linear attention: its state is not a KV cache"),
    **dict.fromkeys(("bert", "distilbert", "roberta", "xlm-roberta", "albert", "electra", "modernbert"), _ENCODER),
    **dict.fromkeys(("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "m2m_100", "whisper"), _BOTH),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "minicpm3"), _LATENT),
    **dict.fromkeys(
        ("gemma3n", "llama4", "mllama", "llava", "llava_next", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"), _SEES
    ),
    **dict.fromkeys(("idefics3", "smolvlm", "paligemma", "phi4_multimodal"), _SEES),
    **dict.fromkeys(("dbrx", "llama4_text", "jetmoe", "phimoe", "ernie4_5_moe", "glm4_moe"), _EXPERTS),
}
"""``model_type`` → why it cannot be exported."""
