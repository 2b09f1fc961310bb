"""The heads, sizes and context of a decoder, under the keys that most configs have or others."""

from collections.abc import Sequence

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.rope import Rope
from edgegen_export.reading.rope import contexts


def read_heads(
    read: ConfigReader,
    *,
    hidden_key: str = "hidden_size",
    heads_key: str = "num_attention_heads",
    size_key: str | None = None,
    kv_key: str | None = None,
) -> Attention:
    """Attention without positions. ``size_key``: the key of a head's size, which is else hidden size / heads;
    ``kv_key``: that of the heads of keys and values, without which there are as many as of queries."""
    hidden, heads = read.positive(hidden_key), read.count(heads_key)
    given = None if size_key is None else read.optional(size_key, int)
    size = read.head_dim(heads, given, hidden, hidden_key, heads_key)
    kv_heads = heads if kv_key is None else read.kv_heads(heads, heads_key, kv_key)
    return Attention(heads, kv_heads, size, size**-0.5)


def read_decoder(
    read: ConfigReader,
    layers: Sequence[Layer],
    norm: Norm,
    rope: Rope | None = None,
    *,
    hidden_key: str = "hidden_size",
    positions_key: str = "max_position_embeddings",
) -> DecoderConfig:
    """The decoder of these ``layers``; the longest context is what ``rope`` reaches."""
    default_context, longest_context = contexts(rope, read.positive(positions_key))
    return DecoderConfig(
        layers=tuple(layers),
        hidden_size=read.positive(hidden_key),
        vocab_size=read.positive("vocab_size"),
        max_positions=default_context,
        longest_context=longest_context,
        norm=norm,
        tied_head=read.flag("tie_word_embeddings"),
    )
