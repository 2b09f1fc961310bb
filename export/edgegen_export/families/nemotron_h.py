"""Nemotron-H: layers that are a Mamba-2 mixer, attention without positions, an MLP of a squared ReLU, or such MLPs as
experts, one of them.

transformers 5 holds time steps of prompts, not of single tokens, above ``time_step_min``; training and this do not.
"""

from dataclasses import replace
from typing import cast

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Experts, Routing
from edgegen_export.architecture.components.mamba2 import Mamba2
from edgegen_export.architecture.components.mlp import MLP, Activation
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.draft_head import DraftHead
from edgegen_export.architecture.tensor_layouts import Scattered
from edgegen_export.families.mamba2 import mixer_tensors, sound_mixer
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.experts import by_layer, limit_apart, read_counts, read_groups
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.tensor_names import named, named_parts

_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
_KINDS = {
    "linear_attention": "mixer",
    "mamba": "mixer",
    "full_attention": "attention",
    "attention": "attention",
    "mlp": "mlp",
    "moe": "experts",
}


def read_nemotron_h(read: ConfigReader) -> DecoderConfig:
    """``NemotronHConfig``."""
    attention = read_heads(read, size_key="head_dim", kv_key="num_key_value_heads")
    activation, found = read.choice("mlp_hidden_act", ACTIVATIONS, "relu2"), _layer_kinds(read)
    kinds = {
        "mixer": Layer(mixer=_mixer(read)),
        "attention": Layer(attention),
        "mlp": Layer(mlp=MLP(read.positive("intermediate_size"), activation)),
        "experts": Layer(mlp=_experts(read, activation, found.count("experts"))),
    }
    if "attention" not in found:
        read.problem("layers_block_type: at least one layer must have attention")
    read.refuse("sliding_window", (), "windows are not supported")
    read.ignore("num_logits_to_keep")
    read.ignore("attention_bias", "mlp_bias", "use_bias", "use_conv_bias", "mamba_proj_bias")  # the tensors show them
    read.ignore("chunk_size", "expand", "use_mamba_kernels", "mamba_ssm_cache_dtype")
    read.ignore("residual_in_fp32", "rescale_prenorm_residual", "hidden_dropout")
    read.ignore("norm_eps", "rms_norm_eps", "num_query_groups")  # other names of sizes, not read
    norm = Norm("rms", read.number("layer_norm_epsilon", least=0))
    return replace(read_decoder(read, [kinds[kind] for kind in found], norm), block="single")


def _layer_kinds(read: ConfigReader) -> tuple[str, ...]:
    """Of each layer, by ``layers_block_type``, or by the letters of ``hybrid_override_pattern``."""
    pattern = read.get("hybrid_override_pattern", str, "")
    count = read.count("num_hidden_layers") if read.has("num_hidden_layers") else 0
    listed = cast("list[object] | None", read.optional("layers_block_type", list))
    if listed is not None:
        kinds = read.per_layer("layers_block_type", _KINDS, count or len(listed)) or ()
    else:
        if not pattern or pattern.strip("".join(_LETTERS)):
            known = ", ".join(repr(letter) for letter in _LETTERS)
            read.problem(f"hybrid_override_pattern: a letter of {known} per layer expected, found {pattern!r}")
            return ("attention",)
        kinds = tuple(_KINDS[_LETTERS[letter]] for letter in pattern)
        if count not in (0, len(kinds)):
            read.problem(f"hybrid_override_pattern: {count} letters expected, found {len(kinds)}: {pattern!r}")
    return kinds or ("attention",)


def _experts(read: ConfigReader, activation: Activation, layers: int) -> Experts | None:
    """The experts of ``layers`` layers; None without any."""
    read.ignore("output_router_logits", "router_aux_loss_coef", "moe_shared_expert_overlap")
    if not layers:
        read.ignore("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size")
        read.ignore("moe_shared_expert_intermediate_size", "moe_latent_size", "routed_scaling_factor")
        read.ignore("n_group", "topk_group", "norm_topk_prob")
        return None
    count, per_token = read_counts(read, "n_routed_experts")
    limit_apart(read, "n_routed_experts", count, layers)
    groups, chosen_groups = read_groups(read, "n_routed_experts", count, per_token)
    read.refuse("n_shared_experts", (1,), "what several shared experts compute is not settled")
    return Experts(
        count,
        per_token,
        read.flag("norm_topk_prob"),
        read.positive("moe_intermediate_size"),
        shared_width=read.positive("moe_shared_expert_intermediate_size"),
        activation=activation,
        gated=False,
        routing=Routing(
            "sigmoid",
            choice_bias=True,
            groups=groups,
            chosen_groups=chosen_groups,
            epsilon=1e-20,
            scaling=read.above_zero("routed_scaling_factor"),
        ),
        latent=read.positive("moe_latent_size") if read.has("moe_latent_size") else None,
    )


def _mixer(read: ConfigReader) -> Mamba2:
    if read.choice("mamba_hidden_act", ACTIVATIONS, "silu") != "silu":
        read.problem("mamba_hidden_act: recurrent layers are supported with silu only")
    mixer = Mamba2(
        heads=read.count("mamba_num_heads"),
        head_dim=read.positive("mamba_head_dim"),
        groups=read.positive("n_groups"),
        state=read.positive("ssm_state_size"),
        width=read.positive("conv_kernel"),
        eps=read.number("layer_norm_epsilon", least=0),
    )
    return sound_mixer(read, mixer, heads="mamba_num_heads", groups="n_groups", width="conv_kernel")


def _draft_layers(config: DecoderConfig) -> tuple[Layer, ...]:
    """Attention, and after it experts as the model's last, or an MLP where it has none."""
    after = [layer for layer in config.layers if layer.experts] or [layer for layer in config.layers if layer.mlp]
    return config.layers[max(config.attentions)], *after[-1:]


DRAFT_HEAD = DraftHead(
    "mtp.layers.{i}.",
    {
        "draft_in": "mtp.layers.0.eh_proj",
        "draft_embed_norm": "mtp.layers.0.enorm",
        "draft_hidden_norm": "mtp.layers.0.hnorm",
        "final_norm": "mtp.layers.1.final_layernorm",
    },
    of=_draft_layers,
)

_MIXER = "layers.{i}.mixer"
_TENSORS: TensorMap = {
    "embed.weight": "embeddings.weight",
    "layers.{i}.norm.weight": "layers.{i}.norm.weight",
    **mixer_tensors(_MIXER),
    **named_parts("layers.{i}.attn", _MIXER, {x: f"{x}_proj" for x in "qkvo"}),
    "final_norm.weight": "norm_f.weight",
    "head.weight": "lm_head.weight",
}
_MLP: TensorMap = {
    **named_parts("layers.{i}.mlp", _MIXER, {x: f"{x}_proj" for x in ("up", "down")}),
}


def tensors(config: DecoderConfig) -> TensorMap:
    if config.experts is None:
        return {**_TENSORS, **_MLP}
    experts: TensorMap = {
        "layers.{i}.mlp.router.weight": f"{_MIXER}.gate.weight",
        "layers.{i}.mlp.router.choice_bias": f"{_MIXER}.gate.e_score_correction_bias",
        **named_parts("layers.{i}.shared", f"{_MIXER}.shared_experts", {x: f"{x}_proj" for x in ("up", "down")}),
        **named("layers.{i}.latent_in", f"{_MIXER}.fc1_latent_proj"),
        **named("layers.{i}.latent_out", f"{_MIXER}.fc2_latent_proj"),
        **{
            f"layers.{{i}}.mlp.{x}.weight": Scattered(f"{_MIXER}.experts.{{n}}.{x}_proj.weight", config.experts.count)
            for x in ("up", "down")
        },
    }
    return {**_TENSORS, **by_layer(config, experts, _MLP)}


NEMOTRON_H = Architecture(
    model_types=("nemotron_h",),
    classes=("NemotronHForCausalLM",),
    read=read_nemotron_h,
    tensors=tensors,
    defaults={
        "vocab_size": 131072,
        "hidden_size": 4096,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "mamba_num_heads": 128,
        "mamba_head_dim": 64,
        "n_groups": 8,
        "ssm_state_size": 128,
        "conv_kernel": 4,
        "layer_norm_epsilon": 1e-5,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 7688,
        "moe_shared_expert_intermediate_size": 7688,
        "routed_scaling_factor": 1.0,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
    },
    prefixes=("", "model.", "backbone."),
    heads=(r"mtp\..*",),
    draft_head=DRAFT_HEAD,
    aliases={
        "attention_head_dim": "head_dim",
        "layer_types": "layers_block_type",
        "num_local_experts": "n_routed_experts",
    },
)
