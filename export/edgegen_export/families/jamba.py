"""Jamba: Llama with Mamba-1 mixers instead of attention in most layers, no positions, and experts in some."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.bamba import BAMBA_MLP_TENSORS
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.families.mamba import mamba1_tensors, read_mamba1
from edgegen_export.reading.experts import by_layer, expert_tensors, with_experts, without_experts
from edgegen_export.reading.layer_types import rotating


def read_jamba(read: ConfigReader) -> DecoderConfig:
    """``JambaConfig``."""
    config = read_llama(read)
    config = rotating(config, None, [True] * config.num_layers)
    attending = _every(read, "attn_layer", config.num_layers)
    routed = _every(read, "expert_layer", config.num_layers)
    mixer = read_mamba1(read, config, config.norm)
    read.ignore("mamba_conv_bias", "mamba_proj_bias")  # the checkpoint's tensors show them
    read.ignore("num_logits_to_keep", "use_mamba_kernels", "use_mambapy", "use_associative_scan", "layer_types")
    read.ignore("layers_block_type", "layers_num_experts")  # what the periods and offsets say
    read.refuse("sliding_window", (), "windows are not supported")
    config = config.each_layer(
        lambda own: replace(own, attention=None, mixer=mixer), set(range(config.num_layers)) - attending
    )
    if not routed or read.get("num_experts", int, 1) == 1:
        without_experts(read)
        return config
    return with_experts(read, config, "num_experts", normalized=False, layers=routed)


def _every(read: ConfigReader, kind: str, layers: int) -> set[int]:
    """The layers at an offset in each period."""
    period, offset = read.positive(f"{kind}_period"), read.get(f"{kind}_offset", int, 0)
    if not 0 <= offset < period:
        read.problem(f"{kind}_offset = {offset}: from 0 to {period - 1} expected, for {kind}_period = {period}")
    return {i for i in range(layers) if i % period == offset}


_MIXER = "layers.{i}.mamba"
_TENSORS: TensorMap = {
    **{ours: theirs for ours, theirs in BAMBA_MLP_TENSORS.items() if ".mlp." not in ours},
    **mamba1_tensors(_MIXER),
    **{
        f"layers.{{i}}.mamba.{ours}_norm.weight": f"{_MIXER}.{theirs}_layernorm.weight"
        for ours, theirs in (("dt_in", "dt"), ("b", "b"), ("c", "c"))
    },
}
_MLP: TensorMap = {ours: theirs for ours, theirs in BAMBA_MLP_TENSORS.items() if ".mlp." in ours}


def tensors(config: DecoderConfig) -> TensorMap:
    if config.experts is None:
        return {**_TENSORS, **_MLP}
    experts = expert_tensors(config, "layers.{i}.feed_forward", router="router")
    return {**_TENSORS, **by_layer(config, experts, _MLP)}


JAMBA = Architecture(
    model_types=("jamba",),
    classes=("JambaForCausalLM",),
    read=read_jamba,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 65536,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 262144,
        "num_experts": 16,
        "num_experts_per_tok": 2,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
)
