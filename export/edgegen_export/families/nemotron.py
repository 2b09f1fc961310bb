"""Nemotron: LayerNorm of 1 + weight, half of each head rotates, a squared ReLU without gate. Jais 2: Llama with
LayerNorm, biases everywhere, and a squared ReLU without gate."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.arcee import PLAIN_TENSORS
from edgegen_export.families.llama import LLAMA_DEFAULTS, NORM_BIASES, read_llama
from edgegen_export.reading.parts import layer_norm, without_gate


def read_nemotron(read: ConfigReader) -> DecoderConfig:
    """``NemotronConfig``."""
    norm = replace(layer_norm(read.number("norm_eps", least=0)), offset=1.0)
    return without_gate(read_llama(read, norm=norm, partial=True))


NEMOTRON = Architecture(
    model_types=("nemotron",),
    classes=("NemotronForCausalLM",),
    read=read_nemotron,
    tensors={**PLAIN_TENSORS, **NORM_BIASES},
    defaults={
        "vocab_size": 256000,
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_hidden_layers": 32,
        "num_attention_heads": 48,
        "hidden_act": "relu2",
        "max_position_embeddings": 4096,
        "norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
    },
    aliases={"rope_percent": "partial_rotary_factor", "rope_percentage": "partial_rotary_factor"},
)


JAIS2 = Architecture(
    model_types=("jais2",),
    classes=("Jais2ForCausalLM",),
    read=lambda read: without_gate(read_llama(read, norm=layer_norm(read.number("layer_norm_eps", least=0)))),
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
