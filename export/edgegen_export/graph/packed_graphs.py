"""PackedGraphs: graphs over one weights file, opened without a copy of the weights in memory, whatever their number.

ONNX Runtime packs matrices for the processor into memory of its own when it opens a graph. Here each matrix is packed
by itself, by a graph of one node, and written to a file that all graphs map. Results are the same bits. Where
edgegen's kernels are installed, which read weights as they lie, graphs are opened as they are.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from edgegen.bundle.external_data import move_to_pages
from edgegen.model.kernels import kernel_library
from edgegen.model.ort_session import OneSession, save_packed

_PACKED = "packed.data"
_ONE, _SAVED, _SAVED_WEIGHTS = "one.onnx", "saved.onnx", "saved.data"
_MULTIPLIES = frozenset({"MatMulNBits", "MatMul", "FusedMatMul", "Gemm"})


class PackedGraphs:
    """Opens graphs whose weights lie in files of ``folder``. Used as a context; it leaves nothing behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._packed: dict[str, TensorProto] = {}
        self._opened = 0
        self._data = ExitStack()

    def __enter__(self) -> Self:
        self._file = self._data.enter_context((self._folder / _PACKED).open("wb"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()
        (self._folder / _PACKED).unlink(missing_ok=True)

    def open(self, graph: bytes, *, keep_spinning: bool = True) -> OneSession:
        """A session of a serialized graph.

        Raises:
            BundleError: ONNX Runtime cannot load it.
        """
        model = ModelProto()
        model.ParseFromString(graph)
        if kernel_library() is None:
            self._pack(model)
        self._opened += 1
        with _written(self._folder / f"opened.{self._opened}.onnx", model) as path:
            return OneSession(path, keep_spinning=keep_spinning)

    def _pack(self, model: ModelProto) -> None:
        """Have ``model`` take packed matrices, where it multiplies with stored ones."""
        stored = {tensor.name: tensor for tensor in model.graph.initializer if tensor.external_data}
        casts = {n.output[0]: n for n in model.graph.node if n.op_type == "Cast" and n.input[0] in stored}
        for node in model.graph.node:
            matrix = node.input[1] if node.op_type in _MULTIPLIES else ""
            if (matrix in stored or matrix in casts) and matrix not in self._packed:
                self._pack_one(model, node, stored, casts)
        self._file.flush()
        graph = model.graph
        nodes = [n for n in graph.node if n.op_type != "Cast" or n.output[0] not in self._packed]
        taken = {name for node in nodes for name in node.input}
        needless = {cast.input[0] for cast in casts.values()} - taken | self._packed.keys()
        kept = [tensor for tensor in graph.initializer if tensor.name not in needless]
        kept += [tensor for name, tensor in self._packed.items() if name in taken]
        _replace(graph, nodes, kept)

    def _pack_one(
        self, model: ModelProto, node: NodeProto, stored: dict[str, TensorProto], casts: dict[str, NodeProto]
    ) -> None:
        given = {t.name: t for t in model.graph.initializer}
        before = [casts[name] for name in node.input if name in casts]
        names = [*(cast.input[0] for cast in before), *node.input[1:]]
        graph = helper.make_graph(
            [*before, node],
            "one matrix",
            [helper.make_tensor_value_info(node.input[0], TensorProto.FLOAT, None)],
            [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)],
            [given[name] for name in names if name in given],
        )
        one = helper.make_model(graph, ir_version=model.ir_version, opset_imports=list(model.opset_import))
        saved, weights = self._folder / _SAVED, self._folder / _SAVED_WEIGHTS
        try:
            with _written(self._folder / _ONE, one) as path:
                save_packed(path, saved, weights.name)
            with weights.open("rb") as source:
                moved = ModelProto()
                moved.ParseFromString(move_to_pages(saved.read_bytes(), source, self._file, _PACKED))
        finally:
            saved.unlink(missing_ok=True)
            weights.unlink(missing_ok=True)
        self._packed |= {tensor.name: tensor for tensor in moved.graph.initializer if tensor.external_data}


@contextmanager
def _written(path: Path, model: ModelProto) -> Generator[Path]:
    """``model`` in a file, beside the weights, for ONNX Runtime looks for them nowhere else."""
    try:
        path.write_bytes(model.SerializeToString())
        yield path
    finally:
        path.unlink(missing_ok=True)


def _replace(graph: GraphProto, nodes: list[NodeProto], initializers: list[TensorProto]) -> None:
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(initializers)
