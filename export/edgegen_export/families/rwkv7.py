"""RWKV-7 "Goose", as flash-linear-attention publishes it: time mixing and channel mixing, and no attention."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.mlp import Activation
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.time_mix import ChannelMix, TimeMix
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import WithAxes
from edgegen_export.families.mamba2 import ANY_LENGTH
from edgegen_export.reading.decoder import read_decoder
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.tensor_names import named, named_parts

_RANKS = ("decay", "a", "v", "gate")
_ACTIVATIONS: dict[str, Activation] = {"sqrelu": "relu2", **ACTIVATIONS}


def read_rwkv7(read: ConfigReader) -> DecoderConfig:
    """``RWKV7Config``."""
    hidden, count = read.positive("hidden_size"), read.count("num_hidden_layers")
    heads, size = _heads(read, hidden)
    read.refuse("value_dim", (hidden, [hidden] * count), "values are as wide as the hidden states")
    read.refuse("attn", (), "layers of attention are not supported")
    eps = read.number("norm_eps", least=0)
    mixer = TimeMix(heads, size, *(read.positive(f"{name}_low_rank_dim") for name in _RANKS), eps=size * eps)
    activation = read.choice("hidden_act", _ACTIVATIONS, "sqrelu")
    mlp = ChannelMix(_width(read, hidden), activation)
    read.ignore("attn_mode", "fuse_norm", "fuse_cross_entropy", "fuse_linear_cross_entropy", "use_l2warp")
    layer = Layer(mixer=mixer, mlp=mlp)
    layers = replace(layer, mixer=replace(mixer, first=True)), *[layer] * (count - 1)
    config = read_decoder(read, layers, Norm("layer", eps, bias=read.flag("norm_bias", True)))
    return replace(config, longest_context=ANY_LENGTH, embedding_norm=read.flag("norm_first", True))


def _heads(read: ConfigReader, hidden: int) -> tuple[int, int]:
    """How many heads there are, and how wide one is; the config says one of both."""
    if read.has("head_dim"):
        size = read.positive("head_dim")
        if hidden % size and read.sound("hidden_size", "head_dim"):
            read.problem(f"hidden_size = {hidden} is not a multiple of head_dim = {size}", "head_dim")
        heads = max(1, hidden // size)
        read.agree("num_heads", heads, "hidden_size / head_dim")
        return heads, size
    heads = read.count("num_heads")
    if hidden % heads and read.sound("hidden_size", "num_heads"):
        read.problem(f"hidden_size = {hidden} is not a multiple of num_heads = {heads}", "num_heads")
    return heads, max(1, hidden // heads)


def _width(read: ConfigReader, hidden: int) -> int:
    """Of channel mixing: a multiple of 32, unless the config says it itself."""
    ratio = read.number("hidden_ratio", 4.0, least=0)
    if read.has("intermediate_size"):
        return read.positive("intermediate_size")
    return max(1, -(-int(hidden * ratio) // 32)) * 32


_TIME, _THEIRS = "layers.{i}.time", "layers.{i}.attn"
_LOW = {"w": "w", "mix": "v", "rate": "a", "gate": "g"}
_SHIFTS = {"r": "r", "w": "w", "k": "k", "v": "v", "rate": "a", "gate": "g"}

_TENSORS: TensorMap = {
    "embed.weight": "embeddings.weight",
    **named("embed_norm", "layers.0.pre_norm"),
    **named("layers.{i}.attn_norm", "layers.{i}.attn_norm"),
    **named("layers.{i}.mlp_norm", "layers.{i}.ffn_norm"),
    **named("final_norm", "norm"),
    "head.weight": "lm_head.weight",
    **{f"{_TIME}.{part}.weight": f"{_THEIRS}.{part}_proj.weight" for part in "rkv"},
    f"{_TIME}.out.weight": f"{_THEIRS}.o_proj.weight",
    **{f"{_TIME}.{part}_in.weight": f"{_THEIRS}.{name}_lora.lora.0.weight" for part, name in _LOW.items()},
    **named_parts(_TIME, _THEIRS, {part: f"{name}_lora.lora.2" for part, name in _LOW.items()}),
    **{f"{_TIME}.shift_{part}": WithAxes(f"{_THEIRS}.x_{name}", before=2, after=0) for part, name in _SHIFTS.items()},
    f"{_TIME}.key_scale": f"{_THEIRS}.k_k",
    f"{_TIME}.key_rate": f"{_THEIRS}.k_a",
    f"{_TIME}.bonus": f"{_THEIRS}.r_k",
    **named(f"{_TIME}.norm", f"{_THEIRS}.g_norm"),
    "layers.{i}.mlp.shift": "layers.{i}.ffn.x_k",
    "layers.{i}.mlp.up.weight": "layers.{i}.ffn.key.weight",
    "layers.{i}.mlp.down.weight": "layers.{i}.ffn.value.weight",
}

RWKV7 = Architecture(
    model_types=("rwkv7",),
    classes=("RWKV7ForCausalLM",),
    read=read_rwkv7,
    tensors=_TENSORS,
    defaults={
        "vocab_size": 32000,
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "head_dim": 64,
        "decay_low_rank_dim": 64,
        "gate_low_rank_dim": 128,
        "a_low_rank_dim": 64,
        "v_low_rank_dim": 16,
        "max_position_embeddings": 2048,
        "norm_eps": 1e-5,
    },
)
