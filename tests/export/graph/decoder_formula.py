"""A decoder in float64 NumPy, written like its formulas: one sequence, no KV cache, nothing fused or folded."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.components.attention import Alibi
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.rope import Rope
from tests.export.flat_model import Model, ModelLayer

Array = NDArray[np.float64]


class DecoderFormula:
    """``tensors`` by our names, float32, as a checkpoint would have them."""

    def __init__(self, model: Model, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        self.model = model
        self.tensors = {name: x.astype(np.float64) for name, x in tensors.items()}
        self.read: dict[str, Array] = {}
        """Keys and values by their names, for layers that read another's."""
        self.parts: Array = np.empty(0)
        """Embeddings that layers have of their own, [t, layers, width]."""

    def logits(self, ids: list[int]) -> Array:
        """ids [t] → logits [t, vocab]."""
        model = self.model
        x = self.tensors["embed.weight"][ids] * model.embedding_multiplier
        if "embed_in.weight" in self.tensors:
            x = x @ self.tensors["embed_in.weight"].T
        if model.embedding_norm:
            x = self.norm(model.norm, x, "embed_norm")
        if isinstance(model.positions, LearnedPositions):
            x = x + self.tensors["positions.weight"][: len(ids)]
        if own := model.per_layer:
            shape = (len(ids), model.num_layers, own.width)
            made = (own.projection_multiplier * x @ self.tensors["per_layer_in.weight"].T).reshape(shape)
            rows = [token if token < own.rows else 0 for token in ids]
            looked_up = own.table_multiplier * self.tensors["embed_per_layer.weight"][rows].reshape(shape)
            self.parts = own.sum_multiplier * (self.norm(model.norm, made, "per_layer_norm") + looked_up)
        x = self.through_streams(x) if model.altup else self.through_layers(x)
        if model.final_norm:
            x = self.norm(model.norm, x, "final_norm")
        if "head_in.weight" in self.tensors:
            x = x @ self.tensors["head_in.weight"].T
        head = self.tensors["embed.weight" if model.tied_head else "head.weight"]
        logits = model.logit_multiplier * (x @ head.T + self.tensors.get("head.bias", 0.0))
        return capped(model.logit_softcap, logits)

    def through_layers(self, x: Array) -> Array:
        for i, layer in enumerate(self.model.layers):
            x = self.layer(f"layers.{i}", layer, x)
        return x

    def through_streams(self, x: Array) -> Array:
        """x [t, d] → the mean of all streams after the last layer."""
        model, altup = self.model, self.model.altup
        assert altup

        def scaled_like(first: Array, y: Array) -> Array:
            wanted, own = ((z * z).mean(-1, keepdims=True) for z in (first, y))
            return y * np.sqrt(wanted / np.maximum(own, 1e-5))

        others = range(altup.streams - 1)
        streams = np.array([x, *(scaled_like(x, self.linear(f"altup_in.{k}", x)) for k in others)])
        for i, layer in enumerate(model.layers):
            name = f"layers.{i}"

            def modalities(y: Array, name: str = f"{name}.altup") -> Array:
                return np.tanh(self.linear(f"{name}.router", self.norm(model.norm, y, f"{name}.norm")) / y.shape[-1])

            mixing = self.linear(f"{name}.altup.predict", modalities(streams[altup.active]))
            mixing = mixing.reshape(-1, altup.streams, altup.streams)
            streams = streams + np.einsum("tji,itd->jtd", mixing, streams)
            made = self.layer(name, layer, streams[altup.active])
            correct = self.tensors[f"{name}.altup.correct.weight"]
            correct = correct if altup.clip is None else np.clip(correct, -altup.clip, altup.clip)
            weights = 1 + modalities(made) @ correct.T
            streams = streams + (made - streams[altup.active]) * weights.T[..., None]
            if model.per_layer:
                y = streams[altup.active] * (self.tensors[f"{name}.altup.scale.weight"] if altup.scaled else 1.0)
                streams[1:] += self.of_own_embedding(name, y)
        last = [scaled_like(streams[0], self.linear(f"altup_out.{k}", streams[k + 1])) for k in others]
        return np.mean([streams[0], *last], axis=0)

    def of_own_embedding(self, name: str, x: Array) -> Array:
        gate = activated(self.model.activation, self.linear(f"{name}.per_layer.gate", x))
        made = self.linear(f"{name}.per_layer.out", gate * self.parts[:, int(name.split(".")[1])])
        return self.norm(self.model.norm, made, f"{name}.per_layer_norm")

    def layer(self, name: str, layer: ModelLayer, x: Array) -> Array:
        model = self.model

        def norm(x: Array, which: str) -> Array:
            return self.norm(model.norm, x, f"{name}.{which}")

        def attention(x: Array) -> Array:
            return self.attention(f"{name}.attn", layer, x)

        def mlp(x: Array) -> Array:
            return self.mlp(f"{name}.mlp", layer, x)

        factor = model.residual_multiplier
        block = layer.block or model.block
        match block:
            case "sequential":
                x = x + factor * attention(norm(x, "attn_norm"))
                return x + factor * mlp(norm(x, "mlp_norm"))
            case "sandwich" | "sandwich_with_laurel":
                y = norm(x, "attn_norm")
                x = x + factor * norm(attention(y), "attn_post_norm")
                if block == "sandwich_with_laurel":
                    low = self.linear(f"{name}.laurel.left", y)
                    x = (x + y + norm(self.linear(f"{name}.laurel.right", low), "laurel.norm")) / np.sqrt(2)
                x = x + factor * norm(mlp(norm(x, "mlp_norm")), "mlp_post_norm")
                return x + self.of_own_embedding(name, x) if model.per_layer and not model.altup else x
            case "post_norm":
                x = x + factor * norm(attention(x), "attn_post_norm")
                return x + factor * norm(mlp(x), "mlp_post_norm")
            case "norm_after_sum":
                x = norm(x + factor * attention(x), "attn_norm")
                return norm(x + factor * mlp(x), "mlp_norm")
            case "normed_residual":
                x = norm(x, "attn_norm")
                x = norm(x + factor * attention(x), "mlp_norm")
                return x + factor * mlp(x)
            case "interpolated":
                attn_rate, mlp_rate = (np.abs(self.tensors[f"{name}.{part}_rate"]) for part in ("attn", "mlp"))
                x = norm(x, "attn_norm")
                x = x + attn_rate * (factor * norm(attention(x), "attn_post_norm") - x)
                x = norm(x, "mlp_norm")
                return x + mlp_rate * (factor * norm(mlp(x), "mlp_post_norm") - x)
            case "parallel":
                y = norm(x, "attn_norm")
                return x + factor * (attention(y) + mlp(y))
            case "parallel_two_norms":
                return x + factor * (attention(norm(x, "attn_norm")) + mlp(norm(x, "mlp_norm")))
            case "single":
                return x + factor * (mlp if layer.mlp_only else attention)(norm(x, "norm"))
            case "shared_before_mixer" | "over_blocks" | "over_blocks_apart":
                raise ValueError("its layers have components that have no formula here")

    def linear(self, name: str, x: Array) -> Array:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0.0)

    def norm(self, norm: Norm, x: Array, name: str) -> Array:
        if norm.kind == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + norm.eps)
        weight = self.tensors[f"{name}.weight"] if norm.weight else 1.0
        return x * (weight + norm.offset) + (self.tensors[f"{name}.bias"] if norm.bias else 0.0)

    def mlp(self, name: str, layer: ModelLayer, x: Array) -> Array:
        if self.model.gated:
            gate = self.linear(f"{name}.gate", x)
            if layer.cutoff is not None:
                gate = np.maximum(gate - gate.mean(-1, keepdims=True) - layer.cutoff * gate.std(-1, keepdims=True), 0)
            hidden = self.activated(name, gate) * self.linear(f"{name}.up", x)
        else:
            hidden = self.activated(name, self.linear(f"{name}.up", x))
        return self.linear(f"{name}.down", self.sub_normed(name, hidden))

    def sub_normed(self, name: str, x: Array) -> Array:
        """Return the input of an output projection."""
        return self.norm(self.model.sub_norm, x, f"{name}.sub_norm") if self.model.sub_norm else x

    def activated(self, name: str, x: Array) -> Array:
        if self.model.activation != "xielu":
            return activated(self.model.activation, x)
        positive, negative, beta = (self.tensors[f"{name}.act.{part}"] for part in ("alpha_p", "alpha_n", "beta"))
        above = np.log1p(np.exp(positive)) * x * x
        below = (np.log1p(np.exp(negative)) + beta) * (np.expm1(np.minimum(x, 0)) - x)
        return np.where(x > 0, above, below) + beta * x

    def attention(self, name: str, layer: ModelLayer, x: Array) -> Array:
        model, tokens = self.model, len(x)
        heads: list[Array] = []
        for part, count in (("q", model.num_heads), ("k", model.num_kv_heads), ("v", model.num_kv_heads)):
            if part != "q" and layer.source is not None:
                heads.append(self.read[f"layers.{layer.source}.attn.{part}"])
                continue
            y = self.linear(f"{name}.{part}", x)
            if model.clip_qkv is not None:
                y = np.clip(y, -model.clip_qkv, model.clip_qkv)
            if part != "v" and model.qk_norm and model.qk_norm.over == "all":
                y = self.norm(model.qk_norm.norm, y, f"{name}.{part}_norm")
            y = y.reshape(tokens, count, model.head_dim)
            later = model.qk_norm is not None and model.qk_norm.after_rotation
            if part != "v" and model.qk_norm and model.qk_norm.over != "all" and not later:
                y = self.norm(model.qk_norm.norm, y, f"{name}.{part}_norm")
            if part != "v" and layer.rope:
                y = rotated(layer.rope, y)
            if part != "v" and model.qk_norm and later:
                y = self.norm(model.qk_norm.norm, y, f"{name}.{part}_norm")
            if part == "q" and model.query_scale:
                passed = np.arange(tokens)[:, None, None] // model.query_scale.original
                y = y * (1 + model.query_scale.beta * np.log(1 + passed))
            y = self.kept(name, part, y)
            heads.append(y.repeat(model.num_heads // count, axis=1).swapaxes(0, 1))  # [heads, t, head_dim]
            self.read[f"{name}.{part}"] = heads[-1]
        query, key, value = heads
        scores = capped(model.attention_softcap, layer.scale * query @ key.swapaxes(1, 2))
        if isinstance(model.positions, Alibi):
            scores = scores + alibi(model.positions, tokens)
        at = np.arange(tokens)
        seen = at <= at[:, None]
        if layer.window:
            seen &= at > at[:, None] - layer.window
        most = np.where(seen, scores, -np.inf).max(-1, keepdims=True)
        weights = np.where(seen, np.exp(scores - most), 0)
        sinks = self.tensors[f"{name}.sinks"][:, None, None] if model.sinks else -np.inf
        attended = (weights / (weights.sum(-1, keepdims=True) + np.exp(sinks - most))) @ value
        return self.linear(f"{name}.o", self.sub_normed(name, attended.swapaxes(0, 1).reshape(tokens, -1)))

    def kept(self, name: str, part: str, y: Array) -> Array:
        """Return y [t, heads, head_dim], the queries, keys or values of a layer, as the layer uses it."""
        del name, part
        return y


class RoundedFormula(DecoderFormula):
    """Keys and values rounded to multiples of ``scales`` float32 [1, heads, 1, head_dim], by our names, from -128 to
    127 of them."""

    def __init__(self, model: Model, tensors: Mapping[str, NDArray[np.float32]], scales: Mapping[str, Array]) -> None:
        super().__init__(model, tensors)
        self.scales = scales

    def kept(self, name: str, part: str, y: Array) -> Array:
        if part == "q":
            return y
        scale = self.scales[f"{name}.{part}_scale"][:, :, 0]
        return np.clip(np.rint(y / scale), -128, 127) * scale


def rotated(rope: Rope, x: Array) -> Array:
    """RoPE of x [t, heads, head_dim]: pairs as complex numbers, rotated by the position."""
    half = rope.dim // 2
    pairs = x[..., : rope.dim].reshape(*x.shape[:2], *((half, 2) if rope.interleaved else (2, half)))
    first, second = np.moveaxis(pairs, -1 if rope.interleaved else -2, 0)
    angles = np.arange(len(x))[:, None, None] * rope.theta ** (-2 * np.arange(half) / rope.dim)
    turned = (first + 1j * second) * np.exp(1j * angles)
    parts = np.stack([turned.real, turned.imag], axis=-1 if rope.interleaved else -2)
    return np.concatenate([parts.reshape(*x.shape[:2], rope.dim), x[..., rope.dim :]], axis=-1)


def alibi(alibi: Alibi, tokens: int) -> Array:
    """[heads, 1, t], by the position of the key."""
    bias = np.array(alibi.slopes, np.float64)[:, None, None] * np.arange(tokens, dtype=np.float64)
    if alibi.bfloat16:
        bias = bias.astype(ml_dtypes.bfloat16).astype(np.float64)
    return bias * alibi.scale


def capped(cap: float | None, x: Array) -> Array:
    return x if cap is None else np.asarray(cap * np.tanh(x / cap), np.float64)


def activated(kind: str, x: Array) -> Array:
    match kind:
        case "relu":
            return np.maximum(x, 0)
        case "relu2":
            return np.maximum(x, 0) ** 2
        case "silu":
            return x / (1 + np.exp(-x))
        case "gelu_tanh":
            return x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
        case _:
            raise NotImplementedError(kind)
