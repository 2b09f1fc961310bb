"""Keys that are of the training alone change nothing, under any name; at values of another kind they are errors."""

from typing import Any

import pytest

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.training_keys import judge_training_key
from edgegen_export.families import FAMILIES

EXAONE_3_5: dict[str, Any] = {
    "activation_function": "silu",
    "architectures": ["ExaoneForCausalLM"],
    "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_exaone.ExaoneConfig"},
    "bos_token_id": 1,
    "embed_dropout": 0.0,
    "eos_token_id": 361,
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 4096,
    "model_type": "exaone",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_layers": 32,
    "pad_token_id": 0,
    "rope_scaling": None,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.2",
    "use_cache": True,
    "vocab_size": 102400,
}
"""As published."""


def read(**more: Any) -> DecoderConfig:
    config = EXAONE_3_5 | more
    return find_architecture(config, FAMILIES).read_config(config)


def test_a_published_config_is_read_as_it_is() -> None:
    plain = read()
    assert (plain.num_layers, plain.hidden_size, plain.attention.kv_heads) == (32, 4096, 8)
    assert read(embed_dropout=None) == plain


INERT: dict[str, tuple[Any, ...]] = {
    "dropout": (0, 0.1, 1.0, False),
    "embed_dropout": (0.0, 0.5),
    "attn_pdrop": (0.1,),
    "ffn_dropout_prob": (0.1,),
    "emb_dropout_rate": (0.1,),
    "decoder_layerdrop": (0.1,),
    "drop_path_rate": (0.1,),
    "router_aux_loss_coef": (0.001,),
    "moe_z_loss_coeff": (0.001,),
    "aux_loss_alpha": (0.001,),
    "loss_type": ("ForCausalLM",),
    "aux_loss_types": (["expert", "device"],),
    "label_smoothing": (0.1,),
    "embed_init_std": (0.02,),
    "initializer_cutoff_factor": (2.0,),
    "init_method": ("normal",),
    "output_router_logits": (True, False),
    "use_gradient_checkpointing": (True,),
    "use_flash_attn": (True, False),
    "use_flash_attention_2": (True,),
    "bf16": (True,),
    "ep_size": (1, 8),
    "tensor_parallel_degree": (2,),
    "num_logits_to_keep": (1,),
    "axolotl_version": ("0.9",),
    "keys_to_ignore_at_inference": (["past_key_values"],),
}


@pytest.mark.parametrize("key", INERT)
def test_what_is_of_the_training_changes_nothing(key: str) -> None:
    assert all(read(**{key: value}) == read() for value in INERT[key])


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("embed_dropout", 1.5, "it changes nothing only where it is a dropout, from 0 to 1"),
        ("embed_dropout", "0.1", "it is a dropout, from 0 to 1"),
        ("dropout", True, "it is a dropout, from 0 to 1"),
        ("output_router_logits", 2, "it is true or false"),
        ("aux_loss_alpha", {"a": 1}, "it is of a loss of the training"),
        ("ep_size", "many", "it is a number"),
        ("token_dropout", 0.1, "not understood, and it may change the result"),
        ("logit_scale", 2.0, "not understood, and it may change the result"),
        ("dropout_keys", 0.1, "not understood, and it may change the result"),
        ("router_jitter_noise", 0.1, "not understood, and it may change the result"),  # Phi-MoE routes by it
        ("alpha_init_scaling", 0.1, "not understood, and it may change the result"),  # nGPT divides by it
    ],
)
def test_other_keys_and_values_are_errors(key: str, value: Any, fault: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"{key} = .*{fault}"):
        read(**{key: value})


@pytest.mark.parametrize(
    "key", ["hidden_size", "rope_theta", "rms_norm_eps", "num_experts", "sliding_window", "qk_norm"]
)
def test_no_key_that_means_something_is_of_such_a_kind(key: str) -> None:
    assert judge_training_key(key, 1) == ""
