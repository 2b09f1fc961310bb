"""layer_errors(): the relative error of a bundle's hidden states after each layer, against its checkpoint's.

The bundle's graphs give logits only. One more graph, of the same blocks over the same weights file
(:func:`decoder.build_states`), gives the residual stream after each layer. It runs once, and no bundle keeps it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import GraphVariant, Phase
from edgegen.evaluation.parity.measure import rounded
from edgegen.graph.kernel_operators import SummingOrder
from edgegen.model.ort_session import Binding, Buffer, OneSession
from edgegen.system import retry_in_use, trim_memory
from edgegen_export.files.scratch import Scratch
from edgegen_export.files.scratch_runner import scratch_runner
from edgegen_export.graph.decoder import state_name

_GRAPH = "states.onnx"

States = NDArray[np.float32]


@np.errstate(all="ignore")  # states that are not finite are judged by their logits
def layer_errors(
    bundle: Bundle,
    variant: GraphVariant,
    graph: bytes,
    of_model: Sequence[States],
    ids: NDArray[np.int64],
    scratch: Scratch,
) -> tuple[float, ...]:
    """For each layer the relative error of the hidden states after it, the errors of earlier layers included.

    At each position it is the L2 norm of the difference, divided by that of the model's states. Its mean over positions
    weighs the first token, whose states are often a hundred times larger than all later ones, like any other token.
    ``graph``: gives the states of ``variant``, serialized. ``of_model``: the unquantized model's states [n, d] after
    each layer, at the first positions of the text ids [windows, t]; ``scratch``: where states and KV cache are kept.

    Raises:
        BundleError: ONNX Runtime cannot load the graph.
    """
    text = ids[:1, : len(of_model[0])]
    shape = (text.shape[1], bundle.manifest.model.hidden_size)
    found = _states(bundle, variant, graph, text[0].tolist(), shape, scratch)
    errors: list[float] = []
    for states, expected in zip(found, of_model, strict=True):
        distance: States = np.linalg.norm(states - expected, axis=-1)
        size: States = np.linalg.norm(expected, axis=-1)
        errors.append(rounded(float(np.mean(distance / np.maximum(size, np.finfo(np.float32).tiny)))))
    trim_memory()
    return tuple(errors)


def _states(
    bundle: Bundle, variant: GraphVariant, graph: bytes, ids: list[int], shape: tuple[int, int], scratch: Scratch
) -> list[States]:
    """The residual stream after each layer, of ``shape`` [t, d], in the quantized model."""
    path, model = bundle.file(_GRAPH), bundle.manifest.model
    path.write_bytes(graph)  # beside the weights, for ONNX Runtime looks for them nowhere else
    try:  # the order of sums is read from the file too, where stock operators run
        graphs = _StatesGraph(OneSession(path, keep_spinning=False), model.num_layers, shape, scratch)
    finally:
        retry_in_use(path.unlink)
    runner = scratch_runner(graphs, variant, model.vocab_size, model.max_context, scratch)
    runner.prefill(runner.new_cache(), 0, ids)
    return [buffer.array[0] for buffer in graphs.buffers]


class _StatesGraph:
    """A graph pair of the one graph; its hidden states are in ``buffers``, by layer."""

    def __init__(self, session: OneSession, layers: int, shape: tuple[int, int], scratch: Scratch) -> None:
        self._session = session
        self.switch = self._session.switch
        self.order: SummingOrder = session.order
        self.attends_batches = session.attends_batches
        self.pending = session.pending
        self.buffers = [Buffer(scratch.empty((1, *shape))) for _ in range(layers)]

    def binding(self, phase: Phase) -> Binding:
        assert phase == "prefill"
        binding = self._session.binding(phase)
        for layer, buffer in enumerate(self.buffers):
            binding.output(state_name(layer), buffer)
        return binding
