"""GPT-2: learned positions, LayerNorm, fused QKV stored as [in, out], one GELU MLP, tied head."""

from collections.abc import Mapping
from typing import Any

from edgegen_export.architecture import Architecture
from edgegen_export.config import Activation, DecoderConfig, LearnedPositions, Norm
from edgegen_export.cuts import Concatenated, transposed
from edgegen_export.families.config_reader import ConfigReader

ACTIVATIONS: dict[str, Activation] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def read_gpt2(config: Mapping[str, Any]) -> DecoderConfig:
    """``GPT2Config`` → DecoderConfig; absent keys take that class's defaults."""
    read = ConfigReader(config)
    hidden, heads, layers = read.positive("n_embd", 768), read.positive("n_head", 12), read.positive("n_layer", 12)
    head_dim = read.head_dim("n_embd", hidden, "n_head", heads)
    scale = head_dim**-0.5 if read.get("scale_attn_weights", bool, True) else 1.0
    by_layer = read.get("scale_attn_by_inverse_layer_idx", bool, False)
    # The order of the scaling in float32 is what this one changes: nothing beyond rounding.
    read.ignore("reorder_and_upcast_attn", "n_ctx")
    read.ignore("n_special", "predict_special_tokens", "line_by_line")  # of older writers
    read.ignore(*(f"summary_{k}" for k in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")))
    result = DecoderConfig(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        intermediate_size=read.positive("n_inner", 4 * hidden),
        vocab_size=read.positive("vocab_size", 50257),
        max_positions=read.positive("n_positions", 1024),
        norm=Norm("layer", read.get("layer_norm_epsilon", float, 1e-5)),
        positions=LearnedPositions(),
        activation=read.choice("activation_function", ACTIVATIONS, "gelu_new"),
        attention_scales=tuple(scale / (i + 1) if by_layer else scale for i in range(layers)),
        tied_head=read.get("tie_word_embeddings", bool, True),
    )
    aliases = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}
    aliases |= {"max_position_embeddings": result.max_positions, "n_vocab": result.vocab_size}
    for name, value in aliases.items():
        read.agree(name, value)
    read.finish()
    return result


GPT2 = Architecture(
    model_types=("gpt2",),
    classes=("GPT2LMHeadModel",),
    read_config=read_gpt2,
    tensors={
        "embed.weight": "wte.weight",
        "positions.weight": "wpe.weight",
        "layers.{i}.attn_norm.weight": "h.{i}.ln_1.weight",
        "layers.{i}.attn_norm.bias": "h.{i}.ln_1.bias",
        tuple(f"layers.{{i}}.attn.{x}.weight" for x in "qkv"): Concatenated(
            "h.{i}.attn.c_attn.weight", transposed=True
        ),
        tuple(f"layers.{{i}}.attn.{x}.bias" for x in "qkv"): Concatenated("h.{i}.attn.c_attn.bias"),
        "layers.{i}.attn.o.weight": transposed("h.{i}.attn.c_proj.weight"),
        "layers.{i}.attn.o.bias": "h.{i}.attn.c_proj.bias",
        "layers.{i}.mlp_norm.weight": "h.{i}.ln_2.weight",
        "layers.{i}.mlp_norm.bias": "h.{i}.ln_2.bias",
        "layers.{i}.mlp.up.weight": transposed("h.{i}.mlp.c_fc.weight"),
        "layers.{i}.mlp.up.bias": "h.{i}.mlp.c_fc.bias",
        "layers.{i}.mlp.down.weight": transposed("h.{i}.mlp.c_proj.weight"),
        "layers.{i}.mlp.down.bias": "h.{i}.mlp.c_proj.bias",
        "final_norm.weight": "ln_f.weight",
        "final_norm.bias": "ln_f.bias",
        "head.weight": "lm_head.weight",
    },
    prefixes=("", "transformer."),
    # Causal masks that old checkpoints stored as buffers.
    ignored=(r"h\.\d+\.attn\.bias", r"h\.\d+\.attn\.masked_bias"),
)
