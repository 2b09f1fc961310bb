"""The embedded model on every instruction set: no operator whose bits could differ is stock, and none differs."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kernel_graph import with_kernels
from edgegen.bundle.store import BundleStore
from tests.export.bundles import decoded, prefilled, random_ids, runner_of
from tests.kernels.material import instruction_sets
from tests.kernels.stock import Floats, needs_kernels, same_bits

pytestmark = needs_kernels

EXACT = set(
    "Abs Add Cast Clip Concat Div Expand Gather GatherND Identity Max Mul Range ReduceMax Relu Reshape Shape Slice "
    "Split Unsqueeze".split()
)
"""Stock operators that round each element once, or never: IEEE 754 leaves them no choice of bits."""


def not_ours(graph: Path) -> set[str]:
    """Stock operators of a rewritten graph whose bits may depend on the instruction set."""
    nodes = onnx.load_from_string(with_kernels(graph.read_bytes())).graph.node
    return {node.op_type for node in nodes if node.domain != "edgegen"} - EXACT


@pytest.fixture(scope="module")
def stories() -> Bundle:
    return Bundle.open(BundleStore().resolve("stories"))


def test_every_operator_is_ours_or_exact(stories: Bundle) -> None:
    variant = stories.variant_with(None)
    for graph in (variant.prefill, variant.decode):
        assert not_ours(stories.file(graph)) == set()


@pytest.mark.parametrize("isa", instruction_sets())
def test_the_whole_model_gives_the_same_bits(stories: Bundle, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = random_ids(stories, 40)
    found: list[Floats] = []
    for name in ("portable", isa):
        monkeypatch.setenv("EDGEGEN_ISA", name)
        runner = runner_of(stories)
        cache = runner.new_cache()
        logits = prefilled(runner, cache, ids[:32], chunk=16)
        found.append(np.concatenate([logits, decoded(runner, cache, ids[32:33])]))
    assert same_bits(*found)
