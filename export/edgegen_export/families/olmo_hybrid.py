"""OLMo Hybrid: gated delta nets, with norms before their inputs, and the attention of OLMo 2 in every fourth layer,
with norms after its output."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.gated_delta_net import GatedDeltaNet
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.architecture.tensor_layouts import Joined
from edgegen_export.families.olmo import OLMO2_TENSORS, OLMO_DEFAULTS, read_olmo2
from edgegen_export.families.qwen3_5 import NET_KINDS, read_net
from edgegen_export.reading.layer_types import chosen, rotating
from edgegen_export.reading.rope import rope_key
from edgegen_export.reading.tensor_names import named

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
    if all(recurrent):
        read.problem("layer_types: at least one layer must have attention")
    return config.each_layer(lambda own: replace(own, attention=None, mixer=net, block="sequential"), chosen(recurrent))


_NET = "layers.{i}.linear_attn"
_PROJECTIONS = {"q": "q", "k": "k", "v": "v", "z": "g", "dt": "a", "beta": "b", "out": "o"}


def tensors(config: DecoderConfig) -> TensorMap:
    net = config.first(GatedDeltaNet)
    sizes = (net.keys, net.keys, net.values) if net else (0, 0, 0)
    return {
        **OLMO2_TENSORS,
        **{
            key: value
            for ours, theirs in _PROJECTIONS.items()
            for key, value in named(f"layers.{{i}}.delta.{ours}", f"{_NET}.{theirs}_proj").items()
        },
        "layers.{i}.delta.kernel.weight": Joined(f"{_NET}.{{n}}_conv1d.weight", tuple(zip("qkv", sizes, strict=True))),
        "layers.{i}.delta.dt_offset": f"{_NET}.dt_bias",
        "layers.{i}.delta.rate": f"{_NET}.A_log",
        "layers.{i}.delta.norm.weight": f"{_NET}.o_norm.weight",
    }


OLMO_HYBRID = Architecture(
    model_types=("olmo_hybrid",),
    classes=("OlmoHybridForCausalLM",),
    read=read_olmo_hybrid,
    tensors=tensors,
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
