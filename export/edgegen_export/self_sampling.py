"""draft_runner(): a model's decode graph over plainly rounded 8-bit weights, to sample text from.

Its text calibrates as well as the unquantized model's, and it takes a quarter of the memory.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgegen.bundle.manifest import GraphContract, GraphVariant, Phase, Quantization
from edgegen.model.interfaces import Runner, make_runner
from edgegen.model.ort_session import Binding, RunSwitch, open_session
from edgegen.system import trim_memory
from edgegen_export.graph.parameters import StoredParameters
from edgegen_export.model_source import Construction
from edgegen_export.output.bundle_writer import WeightsFile
from edgegen_export.quantize.recipe import ROUNDED

_GRAPH, _WEIGHTS = "draft.onnx", "draft.data"


class _DecodeGraph:
    """A graph pair without the prefill graph."""

    def __init__(self, graph: Path) -> None:
        self.switch = RunSwitch()
        self._session = open_session(graph, keep_spinning=False)

    def binding(self, phase: Phase) -> Binding:
        assert phase == "decode"
        return Binding(self._session)


@contextmanager
def draft_runner(
    construction: Construction,
    folder: Path,
    on_progress: Callable[[int], None],
    recipe: Quantization = ROUNDED["int8"],
) -> Generator[Runner[Any]]:
    """Write the draft into ``folder`` and open it; it is gone afterwards. ``on_progress`` hears of weights written.

    Raises:
        TensorError: weights are not finite.
    """
    sink = WeightsFile(folder / _WEIGHTS)
    params = StoredParameters(construction.tensors, recipe, sink, on_progress)
    try:
        graph = construction.build(construction.kv, params, "decode").model(_WEIGHTS)
        params.refuse_not_finite()
        sink.close()
    finally:
        sink.abandon()
    (folder / _GRAPH).write_bytes(graph.SerializeToString())
    variant = GraphVariant(
        name="draft",
        prefill=_GRAPH,
        decode=_GRAPH,
        weights=_WEIGHTS,
        linear="matmul_nbits",
        activation_dtype="float32",
        device="cpu",
        kv=construction.kv,
        contract=GraphContract(),
        rotary=construction.rotary,
        fast_prefill=False,
        minimum_onnxruntime=construction.minimum_onnxruntime,
    )
    del params, graph
    trim_memory()  # of what writing took, before the weights are packed
    graphs = _DecodeGraph(folder / _GRAPH)
    yield make_runner(graphs, variant, construction.vocab_size, construction.max_context)
    del graphs
    for name in (_GRAPH, _WEIGHTS):
        (folder / name).unlink()
