"""Fragments of tensor maps."""

from collections.abc import Mapping, Sequence

from edgegen_export.architecture.tensor_layouts import Concatenated, Interleaved, TensorLayout

GATED = {x: f"{x}_proj" for x in ("gate", "up", "down")}
"""The usual names of the matrices of a gated MLP, by ours."""

_QKV = tuple(f"layers.{{i}}.attn.{x}" for x in "qkv")

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


def named_parts(ours: str, theirs: str, parts: Mapping[str, str]) -> dict[str | tuple[str, ...], str]:
    """The tensor map of the weights and biases of several modules in one, by what each is called here and there."""
    return {x: y for part, name in parts.items() for x, y in named(f"{ours}.{part}", f"{theirs}.{name}").items()}


def joined(theirs: str, ours: Sequence[str]) -> dict[str | tuple[str, ...], Concatenated]:
    """The tensor map of a module, weight and bias, that has all rows of one of ``ours`` before all of the next."""
    return {tuple(f"{name}.{x}" for name in ours): Concatenated(f"{theirs}.{x}") for x in ("weight", "bias")}


def joined_qkv(theirs: str) -> dict[str | tuple[str, ...], Concatenated]:
    """The tensor map of a QKV module, weight and bias, with all queries before all keys and all values."""
    return joined(theirs, _QKV)


def fused(theirs: str, ours: Sequence[str], groups: int) -> dict[str | tuple[str, ...], Interleaved]:
    """The tensor map of a module, weight and bias, that has rows of all of ``ours`` in each of so many groups."""
    return {tuple(f"{name}.{x}" for name in ours): Interleaved(f"{theirs}.{x}", groups) for x in ("weight", "bias")}


def fused_qkv(theirs: str, groups: int) -> dict[str | tuple[str, ...], Interleaved]:
    """The tensor map of a fused QKV module, weight and bias, one group per key head."""
    return fused(theirs, _QKV, groups)


def megatron_layer(layer: str, attention: str, groups: int) -> dict[str | tuple[str, ...], str | TensorLayout]:
    """The tensor map of a ``layer`` under Megatron's names, but for those of its module ``attention``, which has QKV in
    so many groups."""
    return {
        **named("layers.{i}.attn_norm", f"{layer}.input_layernorm"),
        **fused_qkv(f"{layer}.{attention}.query_key_value", groups),
        **named("layers.{i}.attn.o", f"{layer}.{attention}.dense"),
        **named("layers.{i}.mlp_norm", f"{layer}.post_attention_layernorm"),
        **named("layers.{i}.mlp.up", f"{layer}.mlp.dense_h_to_4h"),
        **named("layers.{i}.mlp.down", f"{layer}.mlp.dense_4h_to_h"),
    }
