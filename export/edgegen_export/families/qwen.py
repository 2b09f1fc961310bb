"""Qwen2 and Qwen2.5: Llama with QKV biases. Qwen3: Llama with QK norm. Qwen3 MoE: Qwen3 with a mixture of experts.
Qwen2 MoE (Qwen 1.5 MoE): Qwen2 with experts, and one more that every token uses.

Qwen, the first: Llama with fused queries, keys and values, which have biases, under GPT-2's names. transformers does
not have it: its checkpoints bring code of their own, which is never run.
"""

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.rope import Rope
from edgegen_export.families.llama import BESIDE_MLP, DENSE_MLP, LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.experts import by_layer, expert_tensors, read_sparse_layers, with_experts, without_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM, joined_qkv, named

QWEN_DEFAULTS = {
    **LLAMA_DEFAULTS,
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
}


def read_qwen2(read: ConfigReader) -> DecoderConfig:
    """``Qwen2Config``: with ``use_sliding_window``, the layers from ``max_window_layers`` on have a sliding window."""
    config = read_llama(read)
    read.refuse("use_mrope", (False,), "positions in several dimensions are not supported")
    used, window, first = read.flag("use_sliding_window"), read_window(read), read.get("max_window_layers", int, 28)
    windowed = [used and window is not None and i >= first for i in range(config.num_layers)]
    return sliding(config, window if used else None, read_layer_types(read, config.num_layers, windowed))


def read_qwen3(read: ConfigReader) -> DecoderConfig:
    """``Qwen3Config``."""
    config = read_qwen2(read)
    return with_qk_norm(config)


QWEN2 = Architecture(
    model_types=("qwen2",),
    classes=("Qwen2ForCausalLM",),
    read=read_qwen2,
    tensors=LLAMA_TENSORS,
    defaults=QWEN_DEFAULTS,
)

QWEN3 = Architecture(
    model_types=("qwen3",),
    classes=("Qwen3ForCausalLM",),
    read=read_qwen3,
    tensors=LLAMA_TENSORS | QK_NORM,
    defaults={**QWEN_DEFAULTS, "head_dim": 128},
)


def read_qwen(read: ConfigReader) -> DecoderConfig:
    """``QWenConfig``. Beyond ``seq_length`` its code scales queries and rotations by the length of the text, for which
    a KV cache would have to be computed again: the context ends there."""
    attention = read_heads(read, size_key="kv_channels")
    read.ignore("max_position_embeddings", "use_dynamic_ntk", "use_logn_attn")  # of what is beyond it
    read.refuse("rotary_pct", (1.0,), "the whole head rotates in this family")
    read.refuse("no_bias", (True,), "only queries, keys and values have biases in this family")
    read.refuse("scale_attn_weights", (True,), "unscaled attention is not part of this family")
    # How it runs, which changes nothing but rounding.
    read.ignore("bf16", "fp16", "fp32", "onnx_safe", "use_flash_attn", "softmax_in_fp32")
    read.ignore("use_cache_quantization", "use_cache_kernel", "attn_dropout_prob", "emb_dropout_prob")
    width = read.positive("intermediate_size")
    if width % 2 and read.sound("intermediate_size"):
        read.problem(f"intermediate_size = {width}: an even number expected, of the gate and of what it gates")
    attention = replace(attention, rope=Rope(read.above_zero("rotary_emb_base"), attention.head_dim))
    layers = [Layer(attention, MLP(max(1, width // 2), "silu", gated=True))] * read.count("num_hidden_layers")
    norm = Norm("rms", read.number("layer_norm_epsilon", least=0))
    return read_decoder(read, layers, norm, attention.rope, positions_key="seq_length")


QWEN = Architecture(
    model_types=("qwen",),
    classes=("QWenLMHeadModel",),
    read=read_qwen,
    tensors={
        "embed.weight": "wte.weight",
        "layers.{i}.attn_norm.weight": "h.{i}.ln_1.weight",
        **joined_qkv("h.{i}.attn.c_attn"),
        "layers.{i}.attn.o.weight": "h.{i}.attn.c_proj.weight",
        "layers.{i}.mlp_norm.weight": "h.{i}.ln_2.weight",
        "layers.{i}.mlp.up.weight": "h.{i}.mlp.w1.weight",
        "layers.{i}.mlp.gate.weight": "h.{i}.mlp.w2.weight",
        "layers.{i}.mlp.down.weight": "h.{i}.mlp.c_proj.weight",
        "final_norm.weight": "ln_f.weight",
        **named("head", "lm_head"),
    },
    defaults={
        "vocab_size": 151936,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "layer_norm_epsilon": 1e-6,
        "kv_channels": 128,
        "rotary_emb_base": 10000,
        "seq_length": 8192,
        "intermediate_size": 22016,
    },
    prefixes=("", "transformer."),
    ignored=(r"h\.\d+\.attn\.(masked_bias|bias)",),
)


def read_qwen3_moe(read: ConfigReader) -> DecoderConfig:
    """``Qwen3MoeConfig``: with ``use_sliding_window``, every layer has a sliding window."""
    config = read_llama(read)
    read.ignore("max_window_layers")  # Qwen3's key, which these models' files have too
    used, window = read.flag("use_sliding_window"), read_window(read)
    config = sliding(config, window if used else None, [True] * config.num_layers)
    config = with_qk_norm(config)

    return read_qwen_experts(read, config)


def read_qwen_experts(
    read: ConfigReader, config: DecoderConfig, layers: Collection[int] | None = None
) -> DecoderConfig:
    """``config`` with experts in ``layers``, or else in those that the file says as Qwen's files do."""
    sparse = read_sparse_layers(read, config.num_layers) if layers is None else layers
    if not sparse:
        without_experts(read)
        return config
    width, normalized = read.positive("moe_intermediate_size"), read.flag("norm_topk_prob")
    return with_experts(read, config, "num_experts", normalized=normalized, width=width, layers=sparse)


def qwen3_moe_tensors(config: DecoderConfig) -> TensorMap:
    return {**BESIDE_MLP, **QK_NORM, **qwen_mlp_tensors(config)}


def qwen_mlp_tensors(
    config: DecoderConfig, shared: TensorMap = MappingProxyType({}), router: str = "gate"
) -> TensorMap:
    """The names of the MLPs, dense or of experts; ``shared``: those of a shared expert, beside the others."""
    if config.experts is None:
        return DENSE_MLP
    return by_layer(config, {**expert_tensors(config, "layers.{i}.mlp", router=router), **shared}, DENSE_MLP)


QWEN3_MOE = Architecture(
    model_types=("qwen3_moe",),
    classes=("Qwen3MoeForCausalLM",),
    read=read_qwen3_moe,
    tensors=qwen3_moe_tensors,
    defaults={
        **QWEN_DEFAULTS,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 24,
        "num_key_value_heads": 4,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
    },
    aliases={"num_local_experts": "num_experts"},  # as transformers 5 writes it
)


UNGATED: TensorMap = {
    f"layers.{{i}}.shared.{x}.weight": f"layers.{{i}}.mlp.shared_expert.{x}_proj.weight" for x in ("gate", "up", "down")
}
"""A shared expert without a gate of its own."""
SHARED: TensorMap = {**UNGATED, "layers.{i}.shared_gate.weight": "layers.{i}.mlp.shared_expert_gate.weight"}


def read_qwen2_moe(read: ConfigReader) -> DecoderConfig:
    """``Qwen2MoeConfig``."""
    config = read_llama(read)
    read.ignore("qkv_bias", "max_window_layers", "sliding_window")
    # transformers 4 and 5 take different layers.
    read.refuse("use_sliding_window", (False,), "which layers have a sliding window is not settled")
    if any(read_layer_types(read, config.num_layers, [])):
        read.problem("layer_types: sliding windows are not supported in this family")
    config = read_qwen_experts(read, config)
    shared = read.positive("shared_expert_intermediate_size")
    return config.each_experts(lambda own: replace(own, shared_width=shared, shared_gated=True))


QWEN2_MOE = Architecture(
    model_types=("qwen2_moe",),
    classes=("Qwen2MoeForCausalLM",),
    read=read_qwen2_moe,
    tensors=lambda config: {**BESIDE_MLP, **qwen_mlp_tensors(config, SHARED)},
    defaults={
        **QWEN3_MOE.defaults,
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_experts": 60,
        "num_experts_per_tok": 4,
    },
    aliases=QWEN3_MOE.aliases,
)
