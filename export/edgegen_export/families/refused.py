"""Model types that cannot be exported, and the reason why, from ``config.json``."""

from collections.abc import Collection, Mapping
from typing import Any, cast

_STATE = "it is a recurrent model: its state is not a KV cache, which a bundle's graphs share"
_HYBRID = "some of its layers are recurrent: their state is not a KV cache"
_LINEAR = "some of its layers have linear attention: its state is not a KV cache"
_CONVOLUTION = "some of its layers are convolutions over tokens: their state is not a KV cache"
_ENCODER = "it is an encoder: it has no next token to generate"
_BOTH = "it is an encoder and a decoder; edgegen exports models that are a decoder only"
_CROSS = "it is the decoder of another model, which it reads by cross-attention"
_LATENT = "its latent attention has a compressed KV cache, which no operator on the CPU reads"
_INDEXED = "its sparse attention chooses keys by an index of its own, which no operator on the CPU computes"
_SEES = "it reads more than text"
_SPEAKS = "it writes sound, not text"
_EXPERTS = "its mixture of experts is not one that edgegen's graphs compute"
_DRAFT = "it is a draft model, which reads the hidden states of another one"
_NO_FAMILY = "edgegen has no family for it"

_REASONS: dict[str, str] = {
    _STATE: "mamba mamba2 falcon_mamba rwkv xlstm",
    _HYBRID: "jamba zamba zamba2 recurrent_gemma",
    _LINEAR: """
        bailing_hybrid kimi_linear minimax olmo_hybrid qwen4_exp qwen4_exp_text
    """,
    _CONVOLUTION: "inkling2_text inkling_text zaya",
    _ENCODER: """
        albert bert bert-generation big_bird camembert data2vec-text distilbert electra ernie megatron-bert modernbert
        rembert roberta roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xmod
    """,
    _BOTH: """
        bart bigbird_pegasus blenderbot blenderbot-small m2m_100 marian mbart mt5 mvp pegasus plbart prophetnet t5 umt5
        whisper
    """,
    _CROSS: "trocr",
    _LATENT: "axk1 deepseek_v2 deepseek_v3 glm4_moe_lite longcat_flash minicpm3 youtu",
    _INDEXED: "axk2 deepseek_v32 deepseek_v4 dots3_note_text glm_moe_dsa hy_v4 minimax_m3_vl_text",
    _SEES: """
        dots3_note emu3 fuyu gemma4_unified git got_ocr2 idefics3 llama4 llava llava_next mllama
        moss_transcribe_diarize paligemma phi4_multimodal qwen2_5_vl qwen2_vl qwen3_vl smolvlm
    """,
    _SPEAKS: "moshi musicgen musicgen_melody",
    _EXPERTS: """
        afmoe aria_text beam cohere2_moe dbrx doge dots1 ernie4_5_moe exaone_moe flex_olmo flint glm4_moe
        hunyuan_v1_moe hy_v3 jetmoe kolibri1 laguna llama4_text mellum mimo_v2_flash
        minimax_m2 phimoe solar_open
    """,
    _DRAFT: "gemma4_assistant gemma4_unified_assistant",
    "its attention is the difference of two, which no operator on the CPU computes": "diffllama",
    "its layers run several times for each token, with keys and values of each time": "hrm_text",
    "it reads bytes in patches, whose lengths another model chooses": "blt",
    "it is trained on permutations of its text: it has no KV cache of the tokens so far": "xlnet",
    "its attention hashes keys into buckets, which no operator on the CPU computes": "reformer",
    "its positions are learned distances between segments, which no operator on the CPU adds": "cpmant",
    "its activations are rounded to 8 bits by each layer, which edgegen's graphs do not": "bitnet",
    # Their mathematics would fit.
    _NO_FAMILY: """
        biogpt
        codegen
        cohere_compass_text
        ctrl
        cwm
        gemma4_unified_text
        gpt-sw3
        gpt_neox_japanese
        iquestcoder
        jais2
        ministral
        modernbert-decoder
        mpt
        nanochat
        openai-gpt
        persimmon
        vaultgemma
        xglm
    """,
}

REFUSED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""``model_type`` → why it cannot be exported: every causal type of transformers 5 without a family, and some others."""

OPTIMUM = frozenset("codegen mpt".split())
"""Those of them that optimum traces as a decoder whose KV cache a bundle can have."""

_LAYERS = {"mamba": _HYBRID, "recurrent": _HYBRID, "linear_attention": _LINEAR, "conv": _CONVOLUTION}
_SIGNS = {
    "is_encoder_decoder": _BOTH,
    "vision_config": _SEES,
    "audio_config": _SEES,
    "index_topk": _INDEXED,
    "kv_lora_rank": _LATENT,
    "ssm_state_size": _HYBRID,
    "mamba_d_state": _HYBRID,
    "num_experts": _EXPERTS,
    "num_local_experts": _EXPERTS,
    "n_routed_experts": _EXPERTS,
}
"""Keys that only such models have, the larger difference first: they tell of types that are not listed."""


def why_not(config: Mapping[str, Any], known: Collection[str]) -> str | None:
    """Why a model of no family cannot be exported and what can be done, or None if its config does not say.

    ``known``: the types that have a family.
    """
    model_type = config["model_type"]
    reason = REFUSED.get(model_type) or _by_its_keys(config)
    if model_type in OPTIMUM:
        return f"{reason}; try --via optimum"
    text = config.get("text_config")
    inner = cast("dict[str, Any]", text).get("model_type") if isinstance(text, dict) else None
    if reason == _SEES and isinstance(inner, str) and inner in known:
        return f"{reason}; its language model, of model_type {inner!r}, may be exported from a checkpoint of its own"
    return reason


def _by_its_keys(config: Mapping[str, Any]) -> str | None:
    kinds = config.get("layer_types")
    for kind in cast("list[object]", kinds) if isinstance(kinds, list) else ():
        if isinstance(kind, str) and kind in _LAYERS:
            return _LAYERS[kind]
    return next((reason for key, reason in _SIGNS.items() if config.get(key)), None)
