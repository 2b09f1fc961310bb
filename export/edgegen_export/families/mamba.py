"""Mamba and Falcon Mamba: layers that are a Mamba-1 mixer alone; and what families that have such mixers share."""

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.mamba1 import Mamba1
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.mamba2 import RECURRENT_PREFIXES, RECURRENT_TENSORS, read_recurrent
from edgegen_export.reading.mixers import sound_width
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.tensor_names import joined, named


def read_rank(read: ConfigReader, key: str) -> int:
    """The numbers that time steps are projected from: a sixteenth of the hidden size, unless the file says another."""
    if read.value(key) in (None, "auto"):
        return -(-read.positive("hidden_size") // 16)
    return read.positive(key)


def read_mamba1(read: ConfigReader, config: DecoderConfig, norm: Norm | None = None) -> Mamba1:
    """The mixer of ``config``'s layers without attention; ``norm``: of what it selects."""
    if config.mlp.activation != "silu":
        read.problem("hidden_act: recurrent layers are supported with silu only")
    return Mamba1(
        inner=read.positive("mamba_expand") * config.hidden_size,
        state=read.positive("mamba_d_state"),
        rank=read_rank(read, "mamba_dt_rank"),
        width=sound_width(read, "mamba_d_conv"),
        norm=norm,
    )


def mamba1_tensors(module: str) -> TensorMap:
    """The tensor map of Mamba-1 mixers, ``module`` the checkpoint's name of one."""
    ours = "layers.{i}.mamba"
    return {
        **joined(f"{module}.in_proj", [f"{ours}.{name}" for name in Mamba1.parts]),
        **joined(f"{module}.x_proj", [f"{ours}.{name}" for name in Mamba1.selecting]),
        **named(f"{ours}.kernel", f"{module}.conv1d"),
        **named(f"{ours}.dt", f"{module}.dt_proj"),
        **named(f"{ours}.out", f"{module}.out_proj"),
        f"{ours}.rate": f"{module}.A_log",
        f"{ours}.skip": f"{module}.D",
    }


def read_falcon_mamba(read: ConfigReader) -> DecoderConfig:
    """``FalconMambaConfig``."""
    norm = Norm("rms", read.number("mixer_rms_eps", least=0), weight=False)
    return read_recurrent(read, _mixer(read, norm))


def _mixer(read: ConfigReader, norm: Norm | None) -> Mamba1:
    stated = "intermediate_size" if read.has("intermediate_size") else "expand"
    inner = read.positive(stated) * (read.positive("hidden_size") if stated == "expand" else 1)
    if read.choice("hidden_act", ACTIVATIONS, "silu") != "silu":
        read.problem("hidden_act: recurrent layers are supported with silu only")
    read.ignore("expand", "use_mambapy", "use_falcon_mambapy", "use_associative_scan")
    read.ignore(*(f"time_step_{key}" for key in ("floor", "init_scheme", "max", "min", "scale")))  # of the training
    return Mamba1(
        inner=inner,
        state=read.positive("state_size"),
        rank=read_rank(read, "time_step_rank"),
        width=sound_width(read, "conv_kernel"),
        norm=norm,
    )


_TENSORS: TensorMap = {**RECURRENT_TENSORS, **mamba1_tensors("layers.{i}.mixer")}
_DEFAULTS = {
    "vocab_size": 50280,
    "hidden_size": 768,
    "num_hidden_layers": 32,
    "state_size": 16,
    "conv_kernel": 4,
    "expand": 2,
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}

MAMBA = Architecture(
    model_types=("mamba",),
    classes=("MambaForCausalLM",),
    read=lambda read: read_recurrent(read, _mixer(read, None)),
    tensors=_TENSORS,
    defaults=_DEFAULTS,
    prefixes=RECURRENT_PREFIXES,
)

FALCON_MAMBA = Architecture(
    model_types=("falcon_mamba",),
    classes=("FalconMambaForCausalLM",),
    read=read_falcon_mamba,
    tensors=_TENSORS,
    defaults={**_DEFAULTS, "mixer_rms_eps": 1e-6},
    prefixes=RECURRENT_PREFIXES,
)
