"""layer_errors(): the relative error of a bundle's hidden states after each layer, against its checkpoint's.

The bundle's graphs give logits only. One more graph, of the same blocks over the same weights file
(:func:`decoder.build_states`), gives the residual stream after each layer. It runs once, and no bundle keeps it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant, Phase
from edgegen.model.interfaces import make_runner
from edgegen.model.ort_session import Binding, Buffer, OneSession
from edgegen.parity.measure import rounded
from edgegen.system import trim_memory
from edgegen_export.graph.decoder import state_name

POSITIONS = 128
"""Of the text's first window: the states of all layers are in memory at once."""

_GRAPH = "states.onnx"

States = NDArray[np.float32]
StatesOfModel = Callable[[NDArray[np.int64]], Iterator[States]]


@np.errstate(all="ignore")  # states that are not finite are judged by their logits
def layer_errors(
    bundle: Bundle, variant: GraphVariant, graph: bytes, of_model: StatesOfModel, ids: NDArray[np.int64]
) -> tuple[float, ...]:
    """For each layer the relative error of the hidden states after it, the errors of earlier layers included.

    At each position it is the L2 norm of the difference, divided by that of the model's states. Its mean over positions
    weighs the first token, whose states are often a hundred times larger than all later ones, like any other token.
    ``graph``: gives the states of ``variant``, serialized. ``of_model(ids)``: the unquantized model's states, layer by
    layer. ``ids`` [windows, t]: the text.

    Raises:
        BundleError: ONNX Runtime cannot load the graph.
    """
    text = ids[:1, :POSITIONS]
    shape = (text.shape[1], bundle.manifest.model.hidden_size)
    found = _states(bundle, variant, graph, text[0].tolist(), shape)
    trim_memory()  # of the packed weights, before the model's are read
    errors: list[float] = []
    for states, expected in zip(found, of_model(text), strict=True):
        distance: States = np.linalg.norm(states - expected[0], axis=-1)
        size: States = np.linalg.norm(expected[0], axis=-1)
        errors.append(rounded(float(np.mean(distance / np.maximum(size, np.finfo(np.float32).tiny)))))
    trim_memory()
    return tuple(errors)


def _states(
    bundle: Bundle, variant: GraphVariant, graph: bytes, ids: list[int], shape: tuple[int, int]
) -> list[States]:
    """The residual stream after each layer, of ``shape`` [t, d], in the quantized model."""
    path = bundle.file(_GRAPH)
    path.write_bytes(graph)  # beside the weights, for ONNX Runtime looks for them nowhere else
    try:
        graphs = _StatesGraph(path, len(variant.kv.layers), shape)
    finally:
        path.unlink()
    model = bundle.manifest.model
    runner = make_runner(graphs, variant, model.vocab_size, model.max_context)
    runner.prefill(runner.new_cache(), 0, ids)
    return [buffer.array[0] for buffer in graphs.buffers]


class _StatesGraph:
    """A graph pair of the one graph; its hidden states are in ``buffers``, by layer."""

    def __init__(self, path: Path, layers: int, shape: tuple[int, int]) -> None:
        self._session = OneSession(path)
        self.switch = self._session.switch
        self.buffers = [Buffer(np.zeros((1, *shape), np.float32)) for _ in range(layers)]

    def binding(self, phase: Phase) -> Binding:
        assert phase == "prefill"
        binding = self._session.binding(phase)
        for layer, buffer in enumerate(self.buffers):
            binding.output(state_name(layer), buffer)
        return binding
