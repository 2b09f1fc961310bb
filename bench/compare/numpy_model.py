"""GPT-2, Llama, LFM2 and Qwen3.5 in float32 NumPy: the expected logits that every runtime is checked against."""

from abc import ABC, abstractmethod
from math import pi, sqrt
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

from bench.compare.checkpoints import Shape
from bench.compare.shapes import Lfm2Shape, LlamaShape, Qwen35Shape, read_shape

Array = NDArray[np.float32]
S = TypeVar("S", LlamaShape, Lfm2Shape, Qwen35Shape)


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


class RotaryModel(NumpyModel, Generic[S]):
    """What models with rotary positions and RMS norms share."""

    def __init__(self, folder: Path, shape: S) -> None:
        super().__init__(folder)
        self._shape = shape

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

    def _mlp(self, x: Array, gate: str, up: str, down: str) -> Array:
        return self._linear(_silu(self._linear(x, gate)) * self._linear(x, up), down)

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self._tensors[f"{name}.weight"].T + self._tensors.get(f"{name}.bias", np.float32(0))

    def _norm(self, x: Array, name: str) -> Array:
        square = np.square(x).mean(-1, keepdims=True)
        return x / np.sqrt(square + np.float32(self._shape.eps)) * self._tensors[f"{name}.weight"]


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
        kernel = self._tensors[f"{layer}.conv.conv.weight"][:, 0]  # [width, taps], the last is the newest
        padded = np.pad(before * inputs, ((kernel.shape[1] - 1, 0), (0, 0)))
        taps = (padded[n : n + len(x)] * kernel[:, n] for n in range(kernel.shape[1]))
        return self._linear(after * sum(taps, np.zeros_like(x)), f"{layer}.conv.out_proj")


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
        inputs = self._linear(x, f"{net}.in_proj_qkv")
        kernel = self._tensors[f"{net}.conv1d.weight"][:, 0]  # [channels, taps], the last is the newest
        padded = np.pad(inputs, ((kernel.shape[1] - 1, 0), (0, 0)))
        taps = (padded[n : n + t] * kernel[:, n] for n in range(kernel.shape[1]))
        mixed = _silu(sum(taps, np.zeros_like(inputs)))
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
