"""Gemma 4's text models: Gemma 3 with larger heads and keys as values in layers of full attention, normalized values
and a factor of every layer. In E2B and E4B each layer has embeddings of its own, and the last layers read the keys and
values of earlier ones; in 26B each layer has experts beside its MLP. Of a Gemma 4 with vision and audio, the language
model is exported."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Attention, QKNorm
from edgegen_export.architecture.components.experts import Experts, Routing
from edgegen_export.architecture.components.mlp import MLP, Activation
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.per_layer import LayerScale, PerLayerEmbedding
from edgegen_export.architecture.config import DecoderConfig, Layer, Multiplier
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.gemma import SANDWICH_TENSORS, seeing
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.experts import limit_apart, read_counts, stacked_expert_tensors
from edgegen_export.reading.layer_types import read_sources, read_window, read_window_pattern, sliding
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.rope import read_rope
from edgegen_export.reading.tensor_names import PER_LAYER_TENSORS, QK_NORM


def read_gemma4(read: ConfigReader) -> DecoderConfig:
    """``Gemma4TextConfig``."""
    hidden, plain = read.positive("hidden_size"), read_heads(read, size_key="head_dim", kv_key="num_key_value_heads")
    positions, count = read.positive("max_position_embeddings"), read.count("num_hidden_layers")
    windowed = [*read_window_pattern(read, count, period=6)]
    windowed[-1] = False  # as the config class corrects it
    keys_as_values = read.flag("attention_k_eq_v")
    sizes = _sizes_of_full_layers(read, windowed, plain, keys_as_values)
    sources = read_sources(read, windowed, sizes)
    inner = read.positive("intermediate_size")
    wider = 2 * inner if read.flag("use_double_wide_mlp") else None
    local = read_rope(read, plain.head_dim, positions, layer_type="sliding_attention")
    norm = Norm("rms", read.number("rms_norm_eps", least=0))
    activation, vocabulary = (
        read.choice("hidden_activation", ACTIVATIONS, "gelu_pytorch_tanh"),
        read.positive("vocab_size"),
    )
    experts = _experts(
        read, inner, activation, len(windowed), wide=wider is not None and any(s is not None for s in sources)
    )
    extras = (*_per_layer(read, hidden, vocabulary, activation), LayerScale())
    layers: list[Layer] = []
    for has_window, (size, groups), source in zip(windowed, sizes, sources, strict=True):
        attention = replace(
            plain,
            kv_heads=groups,
            head_dim=size,
            scale=1.0,
            rope=local if has_window else read_rope(read, size, positions, proportional=True),
            source=source,
            value_is_key=keys_as_values and not has_window and source is None,
            qk_norm=QKNorm(norm, over="head"),
            value_norm=norm,
        )
        width = wider if wider and source is not None else inner
        layers.append(Layer(attention, experts or MLP(width, activation, gated=True), extras=extras))
    read.ignore("attention_bias")  # the checkpoint's tensors show it
    read.refuse("use_bidirectional_attention", ("vision",), "attention to later positions is not causal")
    read.ignore("use_bidirectional_attention")
    config = replace(
        read_decoder(read, layers, norm),
        block="sandwich",
        logit_softcap=read.limit("final_logit_softcapping"),
        embedding_multiplier=hidden**0.5,
        multipliers=(Multiplier("router_norm", gives=hidden**-0.5),) if experts else (),
    )
    return sliding(config, read_window(read), windowed)


def _sizes_of_full_layers(
    read: ConfigReader, windowed: list[bool], common: Attention, keys_as_values: bool
) -> list[tuple[int, int]]:
    """(head size, key heads) of each layer: by ``per_layer_config``, which newer files have, or by
    ``global_head_dim`` and, where keys are values too, ``num_global_key_value_heads``."""
    heads, plain = common.heads, (common.head_dim, common.kv_heads)
    listed = read.has("per_layer_config")  # empty where all layers are alike
    by_layer = read.inner("per_layer_config")
    global_size = read.positive("global_head_dim", 512)
    global_heads = read.optional("num_global_key_value_heads", int)
    result = [plain] * len(windowed)
    for i, has_window in enumerate(windowed):
        if listed:
            size, groups = plain
            if by_layer is not None and (own := by_layer.of_layer(i)) is not None:
                size, groups = own.positive("head_dim", size), own.positive("num_key_value_heads", groups)
        elif has_window:
            continue
        else:
            size, groups = global_size, (keys_as_values and global_heads) or plain[1]
        if groups < 1 or heads % groups:
            read.problem(f"{groups} key heads of layer {i}: they must divide num_attention_heads = {heads}")
            groups = heads
        result[i] = (read.head_dim(heads, size, 0, "hidden_size", "num_attention_heads"), groups)
    return result


def _per_layer(read: ConfigReader, hidden: int, vocabulary: int, activation: Activation) -> list[PerLayerEmbedding]:
    """The embeddings of each layer, if there are any."""
    width = read.get("hidden_size_per_layer_input", int, 0)
    rows = read.get("vocab_size_per_layer_input", int, vocabulary)
    if not width:
        return []
    if width < 0:
        read.problem(f"hidden_size_per_layer_input: must be positive, found {width}")
        return []
    if rows < vocabulary:
        read.problem(f"vocab_size_per_layer_input = {rows}: some of the vocabulary of {vocabulary} would have no row")
    return [PerLayerEmbedding(width, rows, width**0.5, hidden**-0.5, 2**-0.5, activation)]


def _experts(read: ConfigReader, inner: int, activation: Activation, layers: int, *, wide: bool) -> Experts | None:
    """The experts of each layer, if there are any; its MLP, which every token uses, is their shared one."""
    if not read.flag("enable_moe_block"):
        read.ignore("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
        return None
    if wide:
        read.problem("use_double_wide_mlp: MLPs of two widths are not supported beside experts")
    width = read.positive("moe_intermediate_size")
    read.agree("expert_intermediate_size", width, "moe_intermediate_size")
    count, per_token = read_counts(read, "num_experts", "top_k_experts")
    limit_apart(read, "num_experts", count, layers)
    return Experts(
        count,
        per_token,
        normalized=True,
        width=width,
        activation=activation,
        shared_width=inner,
        routing=Routing(expert_scales=True),
        own_norms=True,
    )


GEMMA4_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 262144,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262144,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    },
}

UNIFIED_DEFAULTS: Mapping[str, Any] = {
    **GEMMA4_DEFAULTS,
    "max_position_embeddings": 262144,
    "sliding_window": 1024,
    "hidden_size_per_layer_input": 0,
}
"""Of ``Gemma4UnifiedTextConfig``, which has neither experts nor embeddings of layers."""

GEMMA4_TENSORS = {
    **SANDWICH_TENSORS,
    **QK_NORM,
    "layers.{i}.scale": "layers.{i}.layer_scalar",
    **PER_LAYER_TENSORS,
}

_BESIDE_MLP = {name: theirs for name, theirs in GEMMA4_TENSORS.items() if ".mlp." not in name}


def tensors(config: DecoderConfig) -> TensorMap:
    if config.experts is None:
        return GEMMA4_TENSORS
    layer = "layers.{i}"
    return {
        **_BESIDE_MLP,
        **{f"{layer}.shared.{x}.weight": f"{layer}.mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
        f"{layer}.shared_post_norm.weight": f"{layer}.post_feedforward_layernorm_1.weight",
        f"{layer}.expert_norm.weight": f"{layer}.pre_feedforward_layernorm_2.weight",
        f"{layer}.expert_post_norm.weight": f"{layer}.post_feedforward_layernorm_2.weight",
        f"{layer}.router_norm.weight": f"{layer}.router.scale",
        **stacked_expert_tensors(config, layer, router="router.proj.weight"),
        f"{layer}.mlp.router.expert_scales": f"{layer}.router.per_expert_scale",
    }


GEMMA4 = Architecture(
    model_types=("gemma4_text",),
    classes=("Gemma4ForCausalLM",),
    read=read_gemma4,
    tensors=tensors,
    defaults=GEMMA4_DEFAULTS,
)

GEMMA4_UNIFIED = replace(
    GEMMA4,
    model_types=("gemma4_unified_text",),
    classes=("Gemma4UnifiedForCausalLM",),
    defaults=UNIFIED_DEFAULTS,
)

GEMMA4_UNIFIED_WITH_VISION = seeing(GEMMA4_UNIFIED, "gemma4_unified", "Gemma4UnifiedForConditionalGeneration")
GEMMA4_WITH_VISION = seeing(GEMMA4, "gemma4", "Gemma4ForConditionalGeneration")
