"""Command R: parallel blocks with one LayerNorm without bias, RoPE on adjacent pairs, scaled logits. In Command R7B,
only layers with a sliding window have RoPE. Command R with experts: Command R7B, whose first layers may be dense, with
shared experts that may be averaged with the others."""

from collections.abc import Collection
from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.reading.experts import SHARED_EXPERTS, read_mlp_types, with_experts, without_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, read_window_pattern, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM

COHERE_DEFAULTS = {
    **LLAMA_DEFAULTS,
    "vocab_size": 256000,
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "logit_scale": 0.0625,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


def read_cohere(read: ConfigReader) -> DecoderConfig:
    """``CohereConfig``."""
    config = read_llama(read, norm=Norm("layer", read.number("layer_norm_eps", least=0)), interleaved=True)
    config = with_qk_norm(config, "each_head") if read.flag("use_qk_norm") else config
    return replace(config, block="parallel", logit_multiplier=read.number("logit_scale"))


def read_cohere2(read: ConfigReader) -> DecoderConfig:
    """``Cohere2Config``."""
    config = read_cohere(read)
    windowed = read_window_pattern(read, config.num_layers, period=4)
    return sliding(rotating(config, None, [not slides for slides in windowed]), read_window(read), windowed)


COHERE = Architecture(
    model_types=("cohere",),
    classes=("CohereForCausalLM",),
    read=read_cohere,
    tensors=LLAMA_TENSORS | QK_NORM,
    defaults=COHERE_DEFAULTS,
)

COHERE2 = Architecture(
    model_types=("cohere2",),
    classes=("Cohere2ForCausalLM",),
    read=read_cohere2,
    tensors=LLAMA_TENSORS,
    defaults={**COHERE_DEFAULTS, "sliding_window": 4096, "head_dim": 128},
)


_EXPERT_KEYS = ("num_shared_experts", "shared_expert_combination_strategy", "expert_selection_fn", "norm_topk_prob")


def read_cohere2_moe(read: ConfigReader) -> DecoderConfig:
    """``Cohere2MoeConfig``."""
    of_layer_norm, eps = read.number("layer_norm_eps", least=0), read.limit("rms_norm_eps")
    norm = Norm("layer", of_layer_norm) if eps is None else Norm("rms", eps)
    config = read_llama(read, norm=norm, interleaved=True)
    config = replace(config, block="parallel", logit_multiplier=read.number("logit_scale"))
    count, first = config.num_layers, read.get("first_k_dense_replace", int, 0)
    sparse = read_mlp_types(read, count, range(first, count))
    own, period = read.positive("prefix_dense_sliding_window_pattern"), read.positive("sliding_window_pattern")
    windowed = read_layer_types(
        read, count, [((i + 1) % own if i < first else (i - first + 1) % period) != 0 for i in range(count)]
    )
    # Dense layers that all see everything rotate nevertheless.
    rotates = [slides or (i not in sparse and own == 1) for i, slides in enumerate(windowed)]
    config = sliding(rotating(config, None, [not it for it in rotates]), read_window(read), windowed)
    width = config.mlp.width
    if dense := read.optional("prefix_dense_intermediate_size", int):
        config = config.each_mlp(lambda mlp: replace(mlp, width=dense))
    return _with_experts(read, config, sparse, width)


def _with_experts(read: ConfigReader, config: DecoderConfig, layers: Collection[int], width: int) -> DecoderConfig:
    if not layers:
        without_experts(read, *_EXPERT_KEYS)
        return config
    by_sigmoid = read.choice("expert_selection_fn", {"softmax": False, "sigmoid": True}, "softmax")
    adds_up = read.flag("norm_topk_prob")  # of sigmoids; a softmax over the chosen ones does anyway
    config = with_experts(read, config, "num_experts", normalized=adds_up or not by_sigmoid, width=width, layers=layers)
    averaged = read.choice("shared_expert_combination_strategy", {"average": True, "sum": False}, "average")
    count = read.get("num_shared_experts", int, 0)
    if count < 0:
        read.problem(f"num_shared_experts: must be at least 0, found {count}")
    half = 0.5 if averaged and count > 0 else 1.0
    routing = Routing("sigmoid" if by_sigmoid else "softmax", scaling=half)
    return config.each_experts(
        lambda own: replace(own, routing=routing, shared_width=width * max(0, count), shared_scaling=half)
    )


COHERE2_MOE = Architecture(
    model_types=("cohere2_moe",),
    classes=("Cohere2MoeForCausalLM",),
    read=read_cohere2_moe,
    tensors=lambda config: {**BESIDE_MLP, **qwen_mlp_tensors(config, SHARED_EXPERTS)},
    defaults={
        **{key: value for key, value in COHERE2.defaults.items() if key != "rms_norm_eps"},
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "prefix_dense_sliding_window_pattern": 1,
        "sliding_window_pattern": 4,
    },
    aliases={"num_local_experts": "num_experts"},
)
