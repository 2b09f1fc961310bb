"""GPT-NeoX (Pythia): parallel blocks with two norms, partial RoPE, QKV fused head by head, untied head. The Japanese
one is sequential and has no biases but one after the last attention."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.parts import ACTIVATIONS, layer_norm
from edgegen_export.reading.rope import read_rope
from edgegen_export.reading.tensor_names import megatron_layer, named


def read_gpt_neox(read: ConfigReader) -> DecoderConfig:
    """``GPTNeoXConfig``."""
    config = _read_decoder(read, read.positive("intermediate_size"))
    rope = config.attention.rope
    assert rope
    read.agree("rope_theta", rope.theta, "rotary_emb_base")
    read.agree("partial_rotary_factor", read.number("rotary_pct"), "rotary_pct")
    read.ignore("attention_bias")
    return replace(config, block="parallel_two_norms" if read.flag("use_parallel_residual") else "sequential")


def read_gpt_neox_japanese(read: ConfigReader) -> DecoderConfig:
    """``GPTNeoXJapaneseConfig``."""
    return _read_decoder(read, int(read.positive("hidden_size") * read.above_zero("intermediate_multiple_size")))


def _read_decoder(read: ConfigReader, width: int) -> DecoderConfig:
    """Read the keys that both configs share; ``width``: of the MLP."""
    attention, positions = read_heads(read), read.positive("max_position_embeddings")
    rope = read_rope(
        read, attention.head_dim, positions, theta_key="rotary_emb_base", partial_key="rotary_pct", partial=True
    )
    mlp = MLP(width, read.choice("hidden_act", ACTIVATIONS, "gelu"))
    layers = [Layer(replace(attention, rope=rope), mlp)] * read.count("num_hidden_layers")
    return read_decoder(read, layers, layer_norm(read.number("layer_norm_eps", least=0)), rope)


def tensors(config: DecoderConfig) -> TensorMap:
    return {
        "embed.weight": "embed_in.weight",
        **megatron_layer("layers.{i}", "attention", config.attention.heads),
        **named("final_norm", "final_layer_norm"),
        "head.weight": "embed_out.weight",
    }


GPT_NEOX = Architecture(
    model_types=("gpt_neox",),
    classes=("GPTNeoXForCausalLM",),
    read=read_gpt_neox,
    tensors=tensors,
    defaults={
        "vocab_size": 50432,
        "hidden_size": 6144,
        "num_hidden_layers": 44,
        "num_attention_heads": 64,
        "intermediate_size": 24576,
        "rotary_pct": 0.25,
        "rotary_emb_base": 10000.0,
        "max_position_embeddings": 2048,
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
    },
    prefixes=("", "gpt_neox."),
    # Buffers in old checkpoints: causal masks and frequencies.
    ignored=(r"layers\.\d+\.attention\.(bias|masked_bias)",),
)


def japanese_tensors(config: DecoderConfig) -> TensorMap:
    last = config.num_layers - 1
    shared = {ours: theirs for ours, theirs in tensors(config).items() if ours != "layers.{i}.attn.o.bias"}
    return {**shared, f"layers.{last}.attn.o.bias": f"layers.{last}.attention.dense_bias"}


GPT_NEOX_JAPANESE = Architecture(
    model_types=("gpt_neox_japanese",),
    classes=("GPTNeoXJapaneseForCausalLM",),
    read=read_gpt_neox_japanese,
    tensors=japanese_tensors,
    defaults={
        "vocab_size": 32000,
        "hidden_size": 2560,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_multiple_size": 4,
        "rotary_pct": 1.0,
        "rotary_emb_base": 10000.0,
        "max_position_embeddings": 2048,
        "layer_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
    prefixes=("", "gpt_neox_japanese."),
    ignored=(r"layers\.\d+\.attention\.(bias|masked_bias)",),
)
