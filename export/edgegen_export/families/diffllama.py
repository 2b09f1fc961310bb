"""DiffLlama: Llama with differential attention, and what families that have it share."""

import math

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.differential_attention import DifferentialAttention
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import PairedHeads
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama


def differential(own: Attention, layer: int, *, eps: float, weight: bool) -> DifferentialAttention:
    """Differential attention with as many numbers, in the layer of this number; ``eps``, ``weight``: of the norm of
    what pairs have read."""
    initial = 0.8 - 0.6 * math.exp(-0.3 * layer)
    return DifferentialAttention(
        own.heads,
        max(1, own.kv_heads // 2),
        2 * own.head_dim,
        own.scale,
        rope=own.rope,
        initial=initial,
        pair_norm=Norm("rms", eps, weight=weight, factor=1 - initial),
    )


def even_heads(read: ConfigReader, own: Attention) -> None:
    """Refuse heads that cannot be paired."""
    for key, heads in (("num_attention_heads", own.heads), ("num_key_value_heads", own.kv_heads)):
        if heads % 2:
            read.problem(f"{key} = {heads}: an even number expected, for differential attention")


def read_diffllama(read: ConfigReader) -> DecoderConfig:
    """``DiffLlamaConfig``."""
    config = read_llama(read)
    even_heads(read, config.attention)
    read.ignore("lambda_std_dev")  # of the initial rates
    eps = config.norm.eps
    layers = iter(range(config.num_layers))
    return config.each_attention(lambda own: differential(own, next(layers), eps=eps, weight=False))


def tensors(config: DecoderConfig) -> TensorMap:
    own = config.attention
    heads = {"q": own.heads, "k": 2 * own.kv_heads, "v": 2 * own.kv_heads}
    return {
        **LLAMA_TENSORS,
        **{
            f"layers.{{i}}.attn.{x}.{kind}": PairedHeads(f"layers.{{i}}.self_attn.{x}_proj.{kind}", count)
            for x, count in heads.items()
            for kind in ("weight", "bias")
        },
        **{f"layers.{{i}}.attn.rate_{x}": f"layers.{{i}}.self_attn.lambda_{x}" for x in ("q1", "k1", "q2", "k2")},
    }


DIFFLLAMA = Architecture(
    model_types=("diffllama",),
    classes=("DiffLlamaForCausalLM",),
    read=read_diffllama,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "rms_norm_eps": 1e-5,
    },
)
