"""Mamba-2: layers that are a Mamba-2 mixer and nothing else; and what families that have such mixers share."""

from collections.abc import Sequence
from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.mamba2 import Mamba2
from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.reading.mixers import mixing, sound_width
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.tensor_names import joined, named

RECURRENT = {"attention": False, "full_attention": False, "mamba": True, "linear_attention": True}
"""Whether layers of a type have a mixer."""

_NO_LIMITS = ([0.0, float("inf")], (0.0, float("inf")), [0.0, {"__float__": "Infinity"}], [0.0, 1e308])
"""As transformers 4 and 5 write it, and as Nemotron 3 Ultra has it."""

_TIME_STEPS = tuple(f"time_step_{key}" for key in ("floor", "max", "min", "rank"))

MIXER_DEFAULTS = {
    "mamba_n_heads": 128,
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
"""Of the config classes of hybrids."""

KEYS = "chunk_size conv_bias d_conv d_head d_state expand n_groups n_heads proj_bias".split()
"""All keys, but for ``mamba_`` before each."""


def recurrent_layers(read: ConfigReader, layers: int) -> tuple[bool, ...]:
    """Which layers have a mixer instead of attention, by ``layer_types``; all without it."""
    recurrent = read.per_layer("layer_types", RECURRENT, layers)
    return (not read.has("layer_types"),) * layers if recurrent is None else recurrent


def with_mixers(read: ConfigReader, config: DecoderConfig, recurrent: Sequence[bool], key: str) -> DecoderConfig:
    """``config`` with Mamba-2 mixers instead of attention in the layers that ``recurrent`` says, read under ``key``."""
    if not any(recurrent):
        read.ignore(*(f"mamba_{key}" for key in KEYS), "time_step_limit", *_TIME_STEPS)
        return config
    return mixing(read, config, read_mixer(read, config), recurrent, key)


def read_mixer(read: ConfigReader, config: DecoderConfig) -> Mamba2:
    """The mixer of ``config``'s layers; it has a norm."""
    heads, groups = read.count("mamba_n_heads"), read.positive("mamba_n_groups")
    stated = "mamba_d_ssm" if read.has("mamba_d_ssm") else "mamba_expand"
    inner = read.positive(stated) * (config.hidden_size if stated == "mamba_expand" else 1)
    read.ignore("mamba_expand")
    if read.sound("mamba_n_heads", stated, "hidden_size") and inner % heads:
        read.problem(f"mamba_n_heads = {heads}: must divide the {inner} channels of a mixer")
    size = max(1, inner // heads)
    read.refuse("mamba_d_head", ("auto", size), f"mamba_n_heads share {inner} channels, {size} each")
    if config.mlp.activation != "silu":
        read.problem("hidden_act: recurrent layers are supported with silu only")
    read.ignore("mamba_chunk_size")  # of the training
    read.ignore("mamba_conv_bias", "mamba_proj_bias")  # the checkpoint's tensors show them
    mixer = Mamba2(heads, size, groups, read.positive("mamba_d_state"), read.positive("mamba_d_conv"), config.norm.eps)
    return sound_mixer(read, mixer, heads="mamba_n_heads", groups="mamba_n_groups", width="mamba_d_conv")


def sound_mixer(read: ConfigReader, mixer: Mamba2, *, heads: str, groups: str, width: str) -> Mamba2:
    """``mixer`` with what was read under these keys, after problems with them are recorded."""
    if read.sound(heads, groups) and mixer.heads % mixer.groups:
        read.problem(f"{groups} = {mixer.groups}: must divide {heads} = {mixer.heads}")
    mixer = replace(mixer, width=sound_width(read, width))
    read.refuse("time_step_limit", _NO_LIMITS, "limits of time steps are not supported")
    read.ignore(*_TIME_STEPS)  # of the training
    return mixer


def mixer_tensors(module: str) -> TensorMap:
    """The tensor map of the mixers, ``module`` the checkpoint's name of one."""
    ours = "layers.{i}.mamba"
    return {
        **joined(f"{module}.in_proj", [f"{ours}.{name}" for name in ("z", "x", "b", "c", "dt")]),
        **named(f"{ours}.kernel", f"{module}.conv1d"),
        **named(f"{ours}.out", f"{module}.out_proj"),
        f"{ours}.dt_offset": f"{module}.dt_bias",
        f"{ours}.rate": f"{module}.A_log",
        f"{ours}.skip": f"{module}.D",
        f"{ours}.norm.weight": f"{module}.norm.weight",
    }


# Models without attention.

ANY_LENGTH = 1 << 20
"""Positions of a model whose states have none; llama.cpp's files say as many."""


def read_recurrent(read: ConfigReader, mixer: Mixer) -> DecoderConfig:
    """A model whose layers are such mixers and nothing else."""
    positions = read.positive("max_position_embeddings", ANY_LENGTH)
    read.ignore("residual_in_fp32", "rescale_prenorm_residual", "layer_types")
    read.ignore("use_bias", "use_conv_bias")  # the checkpoint's tensors show them
    return DecoderConfig(
        layers=(Layer(mixer=mixer),) * read.count("num_hidden_layers"),
        hidden_size=read.positive("hidden_size"),
        vocab_size=read.positive("vocab_size"),
        max_positions=positions,
        longest_context=positions,
        norm=Norm("rms", read.number("layer_norm_epsilon", least=0)),
        tied_head=read.flag("tie_word_embeddings"),
        block="single",
    )


RECURRENT_TENSORS: TensorMap = {
    "embed.weight": "embeddings.weight",
    "layers.{i}.norm.weight": "layers.{i}.norm.weight",
    "final_norm.weight": "norm_f.weight",
    "head.weight": "lm_head.weight",
}
RECURRENT_PREFIXES = ("", "backbone.")


def read_mamba2(read: ConfigReader) -> DecoderConfig:
    """``Mamba2Config``."""
    heads, size = read.count("num_heads"), read.positive("head_dim")
    inner = read.positive("expand") * read.positive("hidden_size")
    if read.sound("num_heads", "head_dim", "expand", "hidden_size") and heads * size != inner:
        read.problem(f"num_heads = {heads}: {inner} channels of a mixer are not so many heads of {size}")
    if read.choice("hidden_act", ACTIVATIONS, "silu") != "silu":
        read.problem("hidden_act: recurrent layers are supported with silu only")
    read.refuse("rms_norm", (True,), "mixers without a norm are not supported")
    read.ignore("chunk_size")  # of the training
    mixer = Mamba2(
        heads=heads,
        head_dim=size,
        groups=read.positive("n_groups"),
        state=read.positive("state_size"),
        width=read.positive("conv_kernel"),
        eps=read.number("layer_norm_epsilon", least=0),
    )
    return read_recurrent(read, sound_mixer(read, mixer, heads="num_heads", groups="n_groups", width="conv_kernel"))


MAMBA2 = Architecture(
    model_types=("mamba2",),
    classes=("Mamba2ForCausalLM",),
    read=read_mamba2,
    tensors={**RECURRENT_TENSORS, **mixer_tensors("layers.{i}.mixer")},
    defaults={
        "vocab_size": 32768,
        "hidden_size": 4096,
        "num_hidden_layers": 64,
        "num_heads": 128,
        "head_dim": 64,
        "n_groups": 8,
        "state_size": 128,
        "conv_kernel": 4,
        "expand": 2,
        "layer_norm_epsilon": 1e-5,
    },
    prefixes=RECURRENT_PREFIXES,
)
