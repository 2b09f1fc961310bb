"""Jais 2: Llama with LayerNorm, biases everywhere, and a squared ReLU without gate."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.families.nemotron import NEMOTRON
from edgegen_export.reading.parts import layer_norm, without_gate


def read_jais2(read: ConfigReader) -> DecoderConfig:
    """``Jais2Config``."""
    return without_gate(read_llama(read, norm=layer_norm(read.number("layer_norm_eps", least=0))))


JAIS2 = Architecture(
    model_types=("jais2",),
    classes=("Jais2ForCausalLM",),
    read=read_jais2,
    tensors=NEMOTRON.tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 150272,
        "hidden_size": 3328,
        "intermediate_size": 26624,
        "num_attention_heads": 26,
        "hidden_act": "relu2",
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
    },
)
