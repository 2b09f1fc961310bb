"""Models with towers for pictures or sound around a language model of a family, which is exported alone.

What stands in ``text_config`` is the language model's; what stands beside it, and is named here, is of the towers.
Positions in several dimensions are one where there is only text.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.ernie4_5 import ERNIE4_5
from edgegen_export.families.inside_only import qwen3_vl_moe
from edgegen_export.families.refused import REFUSED

INNER_KEYS = ("text_config", "llm_config", "language_config")
"""Where the language model's config may stand."""

OUTER_PREFIXES = ("", "language_model.", "model.language_model.", "model.text_model.", "text_model.")
"""Before the names of the language model's tensors; none in the first format of Qwen2-VL."""

TOWERS = """
    acoustic_tokenizer_encoder aligner audio audio_model audio_tower audio_encoder audio_tokenizer connector embed_audio
    embed_vision encoder high_res_vision_alpha high_res_vision_model high_res_vision_neck generation_aligner
    generation_embeddings generation_head high_res_vision_proj image_newline image_tower language_projection merger
    mlp_AR mm_projector multi_modal_projector perceiver_resampler projector qformer query_tokens resampler
    semantic_tokenizer_encoder video_tower vision_embed_tokens vision_encoder vision_model vision_projection
    vision_projector vision_tokenizer vision_tower visual layerwise_projectors spatial_projectors
    visual_embeddings_table vqmodel
""".split()
"""Names of towers, and of the modules that lead from them to the language model."""

LEFT_OUT = (rf"(model\.)?({'|'.join(map(re.escape, TOWERS))})(\..*)?",)

_TOWER_KEYS = re.compile(
    "vision|visual|image|video|audio|speech|projector|patch|pixel|tile|multimodal|spatial|downsample|deepstack|"
    "connector|resampler|qformer|density_router|adapter_layer|^mm_|(?<!quantization)_config$"
)
"""In the names of keys that are of towers, as the config classes of transformers 5.24 call them."""

BESIDE = frozenset(
    """
    acoustic_tokenizer_chunk_size alignment_intermediate_size default_num_delay_tokens downsample_mode has_lora_adapter
    hidden_size ignore_index im_end_id im_newline_id im_start_id initializer_factor insert_layer_id label_smoothing
    latent_query_num merge_kernel_size merger_times newline_id num_channels num_query_tokens out_hidden_size
    position_id_per_seconds projection_dim projection_hidden_size projection_layer_norm_eps scale_factor
    seconds_per_chunk slice_end_id slice_start_id token_classification_bias use_thumbnail vocab_size window_size
    """.split()
)
"""Other keys beside the language model's config that those classes have, and do not read for text."""


def wrapper(
    model_type: str,
    name: str,
    models: Mapping[str, Architecture],
    default: str,
    *,
    tied: bool | None,
    flat: bool = False,
) -> Architecture:
    """The family of a model of class ``name`` around one of ``models``, which are language models by their model type.

    ``default``: the one whose type the file does not say. ``tied``: whether the class ties the head unless a file says
    it; None if the language model's config says that. ``flat``: old files have its keys beside the others.
    """
    return Architecture(
        model_types=(model_type,),
        classes=(name,),
        read=models[default].read,
        tensors={},
        inside=partial(_inside, models=models, default=default, tied=tied, flat=flat),
    )


def _inside(
    outer: Architecture,
    file: Mapping[str, Any],
    *,
    models: Mapping[str, Architecture],
    default: str,
    tied: bool | None,
    flat: bool,
) -> Architecture:
    """``outer`` with what the language model inside has."""
    key = next((key for key in INNER_KEYS if file.get(key) is not None), None)
    said = (
        cast("dict[str, object]", file[key]).get("model_type", default)
        if key and isinstance(file[key], dict)
        else default
    )
    if not isinstance(said, str) or said not in models:
        reason = REFUSED.get(str(said), "edgegen has no family for it")
        raise UnsupportedModelError(
            f"model_type {outer.model_types[0]!r} cannot be exported: its language model is of model_type {said!r}: "
            f"{reason}."
        )
    model = models[said]
    return replace(
        outer,
        read=partial(_read_flat, model=model)
        if flat and key is None
        else partial(_read_inner, model=model, model_type=said, key=key or INNER_KEYS[0], tied=tied),
        tensors=model.tensors,
        prefixes=tuple(dict.fromkeys(before + prefix for before in OUTER_PREFIXES for prefix in model.prefixes)),
        ignored=(*model.ignored, *LEFT_OUT),
        variant=model.variant,
        drafts=model.drafts,
        heads=model.heads,
        draft_head=model.draft_head,
        inside=None,
    )


def _read_inner(
    read: ConfigReader, *, model: Architecture, model_type: str, key: str, tied: bool | None
) -> DecoderConfig:
    """The config of ``model``, which is called ``model_type``, under ``key``."""
    inner = read.inner(key, {**model.defaults, "model_type": model_type})
    if inner is None:
        read.problem(f"{key}: missing, so the language model is unknown")
        inner = ConfigReader({}, model.defaults)
    config = model.read(inner.with_aliases(model.aliases))
    _ignore_towers(read)
    stated = read.optional("tie_word_embeddings", bool)
    if stated is None and "tie_word_embeddings" not in inner.names():
        stated = tied
    return config if stated is None else replace(config, tied_head=stated)


def _read_flat(read: ConfigReader, *, model: Architecture) -> DecoderConfig:
    """The config of ``model`` from among the keys of the towers."""
    config = model.read(read.with_defaults(model.defaults))
    _ignore_towers(read)
    return config


def _ignore_towers(read: ConfigReader) -> None:
    read.ignore(*(key for key in read.names() if key in BESIDE or _TOWER_KEYS.search(key)))


def towers(file: Mapping[str, Any]) -> str:
    """Name the towers of the model of ``file`` beside its language model; empty if there are none."""
    kinds = [kind for kind in ("vision", "audio") if file.get(f"{kind}_config")]
    return f"{' and '.join(kinds)} tower" if kinds else ""


def texts(families: Iterable[Architecture]) -> dict[str, Architecture]:
    """The language models that may be inside: ``families``, and those that are known inside others alone."""
    known = {name: family for family in (*families, qwen3_vl_moe.QWEN3_VL_MOE_TEXT) for name in family.model_types}
    return known | {
        name: replace(known[like], defaults={**known[like].defaults, **own}) for name, like, own in _INSIDE_ONLY
    }


_QWEN2_VL = {
    "vocab_size": 152064,
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "max_window_layers": 80,
}
_QWEN3_VL = {"max_position_embeddings": 128000, "rope_theta": 500000.0}
_GLM4V = {"max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "head_dim": None, "partial_rotary_factor": 1.0}
_GLM_OCR = {
    **_GLM4V,
    "vocab_size": 59392,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
_GRANITE_DOCLING = {
    "vocab_size": 133800,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "embedding_multiplier": 12.0,
    "logits_scaling": 4.0,
    "residual_multiplier": 0.263,
    "attention_multiplier": 0.015625,
}
_INSIDE_ONLY: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("qwen2_vl_text", "qwen2", _QWEN2_VL),
    ("qwen2_5_vl_text", "qwen2", _QWEN2_VL),
    ("qwen3_vl_text", "qwen3", _QWEN3_VL),
    ("exaone4_5_text", "exaone4", {}),
    ("glm4v_text", "glm4", _GLM4V),
    ("glm_ocr_text", "glm4", _GLM_OCR),
    ("granite4_vision_text", "granite", {}),
    ("granite_docling_text", "granite", _GRANITE_DOCLING),
    ("paddleocr_vl_text", "llama", ERNIE4_5.defaults),  # Ernie 4.5 on its own rotates adjacent pairs
)
"""Types that stand in no ``config.json`` of their own: the family whose mathematics they have, and other defaults."""

_WRAPPERS: tuple[tuple[str, str, str, bool | None], ...] = (
    ("apertus1p5", "Apertus1p5ForConditionalGeneration", "apertus1p5_text", False),
    ("aya_vision", "AyaVisionForConditionalGeneration", "cohere2", True),
    ("cohere2_vision", "Cohere2VisionForConditionalGeneration", "cohere2", True),
    ("deepseek_vl", "DeepseekVLForConditionalGeneration", "llama", True),
    ("deepseek_vl_hybrid", "DeepseekVLHybridForConditionalGeneration", "llama", True),
    ("exaone4_5", "Exaone4_5_ForConditionalGeneration", "exaone4", False),
    ("fun_asr_nano", "FunAsrNanoForConditionalGeneration", "qwen3", True),
    ("glm46v", "Glm46VForConditionalGeneration", "glm4v_text", False),
    ("glm4v", "Glm4vForConditionalGeneration", "glm4v_text", False),
    ("glm_ocr", "GlmOcrForConditionalGeneration", "glm_ocr_text", False),
    ("glmasr", "GlmAsrForConditionalGeneration", "llama", True),
    ("got_ocr2", "GotOcr2ForConditionalGeneration", "qwen2", True),
    ("granite4_vision", "Granite4VisionForConditionalGeneration", "granite4_vision_text", True),
    ("granite_docling", "GraniteDoclingForConditionalGeneration", "granite_docling_text", True),
    ("granite_speech", "GraniteSpeechForConditionalGeneration", "granite", True),
    ("hyperclovax_vision_v2", "HyperCLOVAXVisionV2ForConditionalGeneration", "hyperclovax", True),
    ("idefics2", "Idefics2ForConditionalGeneration", "mistral", False),
    ("idefics3", "Idefics3ForConditionalGeneration", "llama", False),
    ("inkling2", "Inkling2ForConditionalGeneration", "inkling2_text", False),
    ("inkling2_loop", "Inkling2LoopForConditionalGeneration", "inkling2_loop_text", False),
    ("inkling_mm_model", "InklingForConditionalGeneration", "inkling_text", False),
    ("internvl", "InternVLForConditionalGeneration", "qwen2", True),
    ("janus", "JanusForConditionalGeneration", "llama", True),
    ("lfm2_vl", "Lfm2VlForConditionalGeneration", "lfm2", True),
    ("lighton_ocr", "LightOnOcrForConditionalGeneration", "qwen3", True),
    ("llava", "LlavaForConditionalGeneration", "llama", False),
    ("llava_next", "LlavaNextForConditionalGeneration", "llama", False),
    ("llava_next_video", "LlavaNextVideoForConditionalGeneration", "llama", False),
    ("llava_onevision", "LlavaOnevisionForConditionalGeneration", "qwen2", False),
    ("minicpm_ocr", "MiniCPMOcrForConditionalGeneration", "qwen3_5_text", True),
    ("minicpmv4_6", "MiniCPMV4_6ForConditionalGeneration", "qwen3_5_text", False),
    ("minicpmv4_7", "MiniCPMV4_7ForConditionalGeneration", "qwen3_5_text", False),
    ("moss_transcribe_diarize", "MossTranscribeDiarizeForConditionalGeneration", "qwen3", True),
    ("ovis2", "Ovis2ForConditionalGeneration", "qwen2", True),
    ("paddleocr_vl", "PaddleOCRVLForConditionalGeneration", "paddleocr_vl_text", True),
    ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", False),
    ("qwen2_audio", "Qwen2AudioForConditionalGeneration", "qwen2", None),
    ("qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_vl_text", False),
    ("qwen3_asr", "Qwen3ASRForConditionalGeneration", "qwen3", True),
    ("qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text", False),
    ("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe_text", False),
    ("smolvlm", "SmolVLMForConditionalGeneration", "llama", False),
    ("vibevoice_asr", "VibeVoiceAsrForConditionalGeneration", "qwen2", True),
    ("video_llama_3", "VideoLlama3ForConditionalGeneration", "qwen2", False),
    ("video_llava", "VideoLlavaForConditionalGeneration", "llama", False),
    ("vipllava", "VipLlavaForConditionalGeneration", "llama", False),
    ("voxtral", "VoxtralForConditionalGeneration", "llama", None),
)
"""Model type, class, the language model's type unless a file says it, and whether the head is tied unless it does."""

LANGUAGE_MODELS: Mapping[str, str] = {model_type: default for model_type, _, default, _ in _WRAPPERS}
"""The model type of the language model inside each, unless a file says it."""

_FLAT = frozenset({"qwen2_vl", "qwen2_5_vl"})
"""Model types whose first files have no config of the language model inside."""


def wrappers(families: Iterable[Architecture]) -> tuple[Architecture, ...]:
    """The models around one of ``families``."""
    models = texts(families)
    return tuple(
        wrapper(model_type, name, models, default, tied=tied, flat=model_type in _FLAT)
        for model_type, name, default, tied in _WRAPPERS
    )
