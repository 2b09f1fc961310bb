"""Zamba2: Mamba-2 mixers; before some of them, one of a few blocks of attention and an MLP that they share, with
low-rank updates of each use."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.mamba2 import Mamba2
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.components.shared_block import (
    HIGH_ATTENTION,
    LOW_ATTENTION,
    SharedAttention,
    SharedMLP,
    SharedUse,
)
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.mamba2 import mixer_tensors, sound_mixer
from edgegen_export.reading.decoder import read_decoder
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.passes import of_layer
from edgegen_export.reading.rope import read_rope
from edgegen_export.reading.tensor_names import joined, named

_KINDS = {"mamba": False, "linear_attention": False, "hybrid": True}
_HYBRID = [*range(6, 43, 6), 47, 51]
"""The layers with a shared block in the models whose config does not say them."""


def read_zamba2(read: ConfigReader) -> DecoderConfig:
    """``Zamba2Config``."""
    hidden, count = read.positive("hidden_size"), read.count("num_hidden_layers")
    kinds = read.per_layer("layers_block_type", _KINDS, count) or [i in _HYBRID for i in range(count)]
    hybrid = [i for i, it in enumerate(kinds) if it]
    read.agree("hybrid_layer_ids", hybrid, "layers_block_type")
    read.refuse("use_long_context", (False,), "its rotation for long contexts is not supported")
    if not hybrid:
        read.problem("layers_block_type: at least one layer must have attention")
    heads, inner = read.count("num_attention_heads"), read.optional("intermediate_size", int) or 4 * hidden
    size = read.head_dim(heads, None, 2 * hidden, "hidden_size", "num_attention_heads")
    read.refuse("num_key_value_heads", (heads,), "every query head has keys and values of its own")
    read.agree("attention_head_dim", size, "2 hidden_size / num_attention_heads")
    rope = read_rope(read, size, read.positive("max_position_embeddings"))
    rope = rope if read.flag("use_mem_rope") else None
    activation = read.choice("hidden_act", ACTIVATIONS, "gelu")
    mamba = Layer(mixer=_mixer(read, hidden))
    use = SharedUse(
        read.positive("adapter_rank"),
        inner,
        2 * hidden if read.flag("use_shared_attention_adapter") else None,
    )
    shared = replace(
        mamba,
        attention=SharedAttention(heads, heads, size, (size / 2) ** -0.5, rope=rope),
        mlp=SharedMLP(inner, activation, gated=True),
        extras=(use,),
    )
    blocks, layers = read.positive("num_mem_blocks"), [shared if it else mamba for it in kinds]
    for number, at in enumerate(hybrid[blocks:], blocks):
        assert mamba.mixer, "every layer has a mixer"
        layers[at] = replace(shared, repeats=hybrid[number % blocks], own=(mamba.mixer, use))
    layers[0] = replace(layers[0], extras=(*layers[0].extras, PassStart("copy", normed=False)))
    read.ignore("add_bias_linear", "use_conv_bias")  # the checkpoint's tensors show them
    read.ignore("num_logits_to_keep", "use_mamba_kernels", "use_mem_eff_path", "kv_channels", "num_query_groups")
    read.ignore("attention_hidden_size", "mamba_headdim")  # what other keys say
    config = read_decoder(read, layers, Norm("rms", read.number("rms_norm_eps", least=0)), rope)
    return replace(config, block="shared_before_mixer")


def _mixer(read: ConfigReader, hidden: int) -> Mamba2:
    heads, inner = read.count("n_mamba_heads"), read.positive("mamba_expand") * hidden
    if read.sound("n_mamba_heads", "mamba_expand", "hidden_size") and inner % heads:
        read.problem(f"n_mamba_heads = {heads}: must divide the {inner} channels of a mixer")
    read.ignore("chunk_size")  # of the training
    mixer = Mamba2(
        heads,
        max(1, inner // heads),
        read.positive("mamba_ngroups"),
        read.positive("mamba_d_state"),
        read.positive("mamba_d_conv"),
        1e-5,
        least_step=read.number("time_step_min", least=0),
    )
    return sound_mixer(read, mixer, heads="n_mamba_heads", groups="mamba_ngroups", width="mamba_d_conv")


_SHARED: TensorMap = {
    **{f"layers.{{i}}.attn.{x}.weight": f"layers.{{i}}.self_attn.{x}_proj.weight" for x in "qkvo"},
    "layers.{i}.attn_norm.weight": "layers.{i}.input_layernorm.weight",
    "layers.{i}.mlp_norm.weight": "layers.{i}.pre_ff_layernorm.weight",
    **joined("layers.{i}.feed_forward.gate_up_proj", ("layers.{i}.mlp.gate", "layers.{i}.mlp.up")),
    **named("layers.{i}.mlp.down", "layers.{i}.feed_forward.down_proj"),
}


def _updates(number: int) -> TensorMap:
    """Of the use of this number, which are in the block that it uses."""
    return {
        **{
            f"layers.{{i}}.{ours}.weight": f"layers.{{i}}.self_attn.linear_{x}_adapter_list.{number}.{part}.weight"
            for part, names in enumerate((LOW_ATTENTION, HIGH_ATTENTION))
            for x, ours in zip("qkv", names, strict=True)
        },
        **{
            f"layers.{{i}}.low.mlp_{part}.weight": (
                f"layers.{{i}}.feed_forward.gate_up_proj_adapter_list.{number}.{place}.weight"
            )
            for place, part in enumerate("ab")
        },
    }


_MAMBA: TensorMap = {
    "layers.{i}.norm.weight": "layers.{i}.input_layernorm.weight",
    **mixer_tensors("layers.{i}.mamba"),
}


def tensors(config: DecoderConfig) -> TensorMap:
    found: TensorMap = {
        "embed.weight": "embed_tokens.weight",
        "final_norm.weight": "final_layernorm.weight",
        "head.weight": "lm_head.weight",
    }
    number = 0
    for i, layer in enumerate(config.layers):
        if layer.attention is None:
            found = {**found, **of_layer(_MAMBA, i, f"layers.{i}")}
            continue
        block = f"layers.{i if layer.repeats is None else layer.repeats}.shared_transformer"
        found = {
            **found,
            **of_layer(_MAMBA, i, f"layers.{i}.mamba_decoder"),
            f"layers.{i}.linear.weight": f"layers.{i}.linear.weight",
            **(of_layer(_SHARED, i, block) if layer.repeats is None else {}),
            **of_layer(_updates(number), i, block),
        }
        number += 1
    return found


ZAMBA2 = Architecture(
    model_types=("zamba2",),
    classes=("Zamba2ForCausalLM",),
    read=read_zamba2,
    tensors=tensors,
    defaults={
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "hidden_size": 2560,
        "num_hidden_layers": 54,
        "mamba_d_state": 64,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_ngroups": 1,
        "time_step_min": 0.001,
        "n_mamba_heads": 8,
        "num_attention_heads": 32,
        "num_mem_blocks": 1,
        "adapter_rank": 128,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
)
