"""GPT-2: learned positions, LayerNorm, fused QKV stored as [in, out], one GELU MLP, tied head. GPT (the first): GPT-2's
tensors, and norms after the sum with each sublayer. GPT-BigCode (SantaCoder, StarCoder): GPT-2 with multi-query
attention, matrices stored as [out, in]."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.components.mlp import MLP, Activation
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated, TensorLayout, transposed
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.parts import ACTIVATIONS, layer_norm
from edgegen_export.reading.tensor_names import fused_qkv, named


def read_gpt2(read: ConfigReader) -> DecoderConfig:
    """``GPT2Config``."""
    attention = read_heads(read, hidden_key="n_embd", heads_key="n_head")
    scale = attention.scale if read.flag("scale_attn_weights", True) else 1.0
    by_layer = read.flag("scale_attn_by_inverse_layer_idx")
    # This one changes the order of scaling in float32, which matters for rounding only.
    read.ignore("reorder_and_upcast_attn", "n_ctx")
    read.ignore("n_special", "predict_special_tokens", "line_by_line")  # of older writers
    read.ignore(*(f"summary_{k}" for k in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")))
    activation = read.choice("activation_function", ACTIVATIONS, "gelu_new")
    mlp = MLP(read.positive("n_inner", 4 * read.positive("n_embd")), activation)
    scales = [scale / (i + 1) if by_layer else scale for i in range(read.count("n_layer"))]
    layers = [Layer(replace(attention, scale=own), mlp) for own in scales]
    norm = layer_norm(read.number("layer_norm_epsilon", least=0))
    config = read_decoder(read, layers, norm, hidden_key="n_embd", positions_key="n_positions")
    return replace(
        config,
        tied_head=read.flag("tie_word_embeddings", True),
        extras=(LearnedPositions(config.max_positions),),
    )


GPT2_DEFAULTS = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "layer_norm_epsilon": 1e-5,
}

GPT2_ALIASES = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "n_vocab": "vocab_size",
}

GPT2_BESIDE: dict[str | tuple[str, ...], str] = {
    "embed.weight": "wte.weight",
    "positions.weight": "wpe.weight",
    **named("layers.{i}.attn_norm", "h.{i}.ln_1"),
    **named("layers.{i}.mlp_norm", "h.{i}.ln_2"),
    **named("final_norm", "ln_f"),
    "head.weight": "lm_head.weight",
}
"""Names of tensors outside of attention and MLP."""

GPT2_TENSORS: dict[str | tuple[str, ...], str | TensorLayout] = {
    **GPT2_BESIDE,
    tuple(f"layers.{{i}}.attn.{x}.weight" for x in "qkv"): Concatenated("h.{i}.attn.c_attn.weight", transposed=True),
    tuple(f"layers.{{i}}.attn.{x}.bias" for x in "qkv"): Concatenated("h.{i}.attn.c_attn.bias"),
    "layers.{i}.attn.o.weight": transposed("h.{i}.attn.c_proj.weight"),
    "layers.{i}.attn.o.bias": "h.{i}.attn.c_proj.bias",
    "layers.{i}.mlp.up.weight": transposed("h.{i}.mlp.c_fc.weight"),
    "layers.{i}.mlp.up.bias": "h.{i}.mlp.c_fc.bias",
    "layers.{i}.mlp.down.weight": transposed("h.{i}.mlp.c_proj.weight"),
    "layers.{i}.mlp.down.bias": "h.{i}.mlp.c_proj.bias",
}

GPT2 = Architecture(
    model_types=("gpt2", "gpt-sw3"),
    classes=("GPT2LMHeadModel",),
    read=read_gpt2,
    tensors=GPT2_TENSORS,
    defaults=GPT2_DEFAULTS,
    prefixes=("", "transformer."),
    # Causal masks that old checkpoints stored as buffers.
    ignored=(r"h\.\d+\.attn\.bias", r"h\.\d+\.attn\.masked_bias"),
    aliases=GPT2_ALIASES,
)


_OF_GPT1: dict[str, Activation] = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


def read_openai_gpt(read: ConfigReader) -> DecoderConfig:
    """``OpenAIGPTConfig``."""
    activation = read.choice("afn", _OF_GPT1, "gelu")
    config = read_gpt2(read).each_mlp(lambda own: replace(own, activation=activation))
    return replace(config, block="norm_after_sum", final_norm=False)


OPENAI_GPT = replace(
    GPT2,
    model_types=("openai-gpt",),
    classes=("OpenAIGPTLMHeadModel",),
    read=read_openai_gpt,
    tensors={
        **{ours: theirs for ours, theirs in GPT2_TENSORS.items() if not str(ours).startswith("final_norm")},
        "embed.weight": "tokens_embed.weight",
        "positions.weight": "positions_embed.weight",
    },
    defaults={**GPT2_DEFAULTS, "vocab_size": 40478, "n_positions": 512, "afn": "gelu"},
    ignored=(*GPT2.ignored, r"position_ids"),
)


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


def _bigcode_tensors(config: DecoderConfig) -> TensorMap:
    return {
        **GPT2_BESIDE,
        **fused_qkv("h.{i}.attn.c_attn", config.attention.kv_heads),
        **named("layers.{i}.attn.o", "h.{i}.attn.c_proj"),
        **named("layers.{i}.mlp.up", "h.{i}.mlp.c_fc"),
        **named("layers.{i}.mlp.down", "h.{i}.mlp.c_proj"),
    }


GPT_BIGCODE = replace(
    GPT2,
    model_types=("gpt_bigcode",),
    classes=("GPTBigCodeForCausalLM",),
    read=read_gpt_bigcode,
    tensors=_bigcode_tensors,
    defaults={**GPT2_DEFAULTS, "activation_function": "gelu_pytorch_tanh"},
)
