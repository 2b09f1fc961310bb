"""Mixtral: Mistral with a mixture of experts."""

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_TENSORS
from edgegen_export.families.mistral import MISTRAL, read_mistral
from edgegen_export.reading.experts import expert_tensors, with_experts


def read_mixtral(read: ConfigReader) -> DecoderConfig:
    """``MixtralConfig``."""
    read.ignore("router_jitter_noise")  # in training only
    return with_experts(read, read_mistral(read), "num_local_experts", normalized=True)


def tensors(config: DecoderConfig) -> TensorMap:
    return {**LLAMA_TENSORS, **expert_tensors(config, "layers.{i}.block_sparse_moe", ("w1", "w3", "w2"))}


MIXTRAL = Architecture(
    model_types=("mixtral",),
    classes=("MixtralForCausalLM",),
    read=read_mixtral,
    tensors=tensors,
    defaults={
        **MISTRAL.defaults,
        "sliding_window": None,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
)
