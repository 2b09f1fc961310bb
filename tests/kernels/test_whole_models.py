"""The embedded model on every instruction set: no operator whose bits could differ is stock, and none differs."""

import numpy as np
import onnx
import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.graph.kernel_operators import inexact_operators, with_kernels
from edgegen.system import cores
from tests.export.bundles import decoded, prefilled, random_ids, runner_of
from tests.kernels.material import instruction_sets
from tests.kernels.stock import Floats, needs_kernels, same_bits

pytestmark = needs_kernels


@pytest.fixture(scope="module")
def stories() -> Bundle:
    return Bundle.open(BundleStore().resolve("stories"))


def test_every_operator_is_ours_or_exact(stories: Bundle) -> None:
    variant = stories.variant_with(None)
    for graph in (variant.prefill, variant.decode):
        source = stories.file(graph).read_bytes()
        assert inexact_operators(with_kernels(source)) == set()
        assert b"GroupQueryAttention" in inexact_operators(source)


def test_casts_that_nothing_reads_are_left_out(stories: Bundle) -> None:
    for graph in (stories.variant.prefill, stories.variant.decode):
        source = stories.file(graph).read_bytes()
        before, after = (onnx.load_from_string(one).graph for one in (source, with_kernels(source)))
        read = {name for node in after.node for name in node.input} | {value.name for value in after.output}
        assert {node.op_type for node in before.node} >= {"Cast", "MatMulNBits"}
        assert [node.name for node in after.node if node.op_type == "Cast" and node.output[0] not in read] == []
        assert len(after.node) < len(before.node)


def test_layers_are_fused_unless_threads_are_more_than_run_at_once(stories: Bundle) -> None:
    source = stories.file(stories.variant.prefill).read_bytes()
    assert b"FusedLayers" in with_kernels(source)
    assert b"FusedLayers" not in with_kernels(source, fuse=False)
    ids = random_ids(stories, 40)
    found = list[Floats]()
    for threads in (1, cores().at_once + 1):
        runner = runner_of(stories, threads=threads)
        found.append(prefilled(runner, runner.new_cache(), ids, chunk=16))
    assert same_bits(*found)


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
