"""GPT-BigCode (SantaCoder, StarCoder): GPT-2 with multi-query attention, matrices stored as [out, in]."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.gpt2 import GPT2_ALIASES, GPT2_DEFAULTS, read_gpt2
from edgegen_export.reading.tensor_names import fused_qkv, named


def read_gpt_bigcode(read: ConfigReader) -> DecoderConfig:
    """``GPTBigCodeConfig``."""
    config = read_gpt2(read)
    if read.flag("multi_query", True):
        config = config.each_attention(lambda own: replace(own, kv_heads=1))
    read.agree("num_key_value_heads", config.attention.kv_heads, "multi_query")
    # Softmax precision and memory reservation of other runtimes.
    read.ignore(
        "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner", "validate_runner_input"
    )
    read.ignore("pad_key_length", "pre_allocate_kv_cache", "max_sequence_length", "max_batch_size")
    return config


def tensors(config: DecoderConfig) -> TensorMap:
    return {
        "embed.weight": "wte.weight",
        "positions.weight": "wpe.weight",
        **named("layers.{i}.attn_norm", "h.{i}.ln_1"),
        **fused_qkv("h.{i}.attn.c_attn", config.attention.kv_heads),
        **named("layers.{i}.attn.o", "h.{i}.attn.c_proj"),
        **named("layers.{i}.mlp_norm", "h.{i}.ln_2"),
        **named("layers.{i}.mlp.up", "h.{i}.mlp.c_fc"),
        **named("layers.{i}.mlp.down", "h.{i}.mlp.c_proj"),
        **named("final_norm", "ln_f"),
        "head.weight": "lm_head.weight",
    }


GPT_BIGCODE = Architecture(
    model_types=("gpt_bigcode",),
    classes=("GPTBigCodeForCausalLM",),
    read=read_gpt_bigcode,
    tensors=tensors,
    defaults={**GPT2_DEFAULTS, "activation_function": "gelu_pytorch_tanh"},
    prefixes=("", "transformer."),
    ignored=(r"h\.\d+\.attn\.bias", r"h\.\d+\.attn\.masked_bias"),
    aliases=GPT2_ALIASES,
)
