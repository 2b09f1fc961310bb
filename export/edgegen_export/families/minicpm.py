"""MiniCPM (1, 2 and 4): Llama with multipliers for embedding, residuals and logits, which it says as scales.
transformers does not have it: its checkpoints bring code of their own, which is never run.

MiniCPM3: MiniCPM's multipliers, and latent attention that rotates halves of a part of each head.
"""

import math
from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.latent import LATENT_DEFAULTS, latent_tensors, read_latent
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


def read_minicpm3(read: ConfigReader) -> DecoderConfig:
    """``MiniCPM3Config``; a null multiplier means none, and the value's size is that of hidden / heads."""
    size = read.positive("hidden_size") // read.count("num_attention_heads")
    config = read_latent(read, interleaved=False, value=max(1, size))
    depth, base = read.limit("scale_depth"), read.limit("dim_model_base")
    return replace(
        config,
        embedding_multiplier=read.above_zero("scale_emb"),
        residual_multiplier=1.0 if depth is None else depth / math.sqrt(config.num_layers),
        logit_multiplier=1.0 if base is None else base / config.hidden_size,
    )


MINICPM3 = Architecture(
    model_types=("minicpm3",),
    classes=("MiniCPM3ForCausalLM",),
    read=read_minicpm3,
    tensors=latent_tensors,
    defaults={
        **{key: value for key, value in LATENT_DEFAULTS.items() if key != "v_head_dim"},
        "vocab_size": 73448,
        "hidden_size": 2560,
        "intermediate_size": 6400,
        "num_hidden_layers": 62,
        "num_attention_heads": 40,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "kv_lora_rank": 256,
        "q_lora_rank": 768,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "scale_emb": 12.0,
        "scale_depth": 1.4,
        "dim_model_base": 256.0,
    },
)
