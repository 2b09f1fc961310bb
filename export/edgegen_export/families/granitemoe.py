"""Granite MoE: Granite with a mixture of experts, stored as one tensor per projection."""

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Interleaved
from edgegen_export.families.experts import with_experts
from edgegen_export.families.granite import GRANITE, read_granite
from edgegen_export.families.llama import LLAMA_PREFIXES, LLAMA_TENSORS


def read_granitemoe(read: ConfigReader) -> DecoderConfig:
    """``GraniteMoeConfig``."""
    read.refuse("position_embedding_type", ("rope",), "only rotary positions are supported")
    return with_experts(read, read_granite(read), "num_local_experts", normalized=True)


def tensors(config: DecoderConfig) -> TensorMap:
    assert config.experts
    count, module = config.experts.count, "layers.{i}.block_sparse_moe"
    ours = {name: f"layers.{{i}}.mlp.{name}.weight" for name in ("router", "gate", "up", "down")}
    dense = {key: name for key, name in LLAMA_TENSORS.items() if ".mlp." not in key}
    return {
        **dense,
        ours["router"]: f"{module}.router.layer.weight",
        (ours["gate"], ours["up"]): Interleaved(f"{module}.input_linear.weight", count, stacked=True),
        ours["down"]: Interleaved(f"{module}.output_linear.weight", count, stacked=True),
    }


GRANITE_MOE = Architecture(
    model_types=("granitemoe",),
    classes=("GraniteMoeForCausalLM",),
    read=read_granitemoe,
    tensors=tensors,
    defaults={**GRANITE.defaults, "num_local_experts": 8, "num_experts_per_tok": 2},
    prefixes=LLAMA_PREFIXES,
)
