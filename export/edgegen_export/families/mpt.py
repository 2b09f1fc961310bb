"""MPT: ALiBi, LayerNorm without a bias, one GELU MLP, QKV fused one after the other, no biases, tied head."""

from dataclasses import replace

import numpy as np

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import Alibi
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.families.bloom import LONGEST_CONTEXT
from edgegen_export.reading.decoder import read_decoder, read_heads


def read_mpt(read: ConfigReader) -> DecoderConfig:
    """``MptConfig``."""
    attention = read_heads(read, hidden_key="d_model", heads_key="n_heads")
    read.refuse("expansion_ratio", (4,), "the MLP is four times as wide as the model in this family")
    read.refuse("no_bias", (True,), "no module has a bias in this family")
    read.refuse("logit_scale", (), "logits with a scale are not supported in this family")
    read.refuse("embedding_fraction", (1.0,), "it is a setting of the training that only 1 leaves as it was")
    # Positions are learned only without ALiBi. The others tell how norms round, and how weights began.
    read.ignore("learned_pos_emb", "norm_type", "emb_pdrop", "init_device", "init_config", "verbose", "tokenizer_name")
    scale, clip, most = None, None, 8.0
    if own := read.inner("attn_config", {}):
        scale, most = own.limit("softmax_scale"), own.number("alibi_bias_max", most, least=0)
        clip = own.limit("clip_qkv")
        own.refuse("alibi", (True,), "positions without ALiBi are not supported in this family")
        own.refuse("attn_type", ("multihead_attention",), "every head has a key of its own in this family")
        own.refuse("prefix_lm", (False,), "attention to the prompt that is not causal is not supported")
        own.refuse("qk_ln", (False,), "norms of q and k are not part of this family")
        own.ignore("attn_impl", "attn_uses_sequence_id", "tie_word_embeddings")
    alibi = Alibi(slopes(attention.heads, most))
    attention = replace(attention, scale=scale or attention.scale, alibi=alibi, clip=clip)
    layers = [Layer(attention, MLP(4 * read.positive("d_model"), "gelu"))] * read.count("n_layers")
    norm = Norm("layer", read.number("layer_norm_epsilon", least=0))
    config = read_decoder(read, layers, norm, hidden_key="d_model", positions_key="max_seq_len")
    return replace(config, longest_context=LONGEST_CONTEXT)


def slopes(heads: int, most: float) -> tuple[float, ...]:
    """The ALiBi slope of each head: of those for the next power of two, every other one from the second on, then the
    rest, as far as there are heads (https://github.com/mosaicml/llm-foundry, ``gen_slopes``). transformers takes
    ``most`` for 8, whatever the config says; the models were trained as here."""
    whole = 1 << (heads - 1).bit_length()
    found = (2.0 ** -(np.arange(1, whole + 1, dtype=np.float32) * np.float32(most / whole))).astype(np.float32)
    ordered = found if whole == heads else np.concatenate([found[1::2], found[::2]])[:heads]
    return tuple(float(slope) for slope in ordered)


MPT = Architecture(
    model_types=("mpt",),
    classes=("MptForCausalLM", "MPTForCausalLM"),
    read=read_mpt,
    tensors={
        "embed.weight": "wte.weight",
        "layers.{i}.attn_norm.weight": "blocks.{i}.norm_1.weight",
        tuple(f"layers.{{i}}.attn.{x}.weight" for x in "qkv"): Concatenated("blocks.{i}.attn.Wqkv.weight"),
        "layers.{i}.attn.o.weight": "blocks.{i}.attn.out_proj.weight",
        "layers.{i}.mlp_norm.weight": "blocks.{i}.norm_2.weight",
        "layers.{i}.mlp.up.weight": "blocks.{i}.ffn.up_proj.weight",
        "layers.{i}.mlp.down.weight": "blocks.{i}.ffn.down_proj.weight",
        "final_norm.weight": "norm_f.weight",
        "head.weight": "lm_head.weight",
    },
    defaults={
        "d_model": 2048,
        "n_heads": 16,
        "n_layers": 24,
        "max_seq_len": 2048,
        "vocab_size": 50368,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    },
    prefixes=("", "transformer."),
    aliases={"hidden_size": "d_model", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
)
