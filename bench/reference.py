"""GPT-2 in forty lines of float32 NumPy: what every peer's logits are held against."""

from math import pi, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

from bench.checkpoints import Shape

Array = NDArray[np.float32]


class Reference:
    """A checkpoint folder in the original layout, as a function from token ids to logits."""

    def __init__(self, folder: Path) -> None:
        self._shape = Shape.read(folder)
        self._tensors: dict[str, Array] = load_file(folder / "model.safetensors")

    def logits(self, ids: NDArray[np.int64]) -> Array:
        """Logits after the last of `ids`, [vocab]."""
        t, heads = len(ids), self._shape.heads
        future = np.triu(np.full((t, t), -np.inf, np.float32), k=1)
        x = self._tensors["wte.weight"][ids] + self._tensors["wpe.weight"][:t]  # [t, width]
        for i in range(self._shape.layers):
            qkv = self._linear(self._norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").reshape(t, 3, heads, -1)
            q, k, v = qkv.transpose(1, 2, 0, 3)  # each [heads, t, head_dim]
            weights = _softmax(q @ k.swapaxes(1, 2) / np.float32(sqrt(q.shape[-1])) + future)
            x = x + self._linear((weights @ v).transpose(1, 0, 2).reshape(t, -1), f"h.{i}.attn.c_proj")
            hidden = _gelu(self._linear(self._norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"))
            x = x + self._linear(hidden, f"h.{i}.mlp.c_proj")
        return self._tensors["wte.weight"] @ self._norm(x[-1], "ln_f")

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]

    def _norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + np.float32(1e-5))
        return scaled * self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]


def _softmax(x: Array) -> Array:
    exp = np.exp(x - x.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def _gelu(x: Array) -> Array:
    return np.float32(0.5) * x * (1 + np.tanh(np.float32(sqrt(2 / pi)) * (x + np.float32(0.044715) * x**3)))
