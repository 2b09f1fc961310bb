"""Falcon in its three variants: 7b (parallel, multi-query attention), 40b and 180b (parallel with two norms, GQA with
fused QKV), rw (sequential, ALiBi)."""

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.config import Alibi, Block, DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.reading.parts import ACTIVATIONS, alibi_slopes, layer_norm
from edgegen_export.reading.rope import contexts, read_rope
from edgegen_export.reading.tensor_names import fused_qkv, named


def read_falcon(read: ConfigReader) -> DecoderConfig:
    """``FalconConfig``."""
    hidden, heads = read.positive("hidden_size"), read.count("num_attention_heads")
    head_dim = read.head_dim(heads, None, hidden, "hidden_size", "num_attention_heads")
    positions = read.positive("max_position_embeddings")
    new, multi_query = read.flag("new_decoder_architecture"), read.flag("multi_query")
    shared = read.kv_heads(heads, "num_attention_heads", "num_kv_heads")
    alibi = read.flag("alibi")
    rope = read_rope(read, head_dim, positions)
    default_context, longest_context = contexts(None if alibi else rope, positions)
    read.ignore("bias")
    read.refuse(
        "apply_residual_connection_post_layernorm", (False,), "residuals taken after the norm are not supported"
    )
    kv_heads = shared if new else 1 if multi_query else heads
    attention = Attention(heads, kv_heads, head_dim, head_dim**-0.5, rope=None if alibi else rope)
    mlp = MLP(read.positive("ffn_hidden_size", 4 * hidden), read.choice("activation", ACTIVATIONS, "gelu"))
    return DecoderConfig(
        layers=(Layer(attention, mlp),) * read.count("num_hidden_layers"),
        hidden_size=hidden,
        vocab_size=read.positive("vocab_size"),
        max_positions=default_context,
        longest_context=longest_context,
        norm=layer_norm(read.number("layer_norm_epsilon", least=0)),
        tied_head=read.flag("tie_word_embeddings"),
        block=_block(read, new),
        # The model's own code rounds slope · position to bfloat16, and scales it with the scores.
        positions=Alibi(alibi_slopes(heads, bfloat16=True), head_dim**-0.5, bfloat16=True) if alibi else None,
    )


def _block(read: ConfigReader, new: bool) -> Block:
    parallel, norms = read.flag("parallel_attn"), read.get("num_ln_in_parallel_attn", int, 2 if new else 1)
    if (new and not parallel) or norms not in (1, 2) or (norms == 2 and parallel and not new):
        read.problem(
            f"new_decoder_architecture = {new} with parallel_attn = {parallel} and {norms} norms: "
            "no released model is built so"
        )
    if not parallel:
        return "sequential"
    return "parallel_two_norms" if norms == 2 else "parallel"


def tensors(config: DecoderConfig) -> TensorMap:
    first, second = {
        "sequential": ("input_layernorm", "post_attention_layernorm"),
        "parallel": ("input_layernorm", ""),
    }.get(config.block, ("ln_attn", "ln_mlp"))
    return {
        "embed.weight": "word_embeddings.weight",
        **named("layers.{i}.attn_norm", f"h.{{i}}.{first}"),
        **named("layers.{i}.mlp_norm", f"h.{{i}}.{second}"),
        **fused_qkv("h.{i}.self_attention.query_key_value", config.attention.kv_heads),
        **named("layers.{i}.attn.o", "h.{i}.self_attention.dense"),
        **named("layers.{i}.mlp.up", "h.{i}.mlp.dense_h_to_4h"),
        **named("layers.{i}.mlp.down", "h.{i}.mlp.dense_4h_to_h"),
        **named("final_norm", "ln_f"),
        "head.weight": "lm_head.weight",
    }


FALCON = Architecture(
    model_types=("falcon",),
    classes=("FalconForCausalLM",),
    read=read_falcon,
    tensors=tensors,
    defaults={
        "vocab_size": 65024,
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "layer_norm_epsilon": 1e-5,
        "alibi": False,
        "new_decoder_architecture": False,
        "multi_query": True,
        "parallel_attn": True,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "activation": "gelu",
        "tie_word_embeddings": True,
    },
    prefixes=("", "transformer."),
    aliases={"n_embed": "hidden_size"},
)
