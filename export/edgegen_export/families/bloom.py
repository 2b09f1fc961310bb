"""BLOOM: ALiBi, a norm after the embedding, QKV fused head by head."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Alibi
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.parts import alibi_slopes, layer_norm
from edgegen_export.reading.tensor_names import megatron_layer, named


def read_bloom(read: ConfigReader) -> DecoderConfig:
    """``BloomConfig``. Its GELU is the tanh approximation."""
    attention = read_heads(read, hidden_key="n_embed")
    # Settings of training.
    read.ignore(
        "slow_but_exact", "skip_bias_add", "skip_bias_add_qkv", "attention_softmax_in_fp32", "bias_dropout_fusion"
    )
    read.ignore("masked_softmax_fusion", "offset_alibi", "unk_token_id", "n_inner")
    attention = replace(attention, alibi=Alibi(alibi_slopes(attention.heads)))
    layers = [Layer(attention, MLP(4 * read.positive("n_embed"), "gelu_tanh"))] * read.count("n_layer")
    norm = layer_norm(read.number("layer_norm_epsilon", least=0))
    return replace(
        read_decoder(read, layers, norm, hidden_key="n_embed", positions_key="seq_length"),
        longest_context=LONGEST_CONTEXT,
        block="normed_residual" if read.flag("apply_residual_connection_post_layernorm") else "sequential",
        embedding_norm=True,
    )


LONGEST_CONTEXT = 1 << 17
"""ALiBi has no last position, so the context needs a limit."""


def tensors(config: DecoderConfig) -> TensorMap:
    return {
        "embed.weight": "word_embeddings.weight",
        **named("embed_norm", "word_embeddings_layernorm"),
        **megatron_layer("h.{i}", "self_attention", config.attention.heads),
        **named("final_norm", "ln_f"),
        "head.weight": "lm_head.weight",
    }


BLOOM = Architecture(
    model_types=("bloom",),
    classes=("BloomForCausalLM",),
    read=read_bloom,
    tensors=tensors,
    defaults={
        "vocab_size": 250880,
        "n_embed": 64,
        "n_layer": 2,
        "num_attention_heads": 8,
        "layer_norm_epsilon": 1e-5,
        "seq_length": 2048,
        "tie_word_embeddings": True,
    },
    prefixes=("", "transformer."),
    aliases={"hidden_size": "n_embed", "n_head": "num_attention_heads", "num_hidden_layers": "n_layer"},
)
