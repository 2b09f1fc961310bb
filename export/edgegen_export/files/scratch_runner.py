"""scratch_runner(): a runner whose KV caches are in scratch files: what is in memory does not grow with the layers."""

from typing import Any

from numpy.typing import NDArray

from edgegen.bundle.manifest import GraphVariant, KVLayer
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.interfaces import Runner, make_runner
from edgegen.model.kv_cache import KVCache
from edgegen.model.ort_session import GraphPair
from edgegen.model.sliding_window import windows_of
from edgegen.system import second_level_cache
from edgegen_export.files.scratch import Scratch


def scratch_runner(
    graphs: GraphPair, variant: GraphVariant, vocab_size: int, max_context: int, scratch: Scratch
) -> Runner[Any]:
    """The runner for the variant's kind of cache; a cache of traced graphs, which make new arrays, is in memory."""
    if variant.kv.kind != "in_place":
        return make_runner(graphs, variant, vocab_size, max_context)
    return _ScratchRunner(graphs, variant, vocab_size, max_context, scratch)


class _ScratchRunner(InPlaceRunner):
    def __init__(
        self, graphs: GraphPair, variant: GraphVariant, vocab_size: int, max_context: int, scratch: Scratch
    ) -> None:
        super().__init__(graphs, variant, vocab_size, max_context)
        self._scratch = scratch

    def new_cache(self, budget: int | None = None) -> KVCache:
        windows = windows_of(self._variant.kv, second_level_cache(), kernels=self._graphs.attends_batches)
        return _ScratchCache(
            self._scratch, self._variant.kv, self.max_context, self._steps.clear, windows, budget, self._pending
        )


class _ScratchCache(KVCache):
    def __init__(self, scratch: Scratch, *args: Any) -> None:
        self._scratch = scratch
        super().__init__(*args)

    def _empty(self, layer: KVLayer, slots: int, capacity: int) -> NDArray[Any]:
        form = self._spec.format
        shape = (slots, layer.kv_heads, capacity, form.row_width(layer.head_dim))
        return self._scratch.empty(shape, form.array_dtype)
