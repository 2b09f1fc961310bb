"""TeleChat 3: Llama with a YaRN of its own.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

from collections.abc import Mapping

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.rope import rope_key

_YARN: Mapping[str, float] = {"telechat3-yarn": 0.07}
"""As vLLM has it for Tele-AI/TeleChat3-36B-Thinking; its cosines and sines grow less than YaRN's."""


def read_telechat3(read: ConfigReader) -> DecoderConfig:
    """``Telechat3Config``."""
    config = read_llama(read, yarn=_YARN)
    key = rope_key(read)
    if inner := read.inner(key):
        for name in ("attention_factor", "mscale", "mscale_all_dim"):
            inner.refuse(name, (), "this family computes it from the factor")
        if inner.has("factor") and not inner.has("original_max_position_embeddings"):
            read.problem(f"{key}.original_max_position_embeddings: missing")
    return config


TELECHAT3 = Architecture(
    model_types=("telechat3",),
    classes=("Telechat3ForCausalLM", "TeleChat3ForCausalLM"),
    read=read_telechat3,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 131072,
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_hidden_layers": 64,
        "num_attention_heads": 48,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
    },
)
