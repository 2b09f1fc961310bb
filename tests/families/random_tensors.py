"""Tensors of random checkpoints by their names, and the folder they are written to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.export.checkpoint.layouts import write_safetensors

Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]


@dataclass
class RandomTensors:
    rng: np.random.Generator
    tensors: dict[str, Floats] = field(default_factory=dict[str, Floats])

    def noise(self, *shape: int) -> Floats:
        return self.rng.standard_normal(shape).astype(np.float32)

    def matrix(self, name: str, *shape: int, gain: float = 1.0) -> None:
        self.tensors[name] = self.noise(*shape) * np.float32(gain / shape[-1] ** 0.5)

    def linear(self, name: str, rows: int, columns: int, *, bias: bool, gain: float = 1.0) -> None:
        self.matrix(f"{name}.weight", rows, columns, gain=gain)
        if bias:
            self.tensors[f"{name}.bias"] = 0.3 * self.noise(rows)

    def norm(self, name: str, size: int, *, bias: bool = False) -> None:
        self.tensors[f"{name}.weight"] = 1 + 0.3 * self.noise(size)
        if bias:
            self.tensors[f"{name}.bias"] = 0.3 * self.noise(size)

    def uniform(self, name: str, least: float, most: float, *shape: int) -> None:
        self.tensors[name] = self.rng.uniform(least, most, shape).astype(np.float32)

    def write(self, folder: Path, config: Mapping[str, Any]) -> None:
        folder.mkdir()
        write_safetensors(folder / "model.safetensors", self.tensors)
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
