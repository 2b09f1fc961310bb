"""Kernels: the library of edgegen's own operators, which run in place of ONNX Runtime's.

The library is compiled from ``kernels/``. Without it every graph runs on ONNX Runtime's operators.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Literal

from edgegen.bundle.kv_format import TAKE_STORED, KVDtype

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_LIBRARY = Path(__file__).parent / f"edgegen_kernels{_SUFFIX}"


def kernel_library() -> Path | None:
    """The compiled library; None where there is none, or none that is worth its while.

    On processors without AVX2 and FMA it has portable C alone, which is slower than ONNX Runtime's operators. The
    variable ``EDGEGEN_ISA`` asks for it nevertheless.
    """
    if not _LIBRARY.is_file() or (_instruction_set() == "portable" and "EDGEGEN_ISA" not in os.environ):
        return None
    return _LIBRARY


def runs_kernels(choice: Literal["auto", "stock"]) -> bool:
    """Whether a model that is opened with ``EngineOptions.kernels`` of ``choice`` runs on our operators."""
    return choice == "auto" and kernel_library() is not None


def _instruction_set() -> str:
    """Return the instruction set that the library's kernels use on this processor; empty where it cannot be loaded."""
    try:
        name = ctypes.CDLL(str(_LIBRARY)).edgegen_kernels_name
    except (OSError, AttributeError):
        return ""
    name.restype = ctypes.c_char_p
    return name().decode()


def cannot_load(library: Path, error: Exception) -> str:
    """The line that says that ``library`` cannot be used, and what runs instead."""
    reason = " ".join(str(error).split())
    return (
        f"the kernels of {library} cannot be loaded, ONNX Runtime's operators run instead (--kernels stock): {reason}"
    )


def cannot_read_narrow(graph: str, *, wanted: bool) -> str:
    """The line that refuses a graph with matrices of 3 or 2 bits where stock operators would run it."""
    return (
        f"{graph} has matrices of 3 or 2 bits, which only edgegen's kernels read, and what runs here is "
        f"{describe_kernels(wanted=wanted)}: take a bundle of --int4 or --int8"
    )


def cannot_keep(kv: KVDtype, graph: str, *, wanted: bool) -> str:
    """The line that refuses a KV cache where stock operators would run."""
    return (
        f"only edgegen's kernels keep a KV cache in {kv}, and what runs {graph} here is "
        f"{describe_kernels(wanted=wanted)}: {TAKE_STORED}"
    )


def describe_kernels(*, wanted: bool = True) -> str:
    """Describe in a few words what computes matrices here: our kernels for this processor, or stock operators.

    ``wanted``: whether ours may.
    """
    if not wanted:
        return "stock"
    if not _LIBRARY.is_file():
        return f"stock (no library for this platform: {_LIBRARY.name} is not there)"
    if kernel_library() is None:
        return "stock (this processor has no AVX2 and FMA, and portable kernels would be slower)"
    return _instruction_set() or f"stock ({_LIBRARY.name} cannot be loaded)"
