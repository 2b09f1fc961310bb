"""CWM: Llama with a sliding window in all layers but the first, fifth, ninth and so on."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA3_SCALING, LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.layer_types import read_layer_types, read_window, sliding


def read_cwm(read: ConfigReader) -> DecoderConfig:
    """``CwmConfig``."""
    config = read_llama(read)
    usual = [i % 4 != 0 for i in range(config.num_layers)]
    return sliding(config, read_window(read), read_layer_types(read, config.num_layers, usual))


CWM = Architecture(
    model_types=("cwm",),
    classes=("CwmForCausalLM",),
    read=read_cwm,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 128256,
        "hidden_size": 6144,
        "intermediate_size": 21504,
        "num_hidden_layers": 64,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "rope_scaling": {**LLAMA3_SCALING, "factor": 16.0},
        "sliding_window": 8192,
    },
)
