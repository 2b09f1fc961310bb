"""ONNX Runtime sessions: telemetry, threads, providers, kernels, I/O binding, and one session for a variant's graphs.

A :class:`GraphPair` runs the prefill and the decode graph of one variant. :class:`OneSession` opens the prefill graph,
which returns the logits of whatever positions it is asked for, for both: one copy of the weights, one thread pool.
"""

import ctypes
import os
import re
import warnings
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, Protocol, cast
from weakref import WeakSet, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

# Wheels since 1.29 send telemetry by default; only this, before the import, switches all of it off.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime as ort

from edgegen.bundle.kv_format import TAKE_STORED, KVConversion
from edgegen.bundle.manifest import Phase
from edgegen.errors import BundleError
from edgegen.graph.kernel_operators import (
    SummingOrder,
    attends_batches,
    needs_kernels,
    summing_order,
    with_fusion,
    with_kernels,
)
from edgegen.graph.low_rank import LowRank, with_low_rank
from edgegen.graph.node import kernels_of
from edgegen.graph.pending_tokens import pending_input
from edgegen.model.kernels import (
    cannot_keep,
    cannot_load,
    cannot_read_narrow,
    describe_kernels,
    kernel_library,
)
from edgegen.system import cores, has_vnni, physical_cores, read_regular

Array = NDArray[Any]

CUDA_PROVIDER = "CUDAExecutionProvider"
"""Execution provider that runs graphs on a GPU, where ONNX Runtime was built for one."""


class Buffer:
    """NumPy memory that ONNX Runtime reads and writes in place."""

    __slots__ = ("array", "ortvalue")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.ortvalue: Any = cast(Any, ort.OrtValue).ortvalue_from_numpy(array)


class RunSwitch:
    """Interrupts runs from another thread: a run under way fails within some milliseconds.

    ONNX Runtime looks for ``terminate`` between two operators. edgegen's attention, and layers that are fused with it,
    look meanwhile whether their total sequence length is negative.
    """

    def __init__(self) -> None:
        self._totals = WeakValueDictionary[int, NDArray[np.int32]]()
        self.run_options: Any = cast(Any, ort).RunOptions()
        # The default. ONNX Runtime 1.32 asks for it at each run, and throws and catches where it was not set: 90 us.
        self.run_options.add_run_config_entry("gpu_graph_id", "0")

    def interrupt(self) -> None:
        """Fail every run, until ``resume``."""
        self.run_options.terminate = True
        for total in self._totals.valuerefs():
            if (array := total()) is not None:
                array.fill(-1)

    def watch(self, total: NDArray[np.int32]) -> None:
        """Make ``total`` negative at an interruption: edgegen's attention reads it as its total sequence length. It is
        set before each run."""
        self._totals[id(total)] = total

    def resume(self) -> None:
        self.run_options.terminate = False


class Binding:
    """Inputs and outputs of one graph bound to buffers; kept alive between runs, changed where something changed."""

    def __init__(self, session: Any, switch: RunSwitch | None = None) -> None:
        self._session = session
        self._switch = switch or RunSwitch()
        self._io = session.io_binding()
        self._kept: dict[str, Buffer] = {}

    def takes(self, name: str) -> bool:
        """Whether the graph has this input."""
        return any(value.name == name for value in self._session.get_inputs())

    def input(self, name: str, buffer: Buffer) -> None:
        self._kept[name] = buffer  # the native side does not own NumPy's memory
        self._io.bind_ortvalue_input(name, buffer.ortvalue)

    def output(self, name: str, buffer: Buffer) -> None:
        self._kept["> " + name] = buffer
        self._io.bind_ortvalue_output(name, buffer.ortvalue)

    def run(self) -> None:
        """Run the graph over what is bound; outputs are in their buffers when this returns.

        Raises:
            BundleError: ONNX Runtime cannot; its own words follow.
        """
        try:
            self._session.run_with_iobinding(self._io, self._switch.run_options)
        except Exception as error:  # of many classes, as when a graph is loaded
            raise BundleError(f"ONNX Runtime {ort.__version__} cannot run the graph: {error}") from error


class GraphPair(Protocol):
    """A variant's two graphs, ready to be bound and run; ``switch`` ends their runs."""

    @property
    def switch(self) -> RunSwitch: ...

    @property
    def order(self) -> SummingOrder:
        """In which its operators add; where that is ``fixed``, any chunks give the same bits."""
        ...

    @property
    def attends_batches(self) -> bool:
        """Whether they accept several tokens of several rows."""
        ...

    @property
    def pending(self) -> Mapping[str, tuple[int, int]]:
        """The shape of what each fixed state has of pending tokens, by the state's input; none where it has none."""
        ...

    def binding(self, phase: Phase) -> Binding:
        """A new, empty binding for one of the graphs."""
        ...


class OneSession:
    """One graph, of prefill as a rule, for both phases."""

    def __init__(
        self,
        graph: Path,
        threads: int | None = None,
        *,
        keep_spinning: bool = True,
        kernels: bool = True,
        adapter: LowRank | None = None,
        states: Set[str] = frozenset(),
        conversion: KVConversion | None = None,
        on_handed_over: Callable[[], object] = lambda: None,
    ) -> None:
        """``keep_spinning``: whether idle threads may, which is fast unless another session needs their cores;
        ``kernels``: as for :func:`open_session`; ``adapter``: branches that the graph is given beside its matrices;
        ``states``: inputs that are fixed states; ``conversion``: of its KV cache, which is float32;
        ``on_handed_over``: called before ONNX Runtime gets the graph."""
        self.switch = RunSwitch()
        self._graph = graph
        self._order: SummingOrder | None = None
        self._session, self._rewritten, self._kernels = _open(
            graph,
            threads,
            keep_spinning=keep_spinning,
            kernels=kernels,
            adapter=adapter,
            states=states,
            conversion=conversion,
            on_handed_over=on_handed_over,
        )
        inputs = {name: shape for name, (_, shape) in self.inputs.items()}
        names = {past: pending_input(past) for past in states}
        self.pending = {past: (inputs[name][1], inputs[name][2]) for past, name in names.items() if name in inputs}

    @property
    def inputs(self) -> dict[str, Any]:
        """Type and shape of the graph's inputs by name."""
        return {tensor.name: (tensor.type, tensor.shape) for tensor in self._session.get_inputs()}

    @property
    def outputs(self) -> dict[str, Any]:
        """Type and shape of the graph's outputs by name."""
        return {tensor.name: (tensor.type, tensor.shape) for tensor in self._session.get_outputs()}

    @property
    def order(self) -> SummingOrder:
        if self._order is None:
            graph = self._rewritten or read_regular(self._graph)
            self._order = summing_order(graph, kernels=self._kernels, vnni=has_vnni())
        return self._order

    @property
    def attends_batches(self) -> bool:
        return attends_batches(self._rewritten or read_regular(self._graph))

    def binding(self, phase: Phase) -> Binding:
        return Binding(self._session, self.switch)


def runtime_version() -> str:
    """The version of the installed ONNX Runtime."""
    return ort.__version__


def runtime_providers() -> list[str]:
    """The execution providers that the installed ONNX Runtime was built with."""
    return list(cast(Any, ort).get_available_providers())


def require_version(minimum: str, what: str = "this bundle") -> None:
    """Refuse an ONNX Runtime older than ``minimum``.

    Raises:
        BundleError: the installed ONNX Runtime is older than ``what`` needs.
    """
    if version_numbers(ort.__version__) < version_numbers(minimum):
        raise BundleError(
            f"{what} needs ONNX Runtime {minimum} or newer, and {ort.__version__} is installed: "
            "run `pip install -U onnxruntime`."
        )


def version_numbers(version: str) -> list[int]:
    """For comparing versions."""
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def open_session(
    model: Path | bytes,
    threads: int | None = None,
    *,
    keep_spinning: bool = True,
    kernels: bool | None = None,
    constants: Mapping[str, NDArray[Any]] | None = None,
) -> Any:
    """An ``InferenceSession`` of a file or a serialized graph, on the CPU, one thread per physical core unless told.

    ``kernels``: whether the graph runs on edgegen's own, where there are any; by default that of a file does. A
    ``UserWarning`` says that there are some that cannot be loaded; then it runs on ONNX Runtime's operators.
    ``constants``: values of external initializers, by name; the session reads them where they are.

    Raises:
        BundleError: ONNX Runtime cannot load the graph; its own words follow.
    """
    wanted = not isinstance(model, bytes) if kernels is None else kernels
    return _open(model, threads, keep_spinning=keep_spinning, kernels=wanted, constants=constants)[0]


def _open(
    model: Path | bytes,
    threads: int | None,
    *,
    keep_spinning: bool,
    kernels: bool,
    adapter: LowRank | None = None,
    states: Set[str] = frozenset(),
    conversion: KVConversion | None = None,
    constants: Mapping[str, NDArray[Any]] | None = None,
    on_handed_over: Callable[[], object] = lambda: None,
) -> tuple[Any, bytes | None, bool]:
    """The session, its graph where that was rewritten, and whether it runs on our operators."""
    options = session_options(threads)
    if not keep_spinning:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if constants:
        held = map(cast(Any, ort).OrtValue.ortvalue_from_numpy, constants.values())
        options.add_external_initializers([*constants], [*held])
    source, rewritten = model if isinstance(model, bytes) else str(model), None
    try:
        library = _loadable_kernels() if kernels else None
        wanted, kernels = kernels, library is not None
        if not isinstance(model, bytes) and not kernels and conversion is not None:
            raise BundleError(cannot_keep(conversion.format.name, model.name, wanted=wanted))
        if not isinstance(model, bytes) and not kernels and needs_kernels(read_regular(model)):
            raise BundleError(cannot_read_narrow(model.name, wanted=wanted))
        if not isinstance(model, bytes) and (kernels or adapter):
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.parent))
            graph = with_low_rank(read_regular(model), adapter) if adapter else read_regular(model)
            fuse = not _crowded(options)
            graph = with_kernels(graph, states, fuse=fuse and conversion is None) if kernels else graph
            if conversion is not None:  # attention that is fused cannot be told another KV cache
                graph = _converted(graph, model, conversion)
                graph = with_fusion(graph) if fuse else graph
            source = rewritten = graph
        elif isinstance(model, bytes) and kernels:
            source = with_kernels(model, states, fuse=False)  # what is between its nodes may be an output
        if library and isinstance(source, bytes):
            options.add_session_config_entry("edgegen.operators", f",{','.join(kernels_of(source))},")
            options.register_custom_ops_library(str(library))
        on_handed_over()
        # With its fallback it would print what failed, in words of the graph's, and try the same again.
        session = cast(Any, ort).InferenceSession(
            source, options, providers=["CPUExecutionProvider"], enable_fallback=False
        )
    except BundleError:
        raise
    except Exception as error:  # ONNX Runtime raises many classes of its own, with no common base
        name = "a graph" if isinstance(model, bytes) else model.name
        raise BundleError(f"ONNX Runtime {ort.__version__} cannot load {name}: {error}") from error
    _OPEN.add(session)
    return session, rewritten, kernels


def _crowded(options: Any) -> bool:
    """Whether more threads are asked for than can run at once: fused layers wait longer for one that does not run."""
    threads = options.intra_op_num_threads
    return threads > physical_cores() and threads > cores().at_once


def _converted(graph: bytes, file: Path, conversion: KVConversion) -> bytes:
    form, means = conversion
    assert form.make_graph is not None
    try:
        return form.make_graph(graph, means)
    except ValueError as error:
        raise BundleError(f"{file.name} cannot have a KV cache in {form.name}: {error}: {TAKE_STORED}") from None


def session_options(threads: int | None) -> Any:
    """ONNX Runtime's options of a session with ``threads`` threads, by default one per physical core."""
    options = cast(Any, ort).SessionOptions()
    options.intra_op_num_threads = threads or physical_cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; nothing is to be printed besides
    if not has_vnni() and not describe_kernels().endswith(("vnni", "amx")):  # Windows lets the library find out
        # Sums of products of 8-bit integers would saturate at 16 bits; this makes them exact, and half as fast.
        options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def _loadable_kernels() -> Path | None:
    """The library of our operators, where there is one that ONNX Runtime can load."""
    if (library := kernel_library()) is None:
        return None
    try:
        cast(Any, ort).SessionOptions().register_custom_ops_library(str(library))
    except Exception as error:  # as above
        warnings.warn(cannot_load(library, error), stacklevel=2)
        return None
    return library


_OPEN = WeakSet[Any]()
"""The sessions of this process."""


def _keep_for_good() -> None:
    """In a fork: freeing a session waits for its threads, which the fork has not, and ends the process with a fault."""
    for session in tuple(_OPEN):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_for_good)
