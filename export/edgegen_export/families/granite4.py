"""Granite 4: Granite with Mamba-2 mixers instead of attention in most layers, a shared MLP, and in some models experts.

Models without mixers or experts are Granite with other names.
"""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.families.granite import GRANITE, read_granite
from edgegen_export.families.granitemoe import tensors as tensors_with_experts
from edgegen_export.families.llama import LLAMA_TENSORS
from edgegen_export.families.mamba2 import mixer_tensors, recurrent_layers, with_mixers
from edgegen_export.reading.experts import with_experts
from edgegen_export.reading.layer_types import rotating


def read_granite4(read: ConfigReader) -> DecoderConfig:
    """``GraniteMoeHybridConfig``."""
    config = read_granite(read, inner_key="shared_intermediate_size", partial=True)  # Bamba's in GGUF files
    read.refuse("normalization_function", ("rmsnorm",), "only RMSNorm is known")
    read.ignore("init_method")
    rotates = read.choice("position_embedding_type", {"rope": True, "nope": False}, "nope")
    config = config if rotates else rotating(config, None, [True] * config.num_layers)
    recurrent = recurrent_layers(read, config.num_layers)
    return with_mixers(read, _with_experts(read, config), recurrent, "layer_types")


def _with_experts(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` with experts beside the shared MLP, unless there are none."""
    if read.get("num_local_experts", int, 0) == 0:
        read.ignore("num_experts_per_tok", "output_router_logits", "router_aux_loss_coef")
        read.ignore("intermediate_size")  # of the experts
        return config
    shared, width = config.mlp.width, read.positive("intermediate_size")
    config = with_experts(read, config, "num_local_experts", normalized=True, width=width)
    return config.each_experts(lambda own: replace(own, shared_width=shared))


def _tensors(config: DecoderConfig) -> TensorMap:
    mixers = mixer_tensors("layers.{i}.mamba")
    if config.experts:
        return {**tensors_with_experts(config), **mixers}
    return {
        **{ours: theirs for ours, theirs in LLAMA_TENSORS.items() if ".mlp." not in ours},
        ("layers.{i}.mlp.gate.weight", "layers.{i}.mlp.up.weight"): Concatenated(
            "layers.{i}.shared_mlp.input_linear.weight"
        ),
        "layers.{i}.mlp.down.weight": "layers.{i}.shared_mlp.output_linear.weight",
        **mixers,
    }


GRANITE4 = Architecture(
    model_types=("granitemoehybrid",),
    classes=("GraniteMoeHybridForCausalLM",),
    read=read_granite4,
    tensors=_tensors,
    defaults={
        **GRANITE.defaults,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 1024,
        "mamba_n_heads": 128,
        "mamba_n_groups": 1,
        "mamba_d_state": 256,
        "mamba_d_head": "auto",
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
)
