"""Self-sampling: the model's decode graph over plainly rounded 8-bit weights, opened to sample calibration text from.

Its text calibrates as well as the unquantized model's, and it takes a quarter of the bytes. They are in files, and so
is the KV cache: what is in memory does not grow with the number of layers.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from edgegen.bundle.manifest import GraphContract, GraphVariant
from edgegen.model.interfaces import Runner
from edgegen.model.ort_session import OneSession
from edgegen.system import retry_in_use, trim_memory
from edgegen_export.files.scratch import Scratch
from edgegen_export.files.scratch_runner import scratch_runner
from edgegen_export.graph.parameters import StoredParameters
from edgegen_export.output.bundle_writer import WeightsFile
from edgegen_export.quantize.recipe import ROUNDED
from edgegen_export.source.model_source import ModelSource

_GRAPH, _WEIGHTS = "sampled.onnx", "sampled.data"


@contextmanager
def sampling_runner(source: ModelSource, folder: Path) -> Generator[Runner[Any]]:
    """Write graph and weights into ``folder`` and open them; they are gone afterwards, unless the runner is in use.

    Raises:
        TensorError: weights are not finite.
    """
    facts, sink = source.facts, WeightsFile(folder / _WEIGHTS)
    params = StoredParameters(source.tensors, ROUNDED["int8"], sink, lambda _: None)
    try:
        graph = source.build(facts.kv, params, "decode").model(_WEIGHTS)
        params.refuse_not_finite()
        sink.close(kept=False)
    finally:
        sink.abandon()
    (folder / _GRAPH).write_bytes(graph.SerializeToString())
    variant = GraphVariant(
        name="sampled",
        prefill=_GRAPH,
        decode=_GRAPH,
        weights=_WEIGHTS,
        linear="matmul_nbits",
        activation_dtype="float32",
        device="cpu",
        kv=facts.kv,
        contract=GraphContract(),
        rotary=facts.rotary,
        minimum_onnxruntime=facts.minimum_onnxruntime,
    )
    del params, graph
    trim_memory()  # of what writing took, before the weights are opened
    graphs = OneSession(folder / _GRAPH, keep_spinning=False)
    yield scratch_runner(graphs, variant, facts.model.vocab_size, facts.model.max_context, Scratch(folder))
    del graphs
    for name in (_GRAPH, _WEIGHTS):
        with suppress(OSError):  # what is in use goes with the folder
            retry_in_use((folder / name).unlink)
