"""Qwen, the first: Llama with fused queries, keys and values, which have biases, under GPT-2's names.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.rope import Rope
from edgegen_export.reading.tensor_names import joined_qkv, named


def read_qwen(read: ConfigReader) -> DecoderConfig:
    """``QWenConfig``. Beyond ``seq_length`` its code scales queries and rotations by the length of the text, for which
    a KV cache would have to be computed again: the context ends there."""
    hidden, heads = read.positive("hidden_size"), read.count("num_attention_heads")
    head_dim = read.head_dim(heads, read.optional("kv_channels", int), hidden, "hidden_size", "num_attention_heads")
    context = read.positive("seq_length")
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
    rope = Rope(read.above_zero("rotary_emb_base"), head_dim)
    attention = Attention(heads, heads, head_dim, head_dim**-0.5, rope=rope)
    return DecoderConfig(
        layers=(Layer(attention, MLP(max(1, width // 2), "silu", gated=True)),) * read.count("num_hidden_layers"),
        hidden_size=hidden,
        vocab_size=read.positive("vocab_size"),
        max_positions=context,
        longest_context=context,
        norm=Norm("rms", read.number("layer_norm_epsilon", least=0)),
        tied_head=read.flag("tie_word_embeddings"),
    )


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
        "tie_word_embeddings": False,
    },
    prefixes=("", "transformer."),
    ignored=(r"h\.\d+\.attn\.(masked_bias|bias)",),
)
