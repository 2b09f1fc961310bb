"""Helium: Llama whose adjacent pairs rotate."""

from functools import partial

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama

HELIUM = Architecture(
    model_types=("helium",),
    classes=("HeliumForCausalLM",),
    read=partial(read_llama, interleaved=True),
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 48000,
        "hidden_size": 2560,
        "intermediate_size": 7040,
        "num_hidden_layers": 24,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-8,
        "rope_theta": 100000.0,
    },
)
