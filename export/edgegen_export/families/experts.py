"""Mixture of experts: the config keys and tensor names that families with experts share."""

from dataclasses import replace

from edgegen_export.architecture.architecture import TensorMap
from edgegen_export.architecture.config import DecoderConfig, Experts
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Scattered

STEP = 16
"""QMoE takes whole blocks of 16 or more only, so the widths of experts' matrices must be multiples of this."""

MOST = 1 << 12
"""An upper limit that no real model exceeds, since each expert adds tensor names."""


def with_experts(
    read: ConfigReader, config: DecoderConfig, count_key: str, *, normalized: bool, width: int | None = None
) -> DecoderConfig:
    """``config`` with ``count_key`` experts in place of every MLP, each as wide as that or of ``width``."""
    width = width or config.intermediate_size
    count, per_token = read.positive(count_key, most=MOST), read.positive("num_experts_per_tok")
    read.ignore("output_router_logits", "router_aux_loss_coef")
    if per_token > count and read.sound(count_key):
        read.problem(f"num_experts_per_tok = {per_token} is more than {count_key} = {count}")
    if config.activation != "silu":
        read.problem("hidden_act: experts are supported with silu only")
    for said, size in (("hidden_size", config.hidden_size), ("the width of an expert", width)):
        if size % STEP:
            read.problem(f"{said} = {size}: experts of this size are not supported, only multiples of {STEP}")
    return replace(config, experts=Experts(count, per_token, normalized, width))


def expert_tensors(config: DecoderConfig, module: str, names: tuple[str, str, str]) -> TensorMap:
    """The tensor map of a router ``gate`` and its ``experts``, with these names for gate, up and down."""
    assert config.experts
    count = config.experts.count
    return {
        "layers.{i}.mlp.router.weight": f"{module}.gate.weight",
        **{
            f"layers.{{i}}.mlp.{ours}.weight": Scattered(f"{module}.experts.{{n}}.{theirs}.weight", count)
            for ours, theirs in zip(("gate", "up", "down"), names, strict=True)
        },
    }
