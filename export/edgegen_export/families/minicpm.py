"""MiniCPM (1, 2 and 4): Llama with multipliers for embedding, residuals and logits, which it says as scales.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

import math
from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama


def read_minicpm(read: ConfigReader) -> DecoderConfig:
    """``MiniCPMConfig``."""
    config = read_llama(read)
    read.refuse("num_experts", (0,), "experts are not known of this family")
    if read.has("num_experts"):
        read.ignore("num_experts_per_tok")
    config = _dense(read, config)
    return replace(
        config,
        embedding_multiplier=read.above_zero("scale_emb"),
        residual_multiplier=read.above_zero("scale_depth") / math.sqrt(config.num_layers),
        logit_multiplier=read.above_zero("dim_model_base") / config.hidden_size,
    )


def _dense(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` for as many positions as it sees all of: from ``dense_len`` keys on, it leaves blocks out."""
    sparse = read.inner("sparse_config")
    if sparse is None:
        return config
    sparse.ignore("kernel_size", "kernel_stride", "init_blocks", "block_size", "window_size", "topk", "use_nope")
    longest = sparse.get("dense_len", int, 8192) - 1
    if longest < 1:
        read.problem("sparse_config: its attention always leaves blocks out, which is not supported")
        return config
    return replace(
        config,
        max_positions=min(config.max_positions, longest),
        longest_context=min(config.longest_context, longest),
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
)
