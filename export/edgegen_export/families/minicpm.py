"""MiniCPM (1, 2 and 4): Llama with multipliers for embedding, residuals and logits, which it says as scales.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

import math
from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_IGNORED, LLAMA_PREFIXES, LLAMA_TENSORS, read_llama


def read_minicpm(read: ConfigReader) -> DecoderConfig:
    """``MiniCPMConfig``."""
    config = read_llama(read)
    read.refuse("sparse_config", (None,), "its attention leaves blocks of long texts out, which is not supported")
    return replace(
        config,
        embedding_multiplier=read.above_zero("scale_emb"),
        residual_multiplier=read.above_zero("scale_depth") / math.sqrt(config.num_layers),
        logit_multiplier=read.above_zero("dim_model_base") / config.hidden_size,
    )


MINICPM = Architecture(
    model_types=("minicpm",),
    classes=("MiniCPMForCausalLM",),
    read=read_minicpm,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "tie_word_embeddings": True,
        "scale_emb": 1.0,
        "scale_depth": 1.0,
        "dim_model_base": 1.0,
    },
    prefixes=LLAMA_PREFIXES,
    ignored=LLAMA_IGNORED,
)
