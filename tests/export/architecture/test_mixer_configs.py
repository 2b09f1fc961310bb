"""Configs of families with Mamba-2 mixers: which layers have one, and what is refused."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.families import FAMILIES
from edgegen_export.graph.decoder import kv_spec
from tests.export.architecture.test_families_defaults import ODD_VALUES

CONFIGS: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {
        "num_hidden_layers": 3,
        "layer_types": ["mamba", "attention", "mamba"],
        "num_local_experts": 4,
        "mamba_d_head": 64,
        "time_step_limit": [0.0, float("inf")],
    },
    "falcon_h1": {"mamba_rms_norm": True, "mamba_n_groups": 2, "ssm_multipliers": [1.0, 0.5, 0.5, 0.25, 2.0]},
    "nemotron_h": {"layers_block_type": ["mamba", "mlp", "attention"]},
    "bamba": {"num_hidden_layers": 3, "attn_layer_indices": [1]},
}


def read(model_type: str, **changes: Any) -> DecoderConfig:
    config = {"model_type": model_type, **CONFIGS[model_type], **changes}
    return find_architecture(config, FAMILIES).read_config(config)


def kinds(config: DecoderConfig) -> str:
    """A letter per layer: of a mixer, of attention, of both, of an MLP alone."""
    letters = {(True, False): "M", (False, True): "*", (True, True): "B", (False, False): "-"}
    return "".join(letters[layer.mixer is not None, layer.attention is not None] for layer in config.layers)


SPARSE = {"layers_block_type": ["mamba", "moe", "attention"]}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, "M-*"),
        ({"layers_block_type": ["linear_attention", "linear_attention", "full_attention"]}, "MM*"),
        ({"layers_block_type": None, "layer_types": ["attention", "mlp"]}, "*-"),
        ({"layers_block_type": None, "hybrid_override_pattern": "M-M*-"}, "M-M*-"),
        ({"layers_block_type": None, "hybrid_override_pattern": "M*", "num_hidden_layers": 2}, "M*"),
    ],
    ids=str,
)
def test_the_layers_of_a_nemotron_are_listed_or_spelt(changes: dict[str, Any], found: str) -> None:
    assert kinds(read("nemotron_h", **changes)) == found


def test_nemotron_3_nano_has_the_published_numbers_of_parameters_and_active_ones() -> None:
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    config = read(
        "nemotron_h",
        layers_block_type=None,
        hybrid_override_pattern=pattern,
        num_hidden_layers=52,
        hidden_size=2688,
        num_key_value_heads=2,
        mamba_num_heads=64,
        n_routed_experts=128,
        num_experts_per_tok=6,
        moe_intermediate_size=1856,
        moe_shared_expert_intermediate_size=3712,
        routed_scaling_factor=2.5,
    )
    total = sum(map(math.prod, decoder_tensors(config)[0].values()))
    assert round(total / 1e9, 1) == 31.6
    assert round((total - pattern.count("E") * (128 - 6) * 2 * 2688 * 1856) / 1e9, 1) == 3.6


def test_a_falcon_has_both_in_every_layer() -> None:
    assert kinds(read("falcon_h1", num_hidden_layers=3)) == "BBB"


def test_a_granite_has_one_or_the_other() -> None:
    assert kinds(read("granitemoehybrid")) == "M*M"


@pytest.mark.parametrize(
    ("model_type", "changes", "problem"),
    [
        ("granitemoehybrid", {"layer_types": None}, "layer_types: at least one layer must have attention"),
        ("granitemoehybrid", {"mamba_n_groups": 3}, "mamba_n_groups = 3: must divide mamba_n_heads = 128"),
        ("granitemoehybrid", {"mamba_n_heads": 96}, "mamba_n_heads = 96: must divide the 8192 channels of a mixer"),
        ("granitemoehybrid", {"mamba_d_head": 32}, "mamba_d_head = 32: mamba_n_heads share 8192 channels, 64 each"),
        ("granitemoehybrid", {"time_step_limit": [0.1, 1.0]}, "limits of time steps are not supported"),
        ("falcon_h1", {"mamba_d_ssm": 1000}, "mamba_n_heads = 128: must divide the 1000 channels of a mixer"),
        ("falcon_h1", {"ssm_multipliers": [1.0]}, "ssm_multipliers: a list of 5 positive numbers expected"),
        ("falcon_h1", {"embedding_multiplier": 0.0}, "embedding_multiplier: must not be zero"),
        ("falcon_h1", {"attn_layer_indices": [1]}, "layers without attention are not supported"),
        ("falcon_h1", {"mamba_use_mlp": False}, "layers without an MLP are not supported"),
        ("nemotron_h", {**SPARSE, "n_group": 8}, "n_group = 8: groups of n_routed_experts = 8 must"),
        ("nemotron_h", {**SPARSE, "n_group": 2, "topk_group": 3}, "topk_group = 3 is more than n_group = 2"),
        ("nemotron_h", {**SPARSE, "num_experts_per_tok": 9}, "num_experts_per_tok = 9 is more than n_routed_experts"),
        ("nemotron_h", {"layers_block_type": ["moe"] * 17 + ["attention"], "n_routed_experts": 512}, "8704 experts in"),
        ("nemotron_h", {"layers_block_type": ["mamba"]}, "layers_block_type: at least one layer must have attention"),
        ("nemotron_h", {"layers_block_type": ["mumba", "attention"]}, "layers_block_type: 2 entries out of"),
        ("bamba", {"attn_layer_indices": None}, "attn_layer_indices: at least one layer must have attention"),
        (
            "bamba",
            {"attn_layer_indices": [1, 3]},
            "attn_layer_indices: numbers of the 3 layers expected, found \\[3\\]",
        ),
        ("nemotron_h", {"n_groups": 3}, "n_groups = 3: must divide mamba_num_heads = 128"),
        (
            "nemotron_h",
            {"layers_block_type": None, "hybrid_override_pattern": "M*X"},
            "hybrid_override_pattern: a letter of 'M', '\\*', '-', 'E' per layer expected, found 'M\\*X'",
        ),
        (
            "nemotron_h",
            {"layers_block_type": None, "hybrid_override_pattern": "M*", "num_hidden_layers": 3},
            "hybrid_override_pattern: 3 letters expected, found 2",
        ),
    ],
)
def test_what_a_mixer_cannot_be_is_refused(model_type: str, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnsupportedModelError, match=problem):
        read(model_type, **changes)


KEYS = [
    *("hidden_size", "num_attention_heads", "head_dim", "layer_types", "layers_block_type", "hybrid_override_pattern"),
    *(f"mamba_{key}" for key in ("n_heads", "n_groups", "d_head", "d_state", "d_conv", "d_ssm", "expand", "rms_norm")),
    *(
        "num_local_experts",
        "time_step_limit",
        "ssm_multipliers",
        "mlp_multipliers",
        "attn_layer_indices",
        "ssm_in_multiplier",
    ),
    *("mamba_num_heads", "mamba_head_dim", "n_groups", "conv_kernel", "ssm_state_size", "mlp_hidden_act"),
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
