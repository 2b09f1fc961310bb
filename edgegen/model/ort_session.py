"""ONNX Runtime sessions: telemetry, threads, providers, I/O binding, and one session or two for a variant's graphs.

A :class:`GraphPair` runs the prefill and the decode graph of one variant. :class:`OneSession` opens the prefill graph,
which gives the logits of whatever positions it is asked for, for both: one packed copy of the weights, one thread pool.
:class:`TwoSessions` opens each graph in a session of its own: twice the packed weights, for tools and for checks. Both
give the same bits.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import NDArray

# Wheels since 1.29 send telemetry by default; only this, before the import, switches all of it off.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime as ort

from edgegen.bundle.manifest import Phase
from edgegen.errors import BundleError
from edgegen.model.kernels import kernel_library, with_kernels
from edgegen.system import has_vnni, physical_cores

Array = NDArray[Any]


class Buffer:
    """NumPy memory that ONNX Runtime reads and writes in place."""

    __slots__ = ("array", "ortvalue")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.ortvalue: Any = cast(Any, ort.OrtValue).ortvalue_from_numpy(array)


class RunSwitch:
    """Interrupts runs from another thread: a run under way fails within a millisecond or two."""

    def __init__(self) -> None:
        self.run_options: Any = cast(Any, ort).RunOptions()

    def interrupt(self) -> None:
        """Fail every run, until ``resume``."""
        self.run_options.terminate = True

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
        """Run the graph over what is bound; outputs are in their buffers when this returns."""
        self._session.run_with_iobinding(self._io, self._switch.run_options)


class GraphPair(Protocol):
    """A variant's two graphs, ready to be bound and run; ``switch`` ends their runs."""

    @property
    def switch(self) -> RunSwitch: ...

    def binding(self, phase: Phase) -> Binding:
        """A new, empty binding for one of the graphs."""
        ...


class OneSession:
    """One graph, of prefill as a rule, for both phases."""

    def __init__(self, graph: Path, threads: int | None = None, *, keep_spinning: bool = True) -> None:
        """``keep_spinning``: whether idle threads may, which is fast unless another session needs their cores."""
        self.switch = RunSwitch()
        self._session = open_session(graph, threads, keep_spinning=keep_spinning)

    def binding(self, phase: Phase) -> Binding:
        return Binding(self._session, self.switch)


class TwoSessions:
    """Each graph in a session of its own."""

    def __init__(self, prefill: Path, decode: Path, threads: int | None = None) -> None:
        self.switch = RunSwitch()
        # Idle threads of one session would spin on the cores that the other needs.
        self._sessions: dict[Phase, Any] = {
            "prefill": open_session(prefill, threads, keep_spinning=False),
            "decode": open_session(decode, threads, keep_spinning=False),
        }

    def binding(self, phase: Phase) -> Binding:
        return Binding(self._sessions[phase], self.switch)


def runtime_version() -> str:
    """The version of the installed ONNX Runtime."""
    return ort.__version__


def require_version(minimum: str, what: str = "this bundle") -> None:
    """
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


def save_packed(graph: Path, to: Path, weights: str) -> None:
    """Write ``graph`` as it is when optimized, to ``to``, and the weights as they are packed, to a file ``weights``
    beside it.

    Raises:
        BundleError: ONNX Runtime cannot load the graph, or write it; its own words follow.
    """
    entries = {
        "session.save_external_prepacked_constant_initializers": "1",
        "session.optimized_model_external_initializers_file_name": weights,
    }
    open_session(graph, entries=entries, save_to=to)


def open_session(
    model: Path | bytes,
    threads: int | None = None,
    *,
    keep_spinning: bool = True,
    entries: Mapping[str, str] | None = None,
    save_to: Path | None = None,
) -> Any:
    """An ``InferenceSession`` of a file or a serialized graph, on the CPU, one thread per physical core unless told.

    ``entries``: more of ONNX Runtime's configuration; ``save_to``: where the optimized graph is written.

    Raises:
        BundleError: ONNX Runtime cannot load the graph; its own words follow.
    """
    options = cast(Any, ort).SessionOptions()
    options.intra_op_num_threads = threads or physical_cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; nothing is to be printed besides
    if not keep_spinning:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if not has_vnni():
        # Sums of products of 8-bit integers would saturate at 16 bits; this makes them exact, and half as fast.
        options.add_session_config_entry("session.x64quantprecision", "1")
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    if save_to is not None:
        options.optimized_model_filepath = str(save_to)
    source = model if isinstance(model, bytes) else str(model)
    if (library := kernel_library()) is not None and not isinstance(model, bytes) and save_to is None:
        options.register_custom_ops_library(str(library))
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.parent))
        source = with_kernels(model.read_bytes())
    try:
        return cast(Any, ort).InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises many classes of its own, with no common base
        name = "a graph" if isinstance(model, bytes) else model.name
        raise BundleError(f"ONNX Runtime {ort.__version__} cannot load {name}: {error}") from error
