"""Graphs over packed matrices in files compute what they compute otherwise, bit for bit."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.model.kernels import kernel_library
from edgegen.model.ort_session import GraphPair, OneSession
from edgegen_export.graph.packed_graphs import PackedGraphs
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from edgegen_export.scratch import Scratch
from edgegen_export.scratch_runner import scratch_runner


@pytest.mark.parametrize("scheme", ["int8", "int4", "fp16", "fp32"])
def test_packed_graphs_give_the_same_bits(scheme: Scheme, checkpoint: Path, tmp_path: Path) -> None:
    bundle, _ = export(str(checkpoint), tmp_path / "bundle", scheme=scheme, fast=True)
    folder = bundle.file("weights.data").parent
    before, graph = sorted(folder.iterdir()), bundle.file(bundle.variant.prefill)
    with PackedGraphs(folder) as packed:
        found = logits(bundle, packed.open(graph.read_bytes()))
        size = (folder / "packed.data").stat().st_size
        np.testing.assert_array_equal(logits(bundle, packed.open(graph.read_bytes())), found)
        assert (folder / "packed.data").stat().st_size == size  # nothing is packed twice
    assert (size > 0) == (kernel_library() is None)
    np.testing.assert_array_equal(found, logits(bundle, OneSession(graph)))
    assert sorted(folder.iterdir()) == before


def logits(bundle: Bundle, graphs: GraphPair) -> NDArray[np.float32]:
    """Behind some tokens at once, and one more; the KV cache grows in between."""
    model = bundle.manifest.model
    runner = scratch_runner(graphs, bundle.variant, model.vocab_size, model.max_context, Scratch())
    ids, cache = np.arange(1, 14) % model.vocab_size, runner.new_cache()
    first = runner.prefill(cache, 0, ids.tolist()).copy()
    return np.stack([first, runner.decode(cache, ids[None, :1])[0, 0]])
