"""Granite 4 without recurrent layers: Granite whose MLP is called the shared one of experts, with or without RoPE."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.families.granite import GRANITE, read_granite
from edgegen_export.families.llama import LLAMA_PREFIXES, LLAMA_TENSORS
from edgegen_export.families.shared import rotating

RECURRENT = {"attention": False, "full_attention": False, "mamba": True, "linear_attention": True}
"""Whether layers of a type are recurrent."""


def read_granite4(read: ConfigReader) -> DecoderConfig:
    """``GraniteMoeHybridConfig`` whose layers all have attention."""
    config = read_granite(read, inner_key="shared_intermediate_size")
    recurrent = read.per_layer("layer_types", RECURRENT, config.num_layers)
    if (recurrent is None and not read.has("layer_types")) or any(recurrent or ()):
        count = f"{sum(recurrent)} of {len(recurrent)} layers are" if recurrent else "without it every layer is"
        read.problem(f"layer_types: {count} recurrent, and their state is not a KV cache")
    read.refuse("num_local_experts", (0,), "experts beside a shared MLP are not supported")
    read.refuse("normalization_function", ("rmsnorm",), "only RMSNorm is known")
    read.ignore("num_experts_per_tok", "output_router_logits", "router_aux_loss_coef", "init_method")
    read.ignore("intermediate_size")  # of the experts
    read.ignore(*(f"mamba_{key}" for key in MAMBA), "time_step_limit", "time_step_min", "time_step_max")
    rotates = read.choice("position_embedding_type", {"rope": True, "nope": False}, "nope")
    return config if rotates else rotating(config, None, [True] * config.num_layers)


MAMBA = "chunk_size conv_bias d_conv d_head d_state expand n_groups n_heads proj_bias".split()

GRANITE4 = Architecture(
    model_types=("granitemoehybrid",),
    classes=("GraniteMoeHybridForCausalLM",),
    read=read_granite4,
    tensors={
        **{ours: theirs for ours, theirs in LLAMA_TENSORS.items() if ".mlp." not in ours},
        ("layers.{i}.mlp.gate.weight", "layers.{i}.mlp.up.weight"): Concatenated(
            "layers.{i}.shared_mlp.input_linear.weight"
        ),
        "layers.{i}.mlp.down.weight": "layers.{i}.shared_mlp.output_linear.weight",
    },
    defaults={**GRANITE.defaults, "num_local_experts": 8, "shared_intermediate_size": 1024},
    prefixes=LLAMA_PREFIXES,
)
