"""Falcon-H1: Llama with a Mamba-2 mixer beside the attention of every layer, and multipliers of most matrices."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.mamba2 import Mamba2
from edgegen_export.architecture.config import DecoderConfig, Multiplier
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.bamba import BAMBA_TENSORS
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.families.mamba2 import read_mixer


def read_falcon_h1(read: ConfigReader) -> DecoderConfig:
    """``FalconH1Config``."""
    config = read_llama(read)
    mixer = _mixer(read, config)
    read.refuse("mamba_use_mlp", (True,), "layers without an MLP are not supported")
    read.refuse("attn_layer_indices", (), "layers without attention are not supported")
    read.refuse("sliding_window", (), "windows are not supported")
    read.ignore("projectors_bias")  # the checkpoint's tensors show it
    read.ignore("num_logits_to_keep", "mlp_expansion_factor", "layers_block_type", "layer_types")
    embedding = read.number("embedding_multiplier")
    if not embedding:
        read.problem("embedding_multiplier: must not be zero")
    return replace(
        config.each_layer(lambda own: replace(own, mixer=mixer)),
        embedding_multiplier=embedding,
        logit_multiplier=read.number("lm_head_multiplier"),
        multipliers=_multipliers(read),
    )


def _mixer(read: ConfigReader, config: DecoderConfig) -> Mamba2:
    mixer = read_mixer(read, config)
    before = read.flag("mamba_norm_before_gate", True)
    if not read.flag("mamba_rms_norm"):
        return replace(mixer, eps=None)
    return replace(mixer, gate_last=before)


def _multipliers(read: ConfigReader) -> tuple[Multiplier, ...]:
    mlp = read.factors("mlp_multipliers", 2) if read.has("mlp_multipliers") else (1.0,) * 2
    ssm = read.factors("ssm_multipliers", 5) if read.has("ssm_multipliers") else (1.0,) * 5
    attended, mixed = read.number("attention_in_multiplier"), read.number("ssm_in_multiplier")
    return (
        Multiplier("attn.q", attended),
        Multiplier("attn.k", attended, read.number("key_multiplier")),
        Multiplier("attn.v", attended),
        Multiplier("attn.o", gives=read.number("attention_out_multiplier")),
        *(Multiplier(f"mamba.{name}", mixed, each) for name, each in zip(("z", "x", "b", "c", "dt"), ssm, strict=True)),
        Multiplier("mamba.out", gives=read.number("ssm_out_multiplier")),
        Multiplier("mlp.gate", gives=mlp[0]),
        Multiplier("mlp.down", gives=mlp[1]),
    )


FALCON_H1 = Architecture(
    model_types=("falcon_h1",),
    classes=("FalconH1ForCausalLM",),
    read=read_falcon_h1,
    tensors=BAMBA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 128000,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "mamba_d_ssm": 1024,
        "mamba_n_heads": 128,
        "mamba_n_groups": 1,
        "mamba_d_state": 256,
        "mamba_d_head": "auto",
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        **{
            f"{name}_multiplier": 1.0
            for name in ("embedding", "lm_head", "key", "attention_in", "attention_out", "ssm_in", "ssm_out")
        },
    },
)
