"""Keys that change nothing at a value: accepted there, in every family, and refused by name at any other."""

from typing import Any

import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.inert_keys import INERT
from edgegen_export.families import FAMILIES

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "vocab_size": 96,
}
MIXERS = {"mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 16, "head_dim": 16}
NEMOTRON_H: dict[str, Any] = {"hybrid_override_pattern": "M*-M", "num_key_value_heads": 2, **MIXERS}
COHERE2: dict[str, Any] = {"head_dim": 16, "num_key_value_heads": 2}
QWEN3_NEXT: dict[str, Any] = {"num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2}
SPARSE = {"kernel_size": 32, "kernel_stride": 16, "init_blocks": 1, "block_size": 64, "window_size": 2048, "topk": 64}

KEYS: list[tuple[str, dict[str, Any], str, Any, Any]] = [
    ("hunyuan_v1_dense", {}, "dense_list", [64, 0], [64, 2]),
    ("nemotron_h", NEMOTRON_H, "rope_theta", 10000, "10000"),
    ("nemotron_h", NEMOTRON_H, "partial_rotary_factor", 1.0, "all"),
    ("nemotron_h", NEMOTRON_H, "hidden_act", "relu2", "silu"),
    ("cohere2", COHERE2, "layer_switch", 4, 2),
    ("cohere2", COHERE2, "order_of_interleaved_layers", "local_attn_first", "global_attn_first"),
    ("cohere2", COHERE2, "position_embedding_type", "rope_gptj", "alibi"),
    ("cohere2", COHERE2, "rotary_pct", 1.0, 0.5),
    ("cohere2", COHERE2, "use_embedding_sharing", True, False),
    ("cohere2", COHERE2, "use_gated_activation", True, False),
    ("cohere2", COHERE2, "use_parallel_block", True, False),
    ("cohere2", COHERE2, "use_parallel_embedding", True, "vocabulary"),
    ("cohere2", COHERE2, "model_max_length", 8192, "long"),
    ("minicpm", {}, "mup_denominator", 32, None),
    ("llama", {}, "activation", "swiglu", "gelu"),
    ("llama", {}, "partial_rotary_factor", 1.0, 0.5),
    ("llama", {}, "max_sequence_length", 2048, 4096),
    ("llama", {}, "internal_version", "7b-alpha", 7),
    ("llama", {}, "transformers.js_config", {"dtype": "q4"}, None),
    ("llama", {}, "unk_token_id", 0, "<unk>"),
    ("llama", {}, "norm_type", "rmsnorm", "layernorm"),
    ("llama", {}, "num_kv_heads", 4, 2),
    ("llama", {}, "num_layers", 4, 5),
    ("mistral", {"num_key_value_heads": 2}, "partial_rotary_factor", 1.0, 0.5),
    ("qwen2", {"num_key_value_heads": 2}, "partial_rotary_factor", 1.0, 0.5),
    ("qwen3", {"num_key_value_heads": 2, "head_dim": 16}, "partial_rotary_factor", 1.0, 0.5),
    ("olmo", {}, "partial_rotary_factor", 1.0, 0.5),
    ("nemotron", {}, "kv_channels", 16, 32),
    ("qwen3_next", QWEN3_NEXT, "use_sliding_window", False, True),
    ("qwen3_next", {**QWEN3_NEXT, "use_sliding_window": False}, "sliding_window", 4096, "4096"),
    ("qwen3_next", {**QWEN3_NEXT, "use_sliding_window": False}, "max_window_layers", 28, "28"),
    ("qwen3_moe", {**QWEN3_NEXT, "moe_intermediate_size": 32}, "shared_expert_intermediate_size", 0, 32),
    ("qwen3_moe", {**QWEN3_NEXT, "moe_intermediate_size": 32}, "use_qk_norm", True, False),
    ("qwen3_moe", {**QWEN3_NEXT, "moe_intermediate_size": 32}, "qkv_bias", False, "no"),
    ("qwen3_moe", {**QWEN3_NEXT, "moe_intermediate_size": 32}, "qk_norm", True, False),
    ("hyperclovax", {}, "end_token_id", 3, "</s>"),
    ("hyperclovax", {}, "summary_first_dropout", 0.1, None),
    ("phi", {}, "rotary_dim", 8, 16),
    ("gemma2", {"head_dim": 16, "num_key_value_heads": 2}, "sliding_window_size", 4096, 512),
    ("falcon", {}, "n_head", 4, 8),
    ("falcon", {}, "n_layer", 4, 8),
    ("starcoder2", {"num_key_value_heads": 2}, "activation_function", "gelu", None),
    ("qwen3_5", {}, "language_model_only", False, True),
    ("qwen3", {"num_key_value_heads": 2, "head_dim": 16}, "num_nextn_predict_layers", 1, None),
    ("gemma4_text", {"head_dim": 16, "num_key_value_heads": 2}, "rope_local_base_freq", 10000.0, 5.0),
    ("gemma4_text", {"head_dim": 16, "num_key_value_heads": 2}, "hidden_activation", "gelu_pytorch_tanh", "gelu_2"),
]


def read(model_type: str, **keys: Any) -> DecoderConfig:
    config = {"model_type": model_type, **SIZES, **keys}
    if model_type == "falcon":
        del config["intermediate_size"]
    if model_type == "qwen3_5":
        config = {"model_type": model_type, "text_config": SIZES, **keys}
    return find_architecture(config, FAMILIES).read_config(config)


@pytest.mark.parametrize(("model_type", "beside", "key", "harmless", "other"), KEYS)
def test_a_key_is_inert_at_its_value_alone(
    model_type: str, beside: dict[str, Any], key: str, harmless: Any, other: Any
) -> None:
    assert read(model_type, **beside, **{key: harmless}) == read(model_type, **beside)
    if other is not None:
        with pytest.raises(UnsupportedModelError, match=key.replace(".", r"\.")):
            read(model_type, **beside, **{key: other})


def test_the_error_says_where_a_key_would_change_nothing() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        read("nemotron", kv_channels=32)
    assert "kv_channels = 32: not understood, and it may change the result; it changes nothing only where it is" in str(
        caught.value
    )
    with pytest.raises(UnsupportedModelError, match=r"partial_rotary_factor = 0\.5: this family rotates whole heads"):
        read("llama", rope_parameters={"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5})


def test_a_key_of_one_type_is_not_inert_in_others() -> None:
    with pytest.raises(UnsupportedModelError, match="dense_list"):
        read("llama", dense_list=[64, 0])
    with pytest.raises(UnsupportedModelError, match="mup_denominator"):
        read("llama", mup_denominator=32)


@pytest.mark.parametrize("kind", ["default", "mrope"])
def test_positions_in_several_dimensions_are_one_without_pictures(kind: str) -> None:
    scaling = {"type": kind, "mrope_section": [2, 3, 3]}
    assert read("qwen2", num_key_value_heads=2, rope_scaling=scaling) == read("qwen2", num_key_value_heads=2)


def test_a_scaling_called_mrope_without_sections_is_not_one() -> None:
    with pytest.raises(UnsupportedModelError, match="rope_type = 'mrope': this scaling is not supported"):
        read("llama", rope_scaling={"type": "mrope"})


def test_sparse_attention_is_exported_as_far_as_it_sees_all_keys() -> None:
    """MiniCPM 4's attention leaves blocks out from ``dense_len`` keys on."""
    dense = read("minicpm", max_position_embeddings=32768)
    config = read("minicpm", max_position_embeddings=32768, sparse_config={**SPARSE, "dense_len": 8192})
    assert (config.max_positions, config.longest_context) == (8191, 8191)
    assert config.layers == dense.layers
    with pytest.raises(UnsupportedModelError, match="its attention always leaves blocks out"):
        read("minicpm", sparse_config={**SPARSE, "dense_len": -1})
    with pytest.raises(UnsupportedModelError, match=r"sparse_config\.pooling = 3: not understood"):
        read("minicpm", sparse_config={**SPARSE, "pooling": 3})


def test_every_inert_key_says_where_and_who_writes_it() -> None:
    for key, rule in INERT.items():
        assert rule.where, key
        assert rule.source, key
