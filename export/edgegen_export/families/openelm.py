"""OpenELM: Llama with QK norm, whose layers have each their own number of heads and width of the MLP.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

from typing import cast

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import Attention, QKNorm
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.rope import Rope
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.reading.parts import ACTIVATIONS


def read_openelm(read: ConfigReader) -> DecoderConfig:
    """``OpenELMConfig``, with the heads of every layer, as its class writes them."""
    hidden, count = read.positive("model_dim"), read.count("num_transformer_layers")
    head_dim = read.head_dim(1, read.positive("head_dim"), hidden, "model_dim", "num_query_heads")
    heads, groups = read.sizes("num_query_heads", count), read.sizes("num_kv_heads", count)
    for i, (queries, keys) in enumerate(zip(heads, groups, strict=True)):
        if queries % keys and read.sound("num_query_heads", "num_kv_heads"):
            read.problem(f"num_kv_heads: {keys} of layer {i} does not divide num_query_heads = {queries}")
    widths = _widths(read, hidden, count)
    # What the heads were computed from; the tensors' shapes show whether they are those of the checkpoint.
    read.ignore("qkv_multipliers", "num_gqa_groups")
    read.ignore("rope_max_length")  # of tables of cosines
    read.refuse("normalization_layer_name", ("rms_norm",), "only rms_norm is known")
    positions, theta = read.positive("max_context_length"), read.number("rope_freq_constant")
    if theta <= 1:
        read.problem(f"rope_freq_constant: must be greater than 1, found {theta}")
        theta = 10000.0
    rope, norm = Rope(theta, head_dim), Norm("rms", 1e-6)
    activation, gated = read.choice("activation_fn_name", ACTIVATIONS, "swish"), read.flag("ffn_with_glu")
    qk_norm = QKNorm(norm, over="head") if read.flag("normalize_qk_projections") else None
    return DecoderConfig(
        layers=tuple(
            Layer(
                Attention(queries, keys, head_dim, head_dim**-0.5, rope=rope, qk_norm=qk_norm),
                MLP(width, activation, gated),
            )
            for queries, keys, width in zip(heads, groups, widths, strict=True)
        ),
        hidden_size=hidden,
        vocab_size=read.positive("vocab_size"),
        max_positions=positions,
        longest_context=positions,
        norm=norm,
        tied_head=read.flag("share_input_output_layers"),
    )


def _widths(read: ConfigReader, hidden: int, layers: int) -> tuple[int, ...]:
    """The width of each layer's MLP: a multiple of ``ffn_dim_divisor`` near what ``ffn_multipliers`` say, at least nine
    tenths of it."""
    key, divisor = "ffn_multipliers", read.positive("ffn_dim_divisor")
    found = cast("list[object]", read.get(key, list, []))
    factors = [factor for factor in found if isinstance(factor, int | float) and 0 < factor < hidden]
    if len(factors) != layers or len(found) != layers:
        if read.sound(key):
            read.problem(f"{key}: {layers} positive numbers expected, found {len(found)}: {found!r}", key)
        return (divisor,) * layers
    return tuple(_near(factor * hidden, divisor) for factor in factors)


def _near(wanted: float, divisor: int) -> int:
    multiple = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return multiple if multiple >= 0.9 * wanted else multiple + divisor


def tensors(config: DecoderConfig) -> dict[str | tuple[str, ...], str | Concatenated]:
    layer = "layers.{i}"
    up = (f"{layer}.mlp.gate.weight", f"{layer}.mlp.up.weight") if config.mlp.gated else (f"{layer}.mlp.up.weight",)
    return {
        "embed.weight": "token_embeddings.weight",
        f"{layer}.attn_norm.weight": f"{layer}.attn_norm.weight",
        tuple(f"{layer}.attn.{x}.weight" for x in "qkv"): Concatenated(f"{layer}.attn.qkv_proj.weight"),
        f"{layer}.attn.q_norm.weight": f"{layer}.attn.q_norm.weight",
        f"{layer}.attn.k_norm.weight": f"{layer}.attn.k_norm.weight",
        f"{layer}.attn.o.weight": f"{layer}.attn.out_proj.weight",
        f"{layer}.mlp_norm.weight": f"{layer}.ffn_norm.weight",
        up: Concatenated(f"{layer}.ffn.proj_1.weight"),
        f"{layer}.mlp.down.weight": f"{layer}.ffn.proj_2.weight",
        "final_norm.weight": "norm.weight",
        "head.weight": "lm_head.weight",
    }


OPENELM = Architecture(
    model_types=("openelm",),
    classes=("OpenELMForCausalLM",),
    read=read_openelm,
    tensors=tensors,
    defaults={
        "vocab_size": 32000,
        "max_context_length": 2048,
        "num_transformer_layers": 12,
        "model_dim": 2048,
        "head_dim": 128,
        "ffn_with_glu": True,
        "ffn_dim_divisor": 256,
        "rope_freq_constant": 10000,
    },
    prefixes=("", "transformer."),
    ignored=(r"classifier\.weight",),  # which its code makes and does not use
)
