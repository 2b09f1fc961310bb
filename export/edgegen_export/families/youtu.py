"""Youtu-LLM: Llama with DeepSeek-V3's latent attention."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.glm import DRAFTS
from edgegen_export.families.latent import LATENT_DEFAULTS, latent_tensors, read_latent


def read_youtu(read: ConfigReader) -> DecoderConfig:
    """``YoutuConfig``."""
    read.ignore("embedding_initializer_range")
    return read_latent(read, interleaved=read.flag("rope_interleave"))


YOUTU = Architecture(
    model_types=("youtu",),
    classes=("YoutuForCausalLM",),
    read=read_youtu,
    tensors=latent_tensors,
    defaults={
        **LATENT_DEFAULTS,
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_attention_heads": 16,
        "max_position_embeddings": 131072,
        "rope_interleave": True,
        "tie_word_embeddings": True,
    },
    drafts=DRAFTS,
)
