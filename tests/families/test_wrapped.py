"""Models with towers around a language model: text is continued as by the whole model of transformers 5.

EDGEGEN_EVERY_CASE=1 compares all of them, and the tests otherwise a sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen_export.families.wrapped import LANGUAGE_MODELS
from tests.every_case import EVERY
from tests.export.bundles import decoded, export_to, prefilled, runner_of
from tests.second_oracle import SECOND, open_oracle, second_oracle

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 96,
    "max_position_embeddings": 96,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 1,
}
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [2, 3, 3]}}
GLM4V = {
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 100.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 2],
    }
}
UNSCALED = {"logit_scale": 1.0}
"""The class around a Cohere does not scale logits, which the language model on its own does."""

QWEN3_5 = {
    "num_hidden_layers": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}

INKLING: dict[str, Any] = {
    "layer_types": ["hybrid_sliding", "hybrid"],
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 1,
    "swa_head_dim": 16,
    "sliding_window_size": 12,
    "d_rel": 4,
    "rel_extent": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "unpadded_vocab_size": 96,
}
INKLING_TOWERS = {"vision_config": {"text_hidden_size": 64}}

EXPERTS = {
    **MROPE,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}


@dataclass(frozen=True, slots=True)
class Wrapped:
    """``text``: what its language model's config has beside or instead of :data:`TEXT`; ``towers``: of the others';
    ``own``: of the model's itself. ``left``: why only its language model is compared."""

    model_type: str
    text: Mapping[str, Any] = field(default_factory=dict[str, Any])
    towers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sample: bool = False
    left: str = ""

    def __str__(self) -> str:
        inner = self.text.get("model_type")
        return f"{self.model_type} around {inner}" if inner else self.model_type

    def write(self, folder: Path) -> Path:
        text = {"model_type": LANGUAGE_MODELS.get(self.model_type), **TEXT, **self.text}
        second_oracle().ask(
            "write wrapped",
            folder=str(folder),
            model_type=self.model_type,
            text=text,
            towers=dict(self.towers),
            own=dict(self.own),
        )
        return folder


WRAPPED = [
    Wrapped(
        "apertus1p5",
        towers={"vision_config": {"codebook_size": 16}, "audio_config": {"codebook_dim": 32, "codebook_size": 32}},
        own={"image_token_offset": 40, "audio_token_offset": 56, "image_token_id": 3, "audio_token_id": 4},
    ),
    Wrapped(
        "granite4_vision",
        towers={"vision_config": {"hidden_size": 64, "num_attention_heads": 4}},
        own={"deepstack_layer_map": [[0, 0]], "downsample_rate": "1/2", "image_token_index": 3},
    ),
    Wrapped("vibevoice_asr"),
    Wrapped("aya_vision", UNSCALED),
    Wrapped("cohere2_vision", UNSCALED),
    Wrapped("deepseek_vl"),
    Wrapped("deepseek_vl_hybrid"),
    Wrapped("exaone4_5"),
    Wrapped("fun_asr_nano", towers={"adaptor_config": {"hidden_size": 64, "intermediate_size": 16}}),
    Wrapped("gemma4_unified", {"model_type": "gemma4_unified_text", "global_head_dim": 32}),
    Wrapped("glm46v", GLM4V),
    Wrapped("glm4v", GLM4V, sample=True),
    Wrapped("glm_ocr", GLM4V),
    Wrapped("glmasr"),
    Wrapped("got_ocr2"),
    Wrapped("granite_docling"),
    Wrapped("granite_speech"),
    Wrapped("hyperclovax_vision_v2"),
    Wrapped("idefics2"),
    Wrapped("idefics3"),
    Wrapped("inkling2", {**INKLING, "n_layers_per_attn_res_block": 1}, INKLING_TOWERS),
    Wrapped(
        "inkling2_loop",
        {
            **INKLING,
            "n_layers_per_attn_res_block": 1,
            "loop_layer_index_start": 1,
            "loop_layer_index_end": 2,
            "loop_num_passes": 2,
            "loop_gate_rank": 8,
        },
        INKLING_TOWERS,
        sample=True,
    ),
    Wrapped("internvl", sample=True),
    Wrapped("internvl", {"model_type": "qwen3"}),
    Wrapped("internvl", {"model_type": "llama", "tie_word_embeddings": False}),
    Wrapped("janus"),
    Wrapped("lfm2_vl", {"layer_types": ["conv", "full_attention"]}, sample=True),
    Wrapped("lighton_ocr"),
    Wrapped("llava", sample=True),
    Wrapped("llava", {"model_type": "mistral"}),
    Wrapped("llava_next"),
    Wrapped("llava_next_video"),
    Wrapped("llava_onevision"),
    Wrapped("minicpm_ocr", QWEN3_5),
    Wrapped("minicpmv4_6", QWEN3_5, sample=True),
    Wrapped("minicpmv4_7", QWEN3_5),
    Wrapped("moss_transcribe_diarize"),
    Wrapped("ovis2"),
    Wrapped("paddleocr_vl", MROPE, sample=True),
    Wrapped("qwen2_5_vl", MROPE, sample=True),
    Wrapped("qwen2_audio"),
    Wrapped("qwen2_vl", MROPE, sample=True),
    Wrapped("qwen3_asr"),
    Wrapped("qwen3_vl", MROPE, sample=True),
    Wrapped("qwen3_vl_moe", EXPERTS, sample=True),
    Wrapped("smolvlm", sample=True),
    Wrapped("video_llama_3"),
    Wrapped("video_llava"),
    Wrapped("vipllava"),
    Wrapped("voxtral"),
    Wrapped(
        "inkling_mm_model", left="its towers need a package that the oracle's environment has not: test_inkling.py"
    ),
]


def test_every_wrapper_is_compared() -> None:
    assert {wrapped.model_type for wrapped in WRAPPED} >= LANGUAGE_MODELS.keys()


@pytest.mark.parametrize("wrapped", [each for each in WRAPPED if (EVERY or each.sample) and not each.left], ids=str)
def test_text_is_continued_as_by_the_whole_model(wrapped: Wrapped, tmp_path: Path) -> None:
    checkpoint = wrapped.write(tmp_path / "checkpoint")
    ids = np.random.default_rng(0).integers(2, TEXT["vocab_size"], (1, 40))
    expected = open_oracle(checkpoint, SECOND).logits(ids)[0]
    bundle = export_to(checkpoint, tmp_path / "bundle")
    runner, tokens = runner_of(bundle), ids[0].tolist()
    found = decoded(runner, runner.new_cache(), tokens)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)
    np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))
    assert np.abs(prefilled(runner, runner.new_cache(), tokens, 7)[-1] - expected[-1]).max() < 1e-3
    assert bundle.manifest.model.family == wrapped.model_type
