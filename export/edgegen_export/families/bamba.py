"""Bamba: Llama with Mamba-2 mixers instead of attention in most layers; half of each head rotates."""

from typing import cast

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.families.mamba2 import MIXER_DEFAULTS, mixer_tensors, with_mixers

BAMBA_MLP_TENSORS = {
    **{ours: theirs.replace(".mlp.", ".feed_forward.") for ours, theirs in LLAMA_TENSORS.items()},
    "layers.{i}.mlp_norm.weight": "layers.{i}.pre_ff_layernorm.weight",
    "final_norm.weight": "final_layernorm.weight",
}
"""Names of tensors outside of mixers."""

BAMBA_TENSORS = {**BAMBA_MLP_TENSORS, **mixer_tensors("layers.{i}.mamba")}


def read_bamba(read: ConfigReader) -> DecoderConfig:
    """``BambaConfig``."""
    config = read_llama(read, partial=True)
    attending = cast("list[object]", read.get("attn_layer_indices", list, []))
    strange = [i for i in attending if i not in range(config.num_layers)]
    if strange:
        read.problem(f"attn_layer_indices: numbers of the {config.num_layers} layers expected, found {strange}")
    read.ignore("num_logits_to_keep", "z_loss_coefficient", "layers_block_type", "layer_types", "attn_rotary_emb")
    recurrent = [i not in attending for i in range(config.num_layers)]
    return with_mixers(read, config, recurrent, "attn_layer_indices")


BAMBA = Architecture(
    model_types=("bamba",),
    classes=("BambaForCausalLM",),
    read=read_bamba,
    tensors=BAMBA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 128000,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        **MIXER_DEFAULTS,
    },
)
