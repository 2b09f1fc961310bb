"""LFM3's language model in a checkpoint that sees, and the configs of LFM2 MoE and LFM3 that are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import TensorError, UnsupportedModelError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.families import FAMILIES
from edgegen_export.families.lfm3 import LFM3, LFM3_WITH_VISION
from edgegen_export.graph.decoder import kv_spec
from tests.export.architecture.test_families_defaults import ODD_VALUES
from tests.export.bundles import decoded, export_to, runner_of
from tests.export.checkpoint.layouts import write_safetensors
from tests.families.cases import CASES
from tests.families.harness import TOLERANCE, checkpoint_of, oracle_of, tokens
from tests.second_oracle import SECOND, config_json

CONFIGS: dict[str, dict[str, Any]] = {
    "lfm2_moe": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2},
    "lfm3": {},
}


def read(model_type: str, **changes: Any) -> DecoderConfig:
    config = {"model_type": model_type, **CONFIGS[model_type], **changes}
    return find_architecture(config, FAMILIES).read_config(config)


@pytest.mark.parametrize("variant", ["base", "untied", "plain"])
def test_the_language_model_inside_is_exported(variant: str, tmp_path: Path) -> None:
    """Under the names that transformers gives its tensors there, beside those of pictures."""
    case = next(case for case in CASES if str(case) == f"lfm3: {variant}")
    alone, whole = checkpoint_of(case, tmp_path / "alone"), tmp_path / "whole"
    whole.mkdir()
    stored = open_safetensors(alone / "model.safetensors")
    arrays = {name.replace("model.", "model.language_model.", 1): each.read() for name, each in stored.items()}
    for module in ("vision_tower.patchifier", "vision_tower.embedding_norm", "multi_modal_projector.linear_1"):
        arrays[f"model.{module}.weight"] = np.ones(8, np.float32)
    write_safetensors(whole / "model.safetensors", arrays)
    text = json.loads((alone / "config.json").read_text("utf-8"))
    config = {
        "model_type": "lfm3_vl",
        "architectures": ["Lfm3VlForConditionalGeneration"],
        "image_token_id": 90,
        "projector_hidden_size": 64,
        "text_config": text,
        "tie_word_embeddings": text["tie_word_embeddings"],
        "vision_config": {"model_type": "lfm3_vl_vision", "num_hidden_layers": 1},
    }
    (whole / "config.json").write_text(json.dumps(config), "utf-8")
    ids = tokens(case, 60, seed=1)
    expected = oracle_of(case, alone).logits(np.array([ids]))[0]
    bundle = export_to(whole, tmp_path / "bundle")
    runner = runner_of(bundle)
    np.testing.assert_allclose(decoded(runner, runner.new_cache(), ids), expected, rtol=0, atol=TOLERANCE)
    assert bundle.manifest.model.family == "lfm3_vl"


def test_what_transformers_writes_of_a_model_that_sees_is_understood() -> None:
    for only_differences in (True, False):
        written = config_json("lfm3_vl", {}, use_diff=only_differences, version=SECOND)
        assert LFM3_WITH_VISION.read_config(written) == LFM3.read_config({})


def test_another_language_model_inside_is_refused() -> None:
    config = {"model_type": "lfm3_vl", "text_config": {"model_type": "lfm2"}}
    with pytest.raises(UnsupportedModelError, match=r"text_config\.model_type: 'lfm2' is not supported"):
        LFM3_WITH_VISION.read_config(config)


def test_class_defaults_of_experts_are_filled_in() -> None:
    read_default = read("lfm2_moe")
    for only_differences in (True, False):
        written = config_json("lfm2_moe", CONFIGS["lfm2_moe"], use_diff=only_differences, version=SECOND)
        assert find_architecture(written, FAMILIES).read_config(written) == read_default


def test_experts_without_the_numbers_of_their_choice_are_refused_by_name(tmp_path: Path) -> None:
    case = next(case for case in CASES if str(case) == "lfm2_moe: base")
    folder = checkpoint_of(case, tmp_path / "checkpoint")
    stored = open_safetensors(folder / "model.safetensors")
    kept = {name: each.read().copy() for name, each in stored.items() if "layers.2.feed_forward.expert_b" not in name}
    write_safetensors(folder / "model.safetensors", kept)
    with pytest.raises(TensorError, match=r"layers\.2\.feed_forward\.expert_bias: missing, shape \[8\] expected"):
        export_to(folder, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("model_type", "changes", "problem"),
    [
        ("lfm2_moe", {"layer_types": None}, "layer_types: missing, so it is unknown which layers have convolutions"),
        ("lfm2_moe", {"layer_types": ["conv"] * 4}, "layer_types: at least one layer must have attention"),
        ("lfm2_moe", {"layer_types": ["sliding_attention"] * 4}, "layer_types: 4 entries out of 'conv', 'full_att"),
        ("lfm2_moe", {"num_dense_layers": -1}, "num_dense_layers: must be at least 0, found -1"),
        ("lfm2_moe", {"num_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok = 5 is more than num_experts"),
        ("lfm2_moe", {"routed_scaling_factor": 0.0}, "routed_scaling_factor: must be positive, found 0.0"),
        ("lfm2_moe", {"moe_intermediate_size": 40}, "the width of an expert = 40: experts of this size are not"),
        ("lfm2_moe", {"use_pos_enc": False}, "attention without rotary positions is not supported"),
        ("lfm2_moe", {"n_group": 2}, "n_group = 2: not understood"),
        ("lfm2_moe", {"tie_embedding": False, "tie_word_embeddings": True}, "tie_embedding = False: contradicts"),
        ("lfm3", {"layer_types": ["conv"] * 24}, "layer_types: at least one layer must have attention"),
        ("lfm3", {"layer_types": ["mamba"] * 24}, "layer_types: 24 entries out of 'conv', 'full_attention', 'sliding_"),
        ("lfm3", {"num_hidden_layers": 2}, "layer_types: at least one layer must have attention"),
        ("lfm3", {"conv_L_cache": 1}, "conv_L_cache = 1: a convolution over a single token keeps no state"),
        ("lfm3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "rope_theta: missing"),
        ("lfm3", {"rms_norm_eps": 1e-5, "norm_eps": 1e-6}, "rms_norm_eps = 1e-05: contradicts the value 1e-06"),
        ("lfm3", {"num_experts": 8}, "num_experts = 8: not understood"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused(model_type: str, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        read(model_type, **changes)
    assert problem in str(caught.value)


KEYS = [
    *("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "layer_types", "conv_L_cache"),
    *("num_dense_layers", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "routed_scaling_factor"),
    *("use_expert_bias", "norm_topk_prob", "use_attention_gate", "use_sandwich_norm", "sliding_window"),
    *("rope_parameters", "rope_theta", "norm_eps", "num_hidden_layers", "tie_word_embeddings"),
]


@pytest.mark.parametrize("model_type", CONFIGS)
@given(changes=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(ODD_VALUES), min_size=1, max_size=3))
@settings(deadline=None, max_examples=200)
def test_no_config_breaks_a_family(model_type: str, changes: dict[str, Any]) -> None:
    try:
        config = read(model_type, **changes)
    except UnsupportedModelError:
        return
    assert len(kv_spec(config).layers) == len(config.attentions)
    assert decoder_tensors(config)[0]
