"""Aria's language model: Llama with experts, stored with an axis of their own, and shared ones."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import ExpertStack
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.reading.experts import SHARED_EXPERTS, with_experts


def read_aria(read: ConfigReader) -> DecoderConfig:
    """``AriaTextConfig``. Softmax over the chosen experts is that over all, made to sum to one."""
    config = read_llama(read)
    read.ignore("moe_z_loss_coeff", "moe_aux_loss_coeff")
    config = with_experts(read, config, "moe_num_experts", normalized=True, per_token_key="moe_topk")
    shared = config.mlp.width * read.count("moe_num_shared_experts")
    return config.each_experts(lambda own: replace(own, shared_width=shared))


def tensors(config: DecoderConfig) -> TensorMap:
    assert config.experts
    count, module = config.experts.count, "layers.{i}.mlp"
    ours = {name: f"layers.{{i}}.mlp.{name}.weight" for name in ("gate", "up", "down")}
    return {
        **BESIDE_MLP,
        **SHARED_EXPERTS,
        "layers.{i}.mlp.router.weight": f"{module}.router.weight",
        (ours["gate"], ours["up"]): ExpertStack(f"{module}.experts.fc1.weight", count, in_turns=False),
        ours["down"]: ExpertStack(f"{module}.experts.fc2.weight", count),
    }


ARIA = Architecture(
    model_types=("aria_text",),
    classes=("AriaTextForCausalLM",),
    read=read_aria,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "intermediate_size": 4096,
        "moe_num_experts": 8,
        "moe_topk": 2,
        "moe_num_shared_experts": 2,
    },
)
