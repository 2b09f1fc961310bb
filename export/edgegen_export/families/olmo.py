"""OLMo: Llama with a LayerNorm without weights. OLMo 2: norms after attention and MLP, and QK norm. OLMo 3: OLMo 2 with
a sliding window in three of four layers, which take no part in RoPE scaling. OLMoE: Llama with QK norm and a mixture of
experts. FlexOlmo has the norms after its sublayers, as OLMo 2.

OLMo Hybrid: gated delta nets, with norms before their inputs, and the attention of OLMo 2 in every fourth layer, with
norms after its output.
"""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.architecture.tensor_layouts import Joined
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.families.qwen3_5 import NET_KINDS, read_net
from edgegen_export.reading.experts import expert_tensors, with_experts
from edgegen_export.reading.layer_types import chosen, read_layer_types, read_window, rotating, sliding
from edgegen_export.reading.mixers import mixing
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.rope import read_rope, rope_key
from edgegen_export.reading.tensor_names import QK_NORM, named_parts

OLMO_DEFAULTS = {**LLAMA_DEFAULTS, "vocab_size": 50304}


def read_olmo(read: ConfigReader) -> DecoderConfig:
    """``OlmoConfig``."""
    config = read_llama(read, norm=Norm("layer", 1e-5, weight=False))
    limit = read.limit("clip_qkv")
    return config.each_attention(lambda own: replace(own, clip=limit))


def read_olmo2(read: ConfigReader) -> DecoderConfig:
    """``Olmo2Config``."""
    config = read_llama(read)
    return with_qk_norm(replace(config, block="post_norm"), "all")


OLMO2_TENSORS = {
    **LLAMA_TENSORS,
    **QK_NORM,
    "layers.{i}.attn_post_norm.weight": "layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.mlp_post_norm.weight": "layers.{i}.post_feedforward_layernorm.weight",
}

OLMO = Architecture(
    model_types=("olmo",),
    classes=("OlmoForCausalLM",),
    read=read_olmo,
    tensors={ours: theirs for ours, theirs in LLAMA_TENSORS.items() if "norm" not in ours},
    defaults=OLMO_DEFAULTS,
)

OLMO2 = Architecture(
    model_types=("olmo2",),
    classes=("Olmo2ForCausalLM",),
    read=read_olmo2,
    tensors=OLMO2_TENSORS,
    defaults={**OLMO_DEFAULTS, "rms_norm_eps": 1e-5},
)


def read_olmo3(read: ConfigReader) -> DecoderConfig:
    """``Olmo3Config``."""
    config = read_olmo2(read)
    windowed = read_layer_types(read, config.num_layers, every(4, False, True, config.num_layers))
    positions = read.positive("max_position_embeddings")
    local = read_rope(read, config.attention.head_dim, positions, layer_type="sliding_attention")
    return sliding(rotating(config, local, windowed), read_window(read), windowed)


OLMO3 = Architecture(
    model_types=("olmo3",),
    classes=("Olmo3ForCausalLM",),
    read=read_olmo3,
    tensors=OLMO2_TENSORS,
    defaults={**OLMO2.defaults, "sliding_window": 4096},
)


def read_olmoe(read: ConfigReader) -> DecoderConfig:
    """``OlmoeConfig``."""
    config = read_llama(read)
    read.refuse("clip_qkv", (), "queries and keys clamped after their norms are not supported")
    config = with_qk_norm(config, "all")
    return with_experts(read, config, "num_experts", normalized=read.flag("norm_topk_prob"))


OLMOE = Architecture(
    model_types=("olmoe",),
    classes=("OlmoeForCausalLM",),
    read=read_olmoe,
    tensors=lambda config: {**LLAMA_TENSORS, **QK_NORM, **expert_tensors(config, "layers.{i}.mlp")},
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 50304,
        "hidden_size": 2048,
        "intermediate_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "num_experts": 64,
        "num_experts_per_tok": 8,
    },
)


FLEX_OLMO = Architecture(
    model_types=("flex_olmo",),
    classes=("FlexOlmoForCausalLM",),
    read=lambda read: replace(read_olmoe(read), block="post_norm"),
    tensors=lambda config: {**OLMO2_TENSORS, **expert_tensors(config, "layers.{i}.mlp")},
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 100352,
        "max_position_embeddings": 4096,
        "rope_theta": 500000.0,
        "num_experts": 7,
        "num_experts_per_tok": 5,
    },
    aliases={"num_local_experts": "num_experts"},
)


_EPS = 1e-5
"""Of the norms within the nets, whatever the others have."""


def read_olmo_hybrid(read: ConfigReader) -> DecoderConfig:
    """``OlmoHybridConfig``. Where the base of rotary positions is null, nothing rotates."""
    config = read_olmo2(read)
    layers, heads = config.num_layers, config.attention.heads
    rope = read.inner(rope_key(read))
    if rope and "rope_theta" in rope.names() and not rope.has("rope_theta"):
        config = rotating(config, None, [True] * layers)
    if config.mlp.activation != "silu":
        read.problem("hidden_act: gated delta nets are supported with silu only")
    read.ignore(*(f"linear_{key}" for key in ("a_log_min", "a_log_max", "dt_min", "dt_max", "dt_init_floor")))
    size = int(0.75 * config.hidden_size / max(1, read.get("linear_num_key_heads", int, heads)))
    size = read.get("linear_key_head_dim", int, size)
    read.with_defaults(
        {
            "linear_num_key_heads": heads,
            "linear_num_value_heads": heads,
            "linear_key_head_dim": size,
            "linear_value_head_dim": 2 * size,
        }
    )
    net = replace(read_net(read, config), eps=_EPS, doubled=read.flag("linear_allow_neg_eigval"))
    recurrent = read.per_layer("layer_types", NET_KINDS, layers)
    if recurrent is None:
        recurrent = every(4, False, True, layers) if layers > 3 else [True] * (layers - 1) + [False]
    config = mixing(read, config, net, recurrent)
    return config.each_layer(lambda own: replace(own, block="sequential"), chosen(recurrent))


_NET = "layers.{i}.linear_attn"
_PROJECTIONS = {x: f"{y}_proj" for x, y in zip(("q", "k", "v", "z", "dt", "beta", "out"), "qkvgabo", strict=True)}


def _hybrid_tensors(config: DecoderConfig) -> TensorMap:
    net = config.first(GatedDeltaNet)
    sizes = (net.keys, net.keys, net.values) if net else (0, 0, 0)
    return {
        **OLMO2_TENSORS,
        **named_parts("layers.{i}.delta", _NET, _PROJECTIONS),
        "layers.{i}.delta.kernel.weight": Joined(f"{_NET}.{{n}}_conv1d.weight", tuple(zip("qkv", sizes, strict=True))),
        "layers.{i}.delta.dt_offset": f"{_NET}.dt_bias",
        "layers.{i}.delta.rate": f"{_NET}.A_log",
        "layers.{i}.delta.norm.weight": f"{_NET}.o_norm.weight",
    }


OLMO_HYBRID = Architecture(
    model_types=("olmo_hybrid",),
    classes=("OlmoHybridForCausalLM",),
    read=read_olmo_hybrid,
    tensors=_hybrid_tensors,
    defaults={
        **OLMO_DEFAULTS,
        "vocab_size": 100352,
        "hidden_size": 3840,
        "num_attention_heads": 30,
        "max_position_embeddings": 65536,
        "linear_conv_kernel_dim": 4,
        "linear_allow_neg_eigval": True,
    },
    # As transformers 5 writes them, in all layers, and the converter of the model's own code, in those with nets.
    renamed={"attention_layer_norm": "input_layernorm", "feedforward_layer_norm": "post_attention_layernorm"},
)
