"""Granite MoE: Granite with a mixture of experts, in some models also a shared one, or sliding windows and sinks."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated, Interleaved
from edgegen_export.families.granite import GRANITE, read_granite
from edgegen_export.families.granite_swa import GRANITE_SWA, read_granite_swa
from edgegen_export.families.llama import LLAMA_TENSORS
from edgegen_export.reading.experts import with_experts


def read_granitemoe(read: ConfigReader) -> DecoderConfig:
    """``GraniteMoeConfig``."""
    read.refuse("position_embedding_type", ("rope",), "only rotary positions are supported")
    return with_experts(read, read_granite(read), "num_local_experts", normalized=True)


def read_granitemoe_shared(read: ConfigReader) -> DecoderConfig:
    """``GraniteMoeSharedConfig``."""
    return _with_shared(read, read_granitemoe(read))


def read_granitemoe_swa(read: ConfigReader) -> DecoderConfig:
    """``GraniteMoeSWAConfig``."""
    config = with_experts(read, read_granite_swa(read), "num_local_experts", normalized=True)
    return _with_shared(read, config)


def _with_shared(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` with one more expert that every token uses, but for a width of 0."""
    key = "shared_intermediate_size"
    width = read.positive(key) if read.get(key, int, 0) else 0
    return config.each_experts(lambda own: replace(own, shared_width=width))


def tensors(config: DecoderConfig) -> TensorMap:
    return _tensors(config, router="router.layer.weight", gate_up="input_linear.weight", down="output_linear.weight")


def swa_tensors(config: DecoderConfig) -> TensorMap:
    sinks = {"layers.{i}.attn.sinks": "layers.{i}.self_attn.sinks"}
    names = {"router": "router.weight", "gate_up": "experts.gate_up_proj", "down": "experts.down_proj"}
    return {**_tensors(config, **names), **sinks}


def _tensors(config: DecoderConfig, *, router: str, gate_up: str, down: str) -> TensorMap:
    assert config.experts
    count, module = config.experts.count, "layers.{i}.block_sparse_moe"
    ours = {name: f"layers.{{i}}.mlp.{name}.weight" for name in ("router", "gate", "up", "down")}
    dense = {key: name for key, name in LLAMA_TENSORS.items() if ".mlp." not in key}
    return {
        **dense,
        ours["router"]: f"{module}.{router}",
        (ours["gate"], ours["up"]): Interleaved(f"{module}.{gate_up}", count, stacked=True),
        ours["down"]: Interleaved(f"{module}.{down}", count, stacked=True),
        **SHARED,
    }


SHARED: TensorMap = {
    ("layers.{i}.shared.gate.weight", "layers.{i}.shared.up.weight"): Concatenated(
        "layers.{i}.shared_mlp.input_linear.weight"
    ),
    "layers.{i}.shared.down.weight": "layers.{i}.shared_mlp.output_linear.weight",
}

GRANITE_MOE = Architecture(
    model_types=("granitemoe",),
    classes=("GraniteMoeForCausalLM",),
    read=read_granitemoe,
    tensors=tensors,
    defaults={**GRANITE.defaults, "num_local_experts": 8, "num_experts_per_tok": 2},
)
GRANITE_MOE_SHARED = Architecture(
    model_types=("granitemoeshared",),
    classes=("GraniteMoeSharedForCausalLM",),
    read=read_granitemoe_shared,
    tensors=tensors,
    defaults={**GRANITE_MOE.defaults, "shared_intermediate_size": 0},
)
GRANITE_MOE_SWA = Architecture(
    model_types=("granitemoe_swa",),
    classes=("GraniteMoeSWAForCausalLM",),
    read=read_granitemoe_swa,
    tensors=swa_tensors,
    defaults={**GRANITE_MOE_SHARED.defaults, "sliding_window": GRANITE_SWA.defaults["sliding_window"]},
)
