"""Fragments of tensor maps."""

from edgegen_export.architecture.tensor_layouts import Concatenated, Interleaved

QK_NORM = {f"layers.{{i}}.attn.{x}_norm.weight": f"layers.{{i}}.self_attn.{x}_norm.weight" for x in "qk"}


PER_LAYER_TENSORS = {
    "embed_per_layer.weight": "embed_tokens_per_layer.weight",
    "per_layer_in.weight": "per_layer_model_projection.weight",
    "per_layer_norm.weight": "per_layer_projection_norm.weight",
    "layers.{i}.per_layer.gate.weight": "layers.{i}.per_layer_input_gate.weight",
    "layers.{i}.per_layer.out.weight": "layers.{i}.per_layer_projection.weight",
    "layers.{i}.per_layer_norm.weight": "layers.{i}.post_per_layer_input_norm.weight",
}
"""Embeddings of each layer's own."""


def named(ours: str, theirs: str) -> dict[str | tuple[str, ...], str]:
    """The tensor map of a module's weight and bias."""
    return {f"{ours}.{x}": f"{theirs}.{x}" for x in ("weight", "bias")}


def joined_qkv(theirs: str) -> dict[str | tuple[str, ...], Concatenated]:
    """The tensor map of a QKV module, weight and bias, with all queries before all keys and all values."""
    return {
        tuple(f"layers.{{i}}.attn.{x}.{kind}" for x in "qkv"): Concatenated(f"{theirs}.{kind}")
        for kind in ("weight", "bias")
    }


def fused_qkv(theirs: str, groups: int) -> dict[str | tuple[str, ...], Interleaved]:
    """The tensor map of a fused QKV module, weight and bias, one group per key head."""
    return {
        tuple(f"layers.{{i}}.attn.{x}.{kind}" for x in "qkv"): Interleaved(f"{theirs}.{kind}", groups)
        for kind in ("weight", "bias")
    }
