"""The shapes' models in float32 NumPy: the expected logits that every runtime is checked against."""

from abc import ABC, abstractmethod
from math import pi, sqrt
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

from bench.compare.checkpoints import Shape
from bench.compare.routed_shapes import Experts, GlmLiteShape, LingShape
from bench.compare.shapes import Lfm2Shape, LlamaShape, MambaShape, Qwen35Shape, read_shape

Array = NDArray[np.float32]
N = TypeVar("N", LlamaShape, Lfm2Shape, Qwen35Shape, GlmLiteShape, LingShape, MambaShape)
S = TypeVar("S", LlamaShape, Lfm2Shape, Qwen35Shape, GlmLiteShape, LingShape)


class NumpyModel(ABC):
    """A checkpoint as a function from token ids to logits."""

    def __init__(self, folder: Path) -> None:
        self._tensors: dict[str, Array] = load_file(folder / "model.safetensors")

    @staticmethod
    def of(folder: Path) -> "NumpyModel":
        shape = read_shape(folder)
        match shape:
            case Shape():
                return GPT2(folder, shape)
            case LlamaShape():
                return Llama(folder, shape)
            case Lfm2Shape():
                return Lfm2(folder, shape)
            case Qwen35Shape():
                return Qwen35(folder, shape)
            case GlmLiteShape():
                return GlmLite(folder, shape)
            case LingShape():
                return Ling(folder, shape)
            case MambaShape():
                return Mamba(folder, shape)

    @abstractmethod
    def logits(self, ids: NDArray[np.int64]) -> Array:
        """Logits after the last of `ids`, [vocab]."""


class GPT2(NumpyModel):
    """In the original layout: matrices [in, out]."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        super().__init__(folder)
        self._shape = shape

    def logits(self, ids: NDArray[np.int64]) -> Array:
        t = len(ids)
        x = self._tensors["wte.weight"][ids] + self._tensors["wpe.weight"][:t]  # [t, width]
        for i in range(self._shape.layers):
            qkv = self._linear(self._norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
            q, k, v = qkv.reshape(t, 3, self._shape.heads, -1).transpose(1, 2, 0, 3)  # each [heads, t, head_dim]
            x = x + self._linear(_attend(q, k, v), f"h.{i}.attn.c_proj")
            hidden = _gelu(self._linear(self._norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"))
            x = x + self._linear(hidden, f"h.{i}.mlp.c_proj")
        return self._tensors["wte.weight"] @ self._norm(x[-1], "ln_f")

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]

    def _norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + np.float32(1e-5))
        return scaled * self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]


class NormedModel(NumpyModel, Generic[N]):
    """Base of models with RMS norms."""

    def __init__(self, folder: Path, shape: N) -> None:
        super().__init__(folder)
        self._shape = shape

    def _mlp(self, x: Array, gate: str, up: str, down: str) -> Array:
        return self._linear(_silu(self._linear(x, gate)) * self._linear(x, up), down)

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self._tensors[f"{name}.weight"].T + self._tensors.get(f"{name}.bias", np.float32(0))

    def _norm(self, x: Array, name: str, eps: float | None = None) -> Array:
        """With the ``eps`` of the whole model, unless another is given."""
        square = np.square(x).mean(-1, keepdims=True)
        return x / np.sqrt(square + np.float32(eps or self._shape.eps)) * self._tensors[f"{name}.weight"]

    def _mixed(self, x: Array, name: str) -> Array:
        """A causal convolution over each channel of [t, channels]."""
        kernel = self._tensors[f"{name}.weight"][:, 0]  # [channels, taps], the last is the newest
        padded = np.pad(x, ((kernel.shape[1] - 1, 0), (0, 0)))
        taps = (padded[n : n + len(x)] * kernel[:, n] for n in range(kernel.shape[1]))
        return sum(taps, np.zeros_like(x)) + self._tensors.get(f"{name}.bias", np.float32(0))


class RotaryModel(NormedModel[S]):
    """Base of models with rotary positions."""

    def _heads(self, x: Array, name: str) -> Array:
        """[t, width] → [heads, t, head_dim]"""
        return self._linear(x, name).reshape(len(x), -1, self._shape.head_dim).swapaxes(0, 1)

    def _rotate(self, x: Array) -> Array:
        half = self._shape.rotated // 2
        frequencies = [self._shape.rope_theta ** (-i / half) for i in range(half)]
        angles = np.array([[position * frequency for frequency in frequencies] for position in range(x.shape[1])])
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)  # [t, half]
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1, dtype=np.float32)

    def _attended(self, q: Array, k: Array, v: Array, output: str, gate: Array | None = None) -> Array:
        """Attention of rotated q and k over v, each [heads, t, head_dim], through the matrix `output`."""
        group = self._shape.heads // self._shape.kv_heads
        rotated = self._rotate(q), self._rotate(k).repeat(group, 0)
        attended = _attend(*rotated, v.repeat(group, 0))
        return self._linear(attended if gate is None else attended * gate, output)

    def _gated_mlp(self, x: Array, mlp: str) -> Array:
        return self._mlp(x, *(f"{mlp}.{name}_proj" for name in ("gate", "up", "down")))

    def _experts(self, x: Array, mlp: str, own: Experts, bias: str) -> Array:
        """Experts, chosen with the ``bias`` of each from the best groups, weighed without it."""
        scores = _sigmoid(self._linear(x, f"{mlp}.gate"))  # [t, experts]
        choice = scores + self._tensors[f"{mlp}.gate.{bias}"]
        groups = choice.reshape(len(x), own.groups, -1)
        best = np.argsort(-np.sort(groups, -1)[..., -2:].sum(-1), -1)[:, : own.best_groups]
        left = np.full_like(groups, -np.inf)
        np.put_along_axis(left, best[..., None], np.take_along_axis(groups, best[..., None], 1), 1)
        chosen = np.argsort(-left.reshape(len(x), -1), -1)[:, : own.per_token]
        weights = np.take_along_axis(scores, chosen, -1)
        weights = weights / weights.sum(-1, keepdims=True) * np.float32(own.scale)
        result = self._gated_mlp(x, f"{mlp}.shared_experts")
        for expert in np.unique(chosen):
            rows, places = np.nonzero(chosen == expert)
            result[rows] += self._gated_mlp(x[rows], f"{mlp}.experts.{expert}") * weights[rows, places, None]
        return result


class Llama(RotaryModel[LlamaShape]):
    """Llama and Qwen2: matrices [out, in], biases where the checkpoint has them."""

    def logits(self, ids: NDArray[np.int64]) -> Array:
        x = self._tensors["model.embed_tokens.weight"][ids]  # [t, width]
        for i in range(self._shape.layers):
            layer = f"model.layers.{i}"
            normed = self._norm(x, f"{layer}.input_layernorm")
            q, k, v = (self._heads(normed, f"{layer}.self_attn.{name}_proj") for name in "qkv")
            x = x + self._attended(q, k, v, f"{layer}.self_attn.o_proj")
            normed = self._norm(x, f"{layer}.post_attention_layernorm")
            x = x + self._mlp(normed, *(f"{layer}.mlp.{name}_proj" for name in ("gate", "up", "down")))
        return self._tensors["model.embed_tokens.weight"] @ self._norm(x[-1], "model.norm")


class Lfm2(RotaryModel[Lfm2Shape]):
    """LFM2: gated short convolutions, and attention with normalized queries and keys in few layers."""

    def logits(self, ids: NDArray[np.int64]) -> Array:
        x = self._tensors["model.embed_tokens.weight"][ids]  # [t, width]
        for i in range(self._shape.layers):
            layer = f"model.layers.{i}"
            normed = self._norm(x, f"{layer}.operator_norm")
            x = x + (self._attention if i in self._shape.attending else self._convolution)(normed, layer)
            normed = self._norm(x, f"{layer}.ffn_norm")
            x = x + self._mlp(normed, *(f"{layer}.feed_forward.{name}" for name in ("w1", "w3", "w2")))
        return self._tensors["model.embed_tokens.weight"] @ self._norm(x[-1], "model.embedding_norm")

    def _attention(self, x: Array, layer: str) -> Array:
        q, k, v = (self._heads(x, f"{layer}.self_attn.{name}_proj") for name in "qkv")
        q, k = (self._norm(heads, f"{layer}.self_attn.{name}_layernorm") for heads, name in ((q, "q"), (k, "k")))
        return self._attended(q, k, v, f"{layer}.self_attn.out_proj")

    def _convolution(self, x: Array, layer: str) -> Array:
        before, after, inputs = np.split(self._linear(x, f"{layer}.conv.in_proj"), 3, axis=-1)
        return self._linear(after * self._mixed(before * inputs, f"{layer}.conv.conv"), f"{layer}.conv.out_proj")


class Qwen35(RotaryModel[Qwen35Shape]):
    """Qwen3.5: gated delta nets (Yang and others 2024, arXiv:2412.06464), and gated attention in every fourth layer."""

    def logits(self, ids: NDArray[np.int64]) -> Array:
        x = self._tensors["model.embed_tokens.weight"][ids]  # [t, width]
        for i in range(self._shape.layers):
            layer = f"model.layers.{i}"
            normed = self._offset_norm(x, f"{layer}.input_layernorm")
            x = x + (self._attention if self._shape.attends(i) else self._net)(normed, layer)
            normed = self._offset_norm(x, f"{layer}.post_attention_layernorm")
            x = x + self._mlp(normed, *(f"{layer}.mlp.{name}_proj" for name in ("gate", "up", "down")))
        return self._tensors["model.embed_tokens.weight"] @ self._offset_norm(x[-1], "model.norm")

    def _offset_norm(self, x: Array, name: str) -> Array:
        """The factor is stored without its one."""
        square = np.square(x).mean(-1, keepdims=True)
        return x / np.sqrt(square + np.float32(self._shape.eps)) * (1 + self._tensors[f"{name}.weight"])

    def _attention(self, x: Array, layer: str) -> Array:
        size = self._shape.head_dim
        both = self._linear(x, f"{layer}.self_attn.q_proj").reshape(len(x), -1, 2 * size)
        q, gate = both[..., :size].swapaxes(0, 1), both[..., size:].reshape(len(x), -1)
        k, v = (self._heads(x, f"{layer}.self_attn.{name}_proj") for name in "kv")
        q, k = (self._offset_norm(heads, f"{layer}.self_attn.{name}_norm") for heads, name in ((q, "q"), (k, "k")))
        return self._attended(q, k, v, f"{layer}.self_attn.o_proj", _sigmoid(gate))

    def _net(self, x: Array, layer: str) -> Array:
        t, heads, size, net = len(x), self._shape.net_heads, self._shape.net_size, f"{layer}.linear_attn"
        mixed = _silu(self._mixed(self._linear(x, f"{net}.in_proj_qkv"), f"{net}.conv1d"))
        q, k, v = (part.reshape(t, heads, size) for part in np.split(mixed, 3, axis=-1))
        q, k = _unit(q) / np.float32(sqrt(size)), _unit(k)
        beta = _sigmoid(self._linear(x, f"{net}.in_proj_b"))  # [t, heads]
        steps = np.logaddexp(0, self._linear(x, f"{net}.in_proj_a") + self._tensors[f"{net}.dt_bias"])
        kept = np.exp(-np.exp(self._tensors[f"{net}.A_log"]) * steps)
        state, outputs = np.zeros((heads, size, size), np.float32), np.empty((t, heads, size), np.float32)
        for n in range(t):
            state = state * kept[n, :, None, None]
            missing = (v[n] - (k[n, :, None] @ state)[:, 0]) * beta[n, :, None]
            state = state + k[n, :, :, None] * missing[:, None]
            outputs[n] = (q[n, :, None] @ state)[:, 0]
        gate = self._linear(x, f"{net}.in_proj_z").reshape(t, heads, size)
        return self._linear((self._norm(outputs, f"{net}.norm") * _silu(gate)).reshape(t, -1), f"{net}.out_proj")


class GlmLite(RotaryModel[GlmLiteShape]):
    """GLM-4.7-Flash: keys and values of each head made of a latent, and of each token's position."""

    def logits(self, ids: NDArray[np.int64]) -> Array:
        x = self._tensors["model.embed_tokens.weight"][ids]  # [t, width]
        for i in range(self._shape.layers):
            layer = f"model.layers.{i}"
            x = x + self._attention(self._norm(x, f"{layer}.input_layernorm"), f"{layer}.self_attn")
            normed, mlp = self._norm(x, f"{layer}.post_attention_layernorm"), f"{layer}.mlp"
            sparse = i > 0
            x = x + (
                self._experts(normed, mlp, self._shape.experts, "e_score_correction_bias")
                if sparse
                else self._gated_mlp(normed, mlp)
            )
        return self._tensors["lm_head.weight"] @ self._norm(x[-1], "model.norm")

    def _attention(self, x: Array, attention: str) -> Array:
        own = self._shape
        low = self._norm(self._linear(x, f"{attention}.q_a_proj"), f"{attention}.q_a_layernorm", 1e-6)
        q = self._heads(low, f"{attention}.q_b_proj")
        latent, turning = np.split(self._linear(x, f"{attention}.kv_a_proj_with_mqa"), [own.latent], axis=-1)
        latent = self._norm(latent, f"{attention}.kv_a_layernorm", 1e-6)
        both = self._linear(latent, f"{attention}.kv_b_proj").reshape(len(x), own.heads, -1).swapaxes(0, 1)
        keys = np.broadcast_to(self._pairs_turned(turning[None]), (own.heads, len(x), own.rotated))
        q = np.concatenate([q[..., : own.plain], self._pairs_turned(q[..., own.plain :])], -1)
        k = np.concatenate([both[..., : own.plain], keys], -1)
        return self._linear(_attend(q, k, both[..., own.plain :]), f"{attention}.o_proj")

    def _pairs_turned(self, x: Array) -> Array:
        """Of neighbours, which become halves."""
        return self._rotate(np.concatenate([x[..., ::2], x[..., 1::2]], -1))


class Ling(RotaryModel[LingShape]):
    """Ling 2.0: normalized queries and keys that rotate in part, in a matrix with the values."""

    def logits(self, ids: NDArray[np.int64]) -> Array:
        x = self._tensors["model.word_embeddings.weight"][ids]  # [t, width]
        for i in range(self._shape.layers):
            layer = f"model.layers.{i}"
            x = x + self._attention(self._norm(x, f"{layer}.input_layernorm"), f"{layer}.attention")
            normed, mlp = self._norm(x, f"{layer}.post_attention_layernorm"), f"{layer}.mlp"
            sparse = i > 0
            x = x + (
                self._experts(normed, mlp, self._shape.experts, "expert_bias")
                if sparse
                else self._gated_mlp(normed, mlp)
            )
        return self._tensors["lm_head.weight"] @ self._norm(x[-1], "model.norm")

    def _attention(self, x: Array, attention: str) -> Array:
        heads, kv_heads = self._shape.heads, self._shape.kv_heads
        packed = self._heads(x, f"{attention}.query_key_value")
        q, k, v = np.split(packed, [heads, heads + kv_heads])
        q, k = (self._norm(part, f"{attention}.{name}_layernorm") for part, name in ((q, "query"), (k, "key")))
        return self._attended(q, k, v, f"{attention}.dense")


class Mamba(NormedModel[MambaShape]):
    """Mamba: selective state spaces (Gu and Dao 2023, arXiv:2312.00752)."""

    def logits(self, ids: NDArray[np.int64]) -> Array:
        x = self._tensors["backbone.embeddings.weight"][ids]  # [t, width]
        for i in range(self._shape.layers):
            layer = f"backbone.layers.{i}"
            x = x + self._mixer(self._norm(x, f"{layer}.norm"), f"{layer}.mixer")
        return self._tensors["backbone.embeddings.weight"] @ self._norm(x[-1], "backbone.norm_f")

    def _mixer(self, x: Array, mixer: str) -> Array:
        rank, size = self._shape.rank, self._shape.state
        inputs, gate = np.split(self._linear(x, f"{mixer}.in_proj"), 2, axis=-1)
        mixed = _silu(self._mixed(inputs, f"{mixer}.conv1d"))  # [t, inner]
        low, writing, reading = np.split(self._linear(mixed, f"{mixer}.x_proj"), [rank, rank + size], axis=-1)
        steps = np.logaddexp(0, self._linear(low, f"{mixer}.dt_proj"))  # [t, inner]
        rates = -np.exp(self._tensors[f"{mixer}.A_log"])  # [inner, state]
        state, outputs = np.zeros_like(rates), np.empty_like(mixed)
        for n in range(len(x)):
            written = (steps[n] * mixed[n])[:, None] * writing[n]
            state = state * np.exp(steps[n, :, None] * rates) + written
            outputs[n] = state @ reading[n]
        outputs += mixed * self._tensors[f"{mixer}.D"]
        return self._linear(outputs * _silu(gate), f"{mixer}.out_proj")


def _unit(x: Array) -> Array:
    """Of length 1."""
    return x / np.sqrt(np.square(x).sum(-1, keepdims=True) + np.float32(1e-6))


def _sigmoid(x: Array) -> Array:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def _attend(q: Array, k: Array, v: Array) -> Array:
    """Causal attention: each [heads, t, head_dim] → [t, heads · head_dim]"""
    t = q.shape[1]
    future = np.triu(np.full((t, t), -np.inf, np.float32), k=1)
    weights = _softmax(q @ k.swapaxes(1, 2) / np.float32(sqrt(q.shape[-1])) + future)
    return (weights @ v).transpose(1, 0, 2).reshape(t, -1)


def _softmax(x: Array) -> Array:
    exp = np.exp(x - x.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def _silu(x: Array) -> Array:
    return x / (np.float32(1) + np.exp(-x))


def _gelu(x: Array) -> Array:
    return np.float32(0.5) * x * (1 + np.tanh(np.float32(sqrt(2 / pi)) * (x + np.float32(0.044715) * x**3)))
