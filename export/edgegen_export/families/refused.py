"""Model types that cannot be exported, and the reason why, from ``config.json``."""

from collections.abc import Collection, Mapping
from typing import Any, cast

_ENCODER = "it is an encoder: it has no next token to generate"
_BOTH = "it is an encoder and a decoder; edgegen exports models that are a decoder only"
_CROSS = "it reads pictures or another model by cross-attention, which a decoder-only bundle does not have"
_SPEAKS = "it writes sound or pictures, not text"
_DRAFT = "it is a draft, which reads what another model keeps: export that one, with --draft-head and this checkpoint"

_NEVER: Mapping[str, str] = {
    _ENCODER: """
        albert bert bert-generation big_bird camembert data2vec-text distilbert electra ernie megatron-bert modernbert
        rembert roberta roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xmod
    """,
    _BOTH: """
        bart bigbird_pegasus blenderbot blenderbot-small m2m_100 marian mbart mt5 mvp pegasus plbart prophetnet t5 umt5
        whisper
    """,
    _CROSS: "idefics mllama trocr",
    _SPEAKS: "moshi musicgen musicgen_melody",
    _DRAFT: "gemma4_assistant gemma4_unified_assistant",
    "it reads bytes in patches, whose lengths another model chooses": "blt",
    "it is trained on permutations of its text: it has no KV cache of the tokens so far": "xlnet",
    "its attention to the prompt is not causal": "paligemma",
}

_LATENT = "latent attention, whose KV cache is compressed"
_INDEXED = "sparse attention that chooses keys by an index"
_EXPERTS = "the routing and the layout of its experts"
_TOWERS = "a reader of the language model inside, whose type has no family either"
_OWN = "a reader of its config and the names of its tensors"
_BLOCKS = "residuals that attend to blocks of layers"
_BEYOND = (
    f"{_BLOCKS}, the activation SiTU and experts inside a latent, which the type of its language model has not alone"
)

_NEEDS: Mapping[str, str] = {
    "attention blocks that several layers share, beside Mamba-1 with heads": "zamba",
    "time mixing as in RWKV before its version 7": "rwkv rwkv5 rwkv6",
    "xLSTM layers": "xlstm",
    "gated linear recurrent units": "recurrent_gemma",
    "lightning attention": "minimax",
    "linear attention of its own kind": "qwen4_exp qwen4_exp_text",
    "convolutions of its own kind": "zaya",
    _BEYOND: "kimi_k3",
    _LATENT: "axk1 longcat_flash sarvam_mla",
    _INDEXED: "axk2 deepseek_v32 deepseek_v4 dots3_note_text glm_moe_dsa hy_v4 minimax_m3 minimax_m3_vl_text",
    _EXPERTS: "beam doge jetmoe mimo_v2_flash phimoe step3p5",
    "attention within chunks of the context, and experts whose inputs the router weighs": "llama4_text",
    "attention that hashes keys into buckets": "reformer",
    "learned distances between segments as positions": "cpmant",
    "layers without attention or an MLP, or with one matrix in their place": "nemotron-nas",
    _TOWERS: """
        aria blip blip-2 chameleon cohere_compass cosmos3_edge cosmos3_omni deepseek_ocr2 diffusion_gemma
        dots3_note emu3 ernie4_5_vl_moe fuyu git glm4v_moe glm5_next hunyuan_vl hy_v4_vl
        instructblip instructblipvideo kosmos-2 kosmos-2.5 llama4 minimax_m3_vl
        mistral_large4 molmo2 muse_glimmer muse_spark phi4_multimodal qwen2_5_omni qwen3_omni_moe step3p7 unlimited_ocr
    """,
    "a reader of the language model inside": "kimi_k25",
    _OWN: "chatglm cohere_compass_text ctrl internlm modernbert-decoder phi3_v xglm",
}
"""Parts that a family of these types would need beyond those of other families."""

REFUSED: dict[str, str] = {
    **{name: reason for reason, names in _NEVER.items() for name in names.split()},
    **{
        name: f"edgegen has no family for {name} yet: it needs {what}"
        for what, names in _NEEDS.items()
        for name in names.split()
    },
}
"""``model_type`` → why it cannot be exported: every causal type of transformers 5 without a family, and some others."""


def never() -> frozenset[str]:
    """The types that no family could be written for: they do not continue a text."""
    return frozenset(name for names in _NEVER.values() for name in names.split())


_LAYERS = {
    "mamba": "Mamba layers",
    "recurrent": "recurrent layers",
    "linear_attention": "linear attention",
    "conv": "convolutions over tokens",
}
_SIGNS = {
    "vision_config": "a vision tower",
    "audio_config": "an audio tower",
    "index_topk": _INDEXED,
    "kv_lora_rank": _LATENT,
    "ssm_state_size": "Mamba layers",
    "mamba_d_state": "Mamba layers",
    "num_experts": "a mixture of experts",
    "num_local_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
}
"""Keys that only such models have, the larger difference first: they tell of types that are not listed."""


def why_not(config: Mapping[str, Any], known: Collection[str]) -> str | None:
    """Why a model of no family cannot be exported and what can be done, or None if its config does not say.

    ``known``: the types that have a family.
    """
    model_type = config["model_type"]
    reason = REFUSED.get(model_type) or _by_its_keys(config)
    text = config.get("text_config")
    inner = cast("dict[str, Any]", text).get("model_type") if isinstance(text, dict) else None
    if reason and _TOWERS in reason and isinstance(inner, str) and inner in REFUSED:
        return f"its language model is of model_type {inner!r}, and {REFUSED[inner]}"
    if reason and _BEYOND not in reason and isinstance(inner, str) and inner in known:
        return f"{reason}; its language model, of model_type {inner!r}, may be exported from a checkpoint of its own"
    return reason


def _by_its_keys(config: Mapping[str, Any]) -> str | None:
    """Say why a type that is not listed is refused, by its keys; None if they do not tell."""
    if config.get("is_encoder_decoder"):
        return _BOTH
    kinds = config.get("layer_types")
    listed = cast("list[object]", kinds) if isinstance(kinds, list) else []
    found = next((_LAYERS[kind] for kind in listed if isinstance(kind, str) and kind in _LAYERS), None)
    found = found or next((what for key, what in _SIGNS.items() if config.get(key)), None)
    return f"edgegen has no family for {config['model_type']}, which has {found}" if found else None
