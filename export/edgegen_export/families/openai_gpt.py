"""GPT (the first): GPT-2's tensors, and norms after the sum with each sublayer."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.mlp import Activation
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.gpt2 import GPT2, GPT2_DEFAULTS, GPT2_TENSORS, read_gpt2

ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


def read_openai_gpt(read: ConfigReader) -> DecoderConfig:
    """``OpenAIGPTConfig``."""
    activation = read.choice("afn", ACTIVATIONS, "gelu")
    config = read_gpt2(read).each_mlp(lambda own: replace(own, activation=activation))
    return replace(config, block="norm_after_sum", final_norm=False)


OPENAI_GPT = Architecture(
    model_types=("openai-gpt",),
    classes=("OpenAIGPTLMHeadModel",),
    read=read_openai_gpt,
    tensors={
        **{ours: theirs for ours, theirs in GPT2_TENSORS.items() if not str(ours).startswith("final_norm")},
        "embed.weight": "tokens_embed.weight",
        "positions.weight": "positions_embed.weight",
    },
    defaults={**GPT2_DEFAULTS, "vocab_size": 40478, "n_positions": 512, "afn": "gelu"},
    prefixes=GPT2.prefixes,
    ignored=(*GPT2.ignored, r"position_ids"),
    aliases=GPT2.aliases,
)
