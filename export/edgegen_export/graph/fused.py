"""Fused weights: those of several modules as one, rows concatenated or, for experts, alternating."""

from collections.abc import Mapping, Sequence

import numpy as np

from edgegen_export.tensors.lazy import LazyTensor


def fused_name(modules: Sequence[str]) -> str:
    """``layers.0.attn.q``, ``layers.0.attn.k`` → ``layers.0.attn.q+k``."""
    parent = modules[0].rpartition(".")[0]
    return ".".join(filter(None, [parent, "+".join(m.rpartition(".")[2] for m in modules)]))


def parts(name: str) -> list[str]:
    """The modules of a :func:`fused_name`."""
    parent, dot, names = name.rpartition(".")
    return [f"{parent}{dot}{each}" for each in names.split("+")]


def fused_weight(tensors: Mapping[str, LazyTensor], modules: Sequence[str]) -> LazyTensor:
    """The modules' weights, their rows concatenated; by their fused name where they are there so."""
    if (whole := tensors.get(f"{fused_name(modules)}.weight")) is not None:
        return whole
    return LazyTensor.concat([tensors[f"{m}.weight"] for m in modules])


def expert_weights(tensors: Mapping[str, LazyTensor], module: str) -> tuple[LazyTensor, LazyTensor]:
    """All experts' gate and up with alternating rows, and down."""
    gate, up, down = (tensors[f"{module}.{name}.weight"] for name in ("gate", "up", "down"))
    return _in_turn(gate, up), down


def experts_one_by_one(tensors: Mapping[str, LazyTensor], module: str, count: int) -> LazyTensor:
    """Return the matrices that multiply the input of ``count`` experts: of each its gate, if any, and its up."""
    parts = [tensors[f"{name}.weight"] for name in taken_by(tensors, module)]
    if len(parts) == 1:
        return parts[0]
    rows = parts[0].shape[0] // count
    return LazyTensor.concat([part.take(e * rows, (e + 1) * rows) for e in range(count) for part in parts])


def taken_by(tensors: Mapping[str, LazyTensor], module: str) -> list[str]:
    """The modules that an MLP, or all experts, take their input with."""
    return [f"{module}.{name}" for name in ("gate", "up") if f"{module}.{name}.weight" in tensors]


def expert_biases(tensors: Mapping[str, LazyTensor], module: str) -> tuple[LazyTensor | None, LazyTensor | None]:
    """The biases that belong to :func:`expert_weights`."""
    gate, up, down = (tensors.get(f"{module}.{name}.bias") for name in ("gate", "up", "down"))
    return (_in_turn(gate, up) if gate and up else None), down


def _in_turn(gate: LazyTensor, up: LazyTensor) -> LazyTensor:
    return LazyTensor.concat([gate, up]).reordered(np.arange(2 * gate.shape[0]).reshape(2, -1).T.ravel())


def fused_bias(tensors: Mapping[str, LazyTensor], modules: Sequence[str]) -> LazyTensor | None:
    """The modules' biases concatenated, zeros for a module without one; None if no module has one."""
    found = [tensors.get(f"{m}.bias") for m in modules]
    if len(found) == 1 or all(bias is None for bias in found):
        return found[0]
    rows = [tensors[f"{m}.weight"].shape[0] for m in modules]
    return LazyTensor.concat(
        [bias or LazyTensor.from_array(np.zeros(n, np.float32)) for n, bias in zip(rows, found, strict=True)]
    )
