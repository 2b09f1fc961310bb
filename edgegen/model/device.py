"""Memory of a GPU: arrays there, copies between them and to and from the host's, and graphs that run over them.

ONNX Runtime allocates, and copies too: by graphs of one operator, bound to addresses. So no library of CUDA's own is
called. Everything works the same in the host's memory, which is how it is tested where there is no GPU.
"""

import ctypes
import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import DeviceError, first_line
from edgegen.graph.float16_attention import copying_graph, with_float16_attention
from edgegen.graph.kernel_operators import needs_kernels
from edgegen.model.ort_session import CUDA_PROVIDER, RunSwitch, ort, session_options
from edgegen.system import read_regular

HALF = np.dtype(np.float16)


@dataclass(frozen=True, slots=True)
class Device:
    """Where graphs run: ``name`` is ONNX Runtime's word for its memory, ``provider`` what runs them."""

    name: str
    provider: str


CUDA = Device("cuda", CUDA_PROVIDER)


class Place(NamedTuple):
    """An array of float16 in the device's memory, or a part of one."""

    address: int
    shape: tuple[int, ...]


class DeviceArray:
    """An array of float16 [slots, …] in the memory of ``device``."""

    def __init__(self, device: Device, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self._value = cast(Any, ort.OrtValue).ortvalue_from_shape_and_type(list(shape), np.float16, device.name, 0)
        self._address = int(self._value.data_ptr())

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * HALF.itemsize

    def slots(self, first: int, count: int) -> Place:
        """``count`` slots from ``first``."""
        of_slot = int(np.prod(self.shape[1:])) * HALF.itemsize
        return Place(self._address + first * of_slot, (count, *self.shape[1:]))


class DeviceBinding:
    """A graph's inputs and outputs; arrays of the device are bound by address, and small ones copied to it.

    What is bound must stay alive. An input of the host's memory is copied when it is bound: it has to be bound anew
    before each run.
    """

    def __init__(self, session: Any, device: Device, switch: RunSwitch | None = None) -> None:
        self._session = session
        self._device = device
        self._switch = switch or RunSwitch()
        self._io = session.io_binding()
        self._names = {value.name for value in session.get_inputs()}

    def takes(self, name: str) -> bool:
        """Whether the graph has this input."""
        return name in self._names

    def copied_input(self, name: str, array: NDArray[Any]) -> None:
        self._io.bind_cpu_input(name, array)

    def input(self, name: str, place: Place) -> None:
        self._io.bind_input(name, self._device.name, 0, np.float16, list(place.shape), place.address)

    def output(self, name: str, place: Place) -> None:
        self._io.bind_output(name, self._device.name, 0, np.float16, list(place.shape), place.address)

    def returned_output(self, name: str) -> None:
        """Have :meth:`run` return this output; of those returned and bound, the first ones."""
        self._io.bind_output(name, "cpu")

    def run(self, returned: int = 0) -> list[NDArray[Any]]:
        """Run the graph; the first ``returned`` outputs, in the order in which they were bound.

        Raises:
            DeviceError: ONNX Runtime cannot; its own words follow.
        """
        try:
            self._session.run_with_iobinding(self._io, self._switch.run_options)
            return [value.numpy() for value in self._io.get_outputs()[:returned]]
        except Exception as error:  # ONNX Runtime raises many classes of its own, with no common base
            raise DeviceError(f"ONNX Runtime {ort.__version__} cannot run the graph: {first_line(error)}") from error


class DeviceCopies:
    """Copies between arrays of a device, and to and from the host's memory."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._copying = _open(copying_graph(b"Identity", 1), device)
        self._joining = _open(copying_graph(b"Concat", 2, axis=2), device)

    def copy(self, source: Place, target: Place) -> None:
        """``source`` to ``target``, of the same shape."""
        bound = DeviceBinding(self._copying, self._device)
        bound.input("x0", source)
        bound.output("y", target)
        bound.run()

    def lengthened(self, source: Place, more: Place, target: Place) -> None:
        """``source`` [n, heads, length, dim] with ``more`` positions after it, to ``target``."""
        bound = DeviceBinding(self._joining, self._device)
        bound.input("x0", source)
        bound.input("x1", more)
        bound.output("y", target)
        bound.run()

    def read(self, source: Place) -> NDArray[np.float16]:
        """``source``, in the host's memory."""
        bound = DeviceBinding(self._copying, self._device)
        bound.input("x0", source)
        bound.returned_output("y")
        return bound.run(1)[0]

    def write(self, array: NDArray[np.float16], target: Place) -> None:
        """``array``, of the host's memory, to ``target``."""
        bound = DeviceBinding(self._copying, self._device)
        bound.copied_input("x0", array)
        bound.output("y", target)
        bound.run()


class DeviceSession:
    """A graph with float32 KV cache, which runs on ``device`` with attention and KV cache in float16."""

    def __init__(self, graph: Path, device: Device, threads: int | None = None) -> None:
        """Open a session of ``graph`` on ``device``.

        Raises:
            DeviceError: the device cannot be used.
        """
        self.device = device
        self.switch = RunSwitch()
        read = read_regular(graph)
        if needs_kernels(read):
            raise DeviceError(
                f"{graph.name} has matrices of 3 or 2 bits, which only edgegen's kernels read: run it on the CPU"
            )
        self._session = _open(with_float16_attention(read), device, threads, graph.parent)

    def binding(self) -> DeviceBinding:
        """A new, empty binding."""
        return DeviceBinding(self._session, self.device, self.switch)


def problem_of(device: Device) -> str | None:
    """Why ``device`` cannot be used; None where it can."""
    try:
        DeviceCopies(device)
    except DeviceError as error:
        return str(error)
    return None


def _open(graph: bytes, device: Device, threads: int | None = None, folder: Path | None = None) -> Any:
    """The session of ``graph``, whose weights are in ``folder``.

    Raises:
        DeviceError: the provider is not there, or does not run it.
    """
    runtime: Any = ort
    if device.provider not in runtime.get_available_providers():
        raise DeviceError(
            f"the installed ONNX Runtime {ort.__version__} has no {device.provider}: run `pip uninstall -y "
            "onnxruntime`, then `pip install onnxruntime-gpu[cuda,cudnn]`."
        )
    options = session_options(threads)
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    try:
        runtime.set_default_logger_severity(_FATAL)  # a provider that cannot be loaded is told below, in one line
        if device == CUDA:
            with redirect_stdout(io.StringIO()):  # it prints what it does not find
                runtime.preload_dlls()
        providers = list(dict.fromkeys([device.provider, "CPUExecutionProvider"]))
        session = runtime.InferenceSession(graph, options, providers=providers, enable_fallback=False)
    except Exception as error:  # of many classes, as above
        raise DeviceError(
            f"ONNX Runtime {ort.__version__} cannot use {device.provider}: {first_line(error)}"
        ) from error
    finally:
        runtime.set_default_logger_severity(_WARNING)
    if device.provider not in session.get_providers():
        raise DeviceError(f"ONNX Runtime {ort.__version__} cannot use {device.provider}: {_missing()}.")
    return session


_WARNING, _FATAL = 2, 4
"""Severities of ONNX Runtime's log; the first is its default."""


def _missing() -> str:
    """Say what CUDA's provider, which ONNX Runtime leaves out without an error, is missing."""
    folder, cuda = Path(ort.__file__).parent / "capi", "onnxruntime_providers_cuda"
    library = folder / (f"{cuda}.dll" if sys.platform == "win32" else f"lib{cuda}.so")
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return f"{first_line(error)}; run `pip install onnxruntime-gpu[cuda,cudnn]`"
    return "there is no GPU with CUDA, or its driver is too old"
