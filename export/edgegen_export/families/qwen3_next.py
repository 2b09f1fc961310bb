"""Qwen3-Next: the layers of Qwen3.5 with experts, and one more that every token uses."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Interleaved
from edgegen_export.families import qwen3_5
from edgegen_export.families.qwen2_moe import SHARED
from edgegen_export.families.qwen3_moe import qwen_mlp_tensors, read_qwen_experts


def read_qwen3_next(read: ConfigReader) -> DecoderConfig:
    """``Qwen3NextConfig``."""
    config = read_qwen_experts(read, qwen3_5.read_qwen3_5(read))
    shared = read.positive("shared_expert_intermediate_size")
    return config.each_experts(lambda own: replace(own, shared_width=shared, shared_gated=True))


def tensors(config: DecoderConfig) -> TensorMap:
    """Return the tensors of Qwen3.5, but with the projections of a gated delta net fused key head by key head."""
    ours, theirs = "layers.{i}.delta", "layers.{i}.linear_attn"
    net = config.first(GatedDeltaNet)
    key_heads = net.key_heads if net else 1
    fused = {("q", "k", "v", "z"): "in_proj_qkvz", ("beta", "dt"): "in_proj_ba"}
    beside = {name: stored for name, stored in qwen3_5.tensors(config).items() if not _replaced(name)}
    return {
        **beside,
        **{
            tuple(f"{ours}.{name}.weight" for name in names): Interleaved(f"{theirs}.{stored}.weight", key_heads)
            for names, stored in fused.items()
        },
        **qwen_mlp_tensors(config, SHARED),
    }


def _replaced(name: str | tuple[str, ...]) -> bool:
    first = name if isinstance(name, str) else name[0]
    return ".mlp." in first or any(f".delta.{part}." in first for part in ("q", "z", "dt", "beta"))


QWEN3_NEXT = Architecture(
    model_types=("qwen3_next",),
    classes=("Qwen3NextForCausalLM",),
    read=read_qwen3_next,
    tensors=tensors,
    defaults={
        **qwen3_5.DEFAULTS,
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "norm_topk_prob": True,
    },
    heads=qwen3_5.HEADS,
    draft_head=qwen3_5.DRAFT_HEAD,
    aliases={"num_local_experts": "num_experts"},
)
