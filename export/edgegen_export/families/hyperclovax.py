"""HyperCLOVA X: Granite with a norm after each sublayer too, and logits that are multiplied, not divided."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.granite import GRANITE, read_granite
from edgegen_export.families.llama import LLAMA_TENSORS


def read_hyperclovax(read: ConfigReader) -> DecoderConfig:
    """``HyperCLOVAXConfig``."""
    own_scale = read.has("attention_multiplier")
    config = read_granite(read, scaled=own_scale)
    block = "sandwich" if read.flag("use_post_norm") else "sequential"
    return replace(config, block=block, logit_multiplier=1 / config.logit_multiplier)


HYPERCLOVAX = Architecture(
    model_types=("hyperclovax",),
    classes=("HyperCLOVAXForCausalLM",),
    read=read_hyperclovax,
    tensors={
        **LLAMA_TENSORS,
        "layers.{i}.attn_post_norm.weight": "layers.{i}.post_norm1.weight",
        "layers.{i}.mlp_post_norm.weight": "layers.{i}.post_norm2.weight",
    },
    defaults={**GRANITE.defaults, "attention_multiplier": None, "use_post_norm": True},
)
