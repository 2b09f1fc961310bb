"""MiniMax M2: Llama that rotates a part of each head, with norms over the whole width of q and k, and experts that
sigmoids weigh and that are chosen with a bias of each."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.glm import DRAFTS
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.reading.experts import expert_tensors, with_experts
from edgegen_export.reading.layer_types import rotating
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM

_MOE = "layers.{i}.block_sparse_moe"


def read_minimax_m2(read: ConfigReader) -> DecoderConfig:
    """``MiniMaxM2Config``."""
    config = _rotated(read, read_llama(read, partial=True))
    read.ignore("use_mtp", "num_mtp_modules", "mtp_transformer_layers", "router_jitter_noise")  # of drafts and training
    read.refuse("scoring_func", ("sigmoid",), "experts are weighed by sigmoids only in this family")
    read.refuse("use_routing_bias", (True,), "experts are chosen with a bias of each in this family")
    read.refuse("use_qk_norm", (True,), "q and k have norms in this family")
    read.refuse("qk_norm_type", ("per_layer",), "norms of q and k are over their whole width in this family")
    read.refuse("shared_intermediate_size", (0,), "no expert is shared in this family")
    read.refuse("attn_type_list", ([1] * config.num_layers,), "every layer has softmax attention in this family")
    config = with_qk_norm(config, "all")
    config = with_experts(read, config, "num_local_experts", normalized=True)
    return config.each_experts(lambda own: replace(own, routing=Routing("sigmoid", choice_bias=True)))


def _rotated(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` whose heads rotate as far as ``rotary_dim`` says, which older files have."""
    dim, size, rope = read.optional("rotary_dim", int), config.attention.head_dim, config.attention.rope
    if dim is None or rope is None or dim == rope.dim:
        return config
    if rope.dim != size:
        read.problem(f"rotary_dim = {dim}: contradicts partial_rotary_factor, by which {rope.dim} values rotate")
    elif not 0 < dim <= size or dim % 2:
        read.problem(f"rotary_dim: an even number from 2 to {size} expected, found {dim}")
    elif rope.scaling is not None:
        read.problem("rotary_dim: with a scaling of RoPE, say partial_rotary_factor instead")
    else:
        return rotating(config, replace(rope, dim=dim), [True] * config.num_layers)
    return config


def tensors(config: DecoderConfig) -> TensorMap:
    return {
        **BESIDE_MLP,
        **QK_NORM,
        **expert_tensors(config, _MOE, ("w1", "w3", "w2")),
        "layers.{i}.mlp.router.choice_bias": f"{_MOE}.e_score_correction_bias",
    }


MINIMAX_M2 = Architecture(
    model_types=("minimax_m2",),
    classes=("MiniMaxM2ForCausalLM",),
    read=read_minimax_m2,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 200064,
        "hidden_size": 3072,
        "intermediate_size": 1536,
        "num_hidden_layers": 62,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 196608,
        "rope_theta": 5000000.0,
        "num_experts_per_tok": 8,
        "num_local_experts": 256,
    },
    drafts=DRAFTS,
    aliases={"num_experts": "num_local_experts"},
)
