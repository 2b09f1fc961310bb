"""Orion: Llama with LayerNorm.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, NORM_BIASES, read_llama
from edgegen_export.reading.parts import layer_norm


def read_orion(read: ConfigReader) -> DecoderConfig:
    """``OrionConfig``, whose ``rms_norm_eps`` is that of LayerNorm."""
    read.refuse("pretraining_tp", (0, 1), "this family does not split its matrices")
    return read_llama(read, norm=layer_norm(read.number("rms_norm_eps", least=0)))


ORION = Architecture(
    model_types=("orion",),
    classes=("OrionForCausalLM",),
    read=read_orion,
    tensors={**LLAMA_TENSORS, **NORM_BIASES},
    defaults={**LLAMA_DEFAULTS, "vocab_size": 84608, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
)
