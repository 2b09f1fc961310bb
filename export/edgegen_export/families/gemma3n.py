"""Gemma 3n's text models: Gemma 3 with several residual streams, a learned residual, embeddings of each layer, sparse
MLPs in the first layers, and last layers that read the keys and values of earlier ones. Of a Gemma 3n with vision and
audio, the language model is exported."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any, cast

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.altup import AltUp
from edgegen_export.architecture.components.attention import QKNorm
from edgegen_export.architecture.components.laurel import Laurel
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.per_layer import PerLayerEmbedding
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.gemma import SANDWICH_TENSORS, seeing
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.layer_types import read_sources, read_window, read_window_pattern, rotating, sliding
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.rope import read_rope
from edgegen_export.reading.tensor_names import PER_LAYER_TENSORS, QK_NORM

_SPARSE_LAYERS = 10
"""Layers with sparse MLPs where the file does not say which, in a model that has more."""


def read_gemma3n(read: ConfigReader) -> DecoderConfig:
    """``Gemma3nTextConfig``."""
    hidden, plain = read.positive("hidden_size"), read_heads(read, size_key="head_dim", kv_key="num_key_value_heads")
    positions, count = read.positive("max_position_embeddings"), read.count("num_hidden_layers")
    windowed = read_window_pattern(read, count, period=5)
    sources = read_sources(read, windowed, [(plain.head_dim, plain.kv_heads)] * count)
    widths = read.sizes("intermediate_size", count)
    rope = read_rope(read, plain.head_dim, positions)
    norm = Norm("rms", read.number("rms_norm_eps", least=0))
    qk_norm = QKNorm(norm, over="head")
    attention = replace(plain, scale=1.0, rope=rope, qk_norm=qk_norm, value_norm=norm)
    activation = read.choice("hidden_activation", ACTIVATIONS, "gelu_pytorch_tanh")
    read.ignore("attention_bias")  # the checkpoint's tensors show it
    read.ignore("altup_lr_multiplier", "query_pre_attn_scalar")  # in published files; no code of the model reads them
    width, rows = read.positive("hidden_size_per_layer_input"), read.positive("vocab_size_per_layer_input")
    own = PerLayerEmbedding(width, rows, width**0.5, hidden**-0.5, 2**-0.5, activation)
    extras = own, Laurel(read.positive("laurel_rank")), _altup(read)
    layers = tuple(
        Layer(replace(attention, source=source), MLP(width, activation, gated=True, cutoff=cutoff), extras=extras)
        for width, source, cutoff in zip(widths, sources, _cutoffs(read, count), strict=True)
    )
    config = replace(
        read_decoder(read, layers, norm, rope),
        block="sandwich_with_laurel",
        logit_softcap=read.limit("final_logit_softcapping"),
        embedding_multiplier=hidden**0.5,
    )
    local = read_rope(read, plain.head_dim, positions, theta_key="rope_local_base_freq", layer_type="sliding_attention")
    return sliding(rotating(config, local, windowed), read_window(read), windowed)


def _altup(read: ConfigReader) -> AltUp:
    """The residual streams."""
    streams, active = read.count("altup_num_inputs"), read.get("altup_active_idx", int, 0)
    if streams < 2:
        read.problem(f"altup_num_inputs = {streams}: at least 2 residual streams expected")
        streams = 2
    if not 0 <= active < streams:
        read.problem(f"altup_active_idx = {active}: one of {streams} residual streams expected, counted from 0")
        active = 0
    return AltUp(streams, active, read.flag("altup_correct_scale", True), read.limit("altup_coef_clip"))


def _cutoffs(read: ConfigReader, layers: int) -> tuple[float | None, ...]:
    """By how many deviations each layer's gate must be above its mean, so that about the share of its numbers that the
    file says is cut off; None where all count."""
    key = "activation_sparsity_pattern"
    shares = cast("list[Any] | None", read.optional(key, list))
    if shares is None:
        sparse = _SPARSE_LAYERS if layers > _SPARSE_LAYERS else 0
        shares = [0.95] * sparse + [0.0] * (layers - sparse)
    sound = all(isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 1 for share in shares)
    if len(shares) != layers or not sound:
        read.problem(f"{key}: {layers} numbers from 0 to less than 1 expected, found {len(shares)}: {shares!r}")
        return (None,) * layers
    return tuple(NormalDist().inv_cdf(share) if share else None for share in shares)


GEMMA3N_DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 262400,
    "vocab_size_per_layer_input": 262144,
    "hidden_size": 2048,
    "hidden_size_per_layer_input": 256,
    "intermediate_size": 16384,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 512,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
    "altup_num_inputs": 4,
    "altup_coef_clip": 120.0,
    "num_kv_shared_layers": 15,
    "laurel_rank": 64,
}

_ALTUP = {
    "norm.weight": "router_norm.weight",
    "router.weight": "modality_router.weight",
    "predict.weight": "prediction_coefs.weight",
    "correct.weight": "correction_coefs.weight",
    "scale.weight": "correct_output_scale",
}
_LAUREL = {"left": "linear_left", "right": "linear_right", "norm": "post_laurel_norm"}


def gemma3n_tensors(config: DecoderConfig) -> TensorMap:
    """Streams have projections of their own, which are numbered."""
    others = range(config.only(AltUp).streams - 1)
    return {
        **SANDWICH_TENSORS,
        **QK_NORM,
        **PER_LAYER_TENSORS,
        **{f"altup_in.{k}.weight": f"altup_projections.{k}.weight" for k in others},
        **{f"altup_out.{k}.weight": f"altup_unembed_projections.{k}.weight" for k in others},
        **{f"layers.{{i}}.altup.{ours}": f"layers.{{i}}.altup.{theirs}" for ours, theirs in _ALTUP.items()},
        **{
            f"layers.{{i}}.laurel.{ours}.weight": f"layers.{{i}}.laurel.{theirs}.weight"
            for ours, theirs in _LAUREL.items()
        },
    }


_RENAMED = "per_layer_model.language_model_projection.weight"
"""How transformers 4 writes a text model's ``per_layer_model_projection``: in every name it replaces ``model`` by
``model.language_model``."""


GEMMA3N = Architecture(
    model_types=("gemma3n_text",),
    classes=("Gemma3nForCausalLM",),
    read=read_gemma3n,
    tensors=gemma3n_tensors,
    defaults=GEMMA3N_DEFAULTS,
    prefixes=("", "model.", "model.language_model."),
    variant=(_RENAMED, lambda config, _: {**gemma3n_tensors(config), "per_layer_in.weight": _RENAMED}),
)

GEMMA3N_WITH_VISION = seeing(GEMMA3N, "gemma3n", "Gemma3nForConditionalGeneration")
