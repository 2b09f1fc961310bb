"""Check every place of kernels/ort/onnxruntime_abi.h against an ONNX Runtime: `python -m tests.kernels.abi`.

A small operator in C, tests/kernels/probe.c, asks by each place for what is known otherwise. Needs a C compiler, NumPy,
onnx and the ONNX Runtime in question, nothing of edgegen.
"""

import ctypes
import gc
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "kernels/ort/onnxruntime_abi.h"
_COMPILER = ("cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")


def places() -> dict[str, int]:
    """The header's places by name."""
    enum = HEADER.read_text().split("ORT_CREATE_STATUS = 0")[0].rsplit("enum {", 1)
    text = HEADER.read_text()[len(enum[0]) :].split("};", 1)[0]
    return {name: int(place) for name, place in re.findall(r"(ORT_\w+) = (\d+)", text)}


def build_probe(to: Path) -> Path:
    """Compile the probe of ONNX Runtime's declarations into a folder, and return its path.

    Raises:
        subprocess.CalledProcessError: the compiler fails.
    """
    library = to / "probe.so"
    subprocess.run(
        [*_COMPILER, f"-I{ROOT / 'kernels'}", str(ROOT / "tests/kernels/probe.c"), "-o", str(library)], check=True
    )
    return library


def ask(library: Path) -> dict[str, set[str]]:
    """Return the probe's findings of each place: "right", "wrong" or, asked several times, both."""
    options = cast(Any, ort).SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("probe.entry", "words")
    options.register_custom_ops_library(str(library))
    session = cast(Any, ort).InferenceSession(_graph(), options, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    if y.tolist() != [[0], [10], [20]]:
        raise AssertionError(f"the probe's output is not what it wrote: {y.tolist()}")
    del session
    gc.collect()
    probe = ctypes.CDLL(str(library))
    probe.probe_report.restype = ctypes.c_char_p
    found: dict[str, set[str]] = {}
    for line in probe.probe_report().decode().splitlines():
        name, verdict = line.split()
        found.setdefault(name, set()).add(verdict)
    return found


def _graph() -> bytes:
    weights = helper.make_tensor("weights", TensorProto.UINT8, [2, 2], bytes([1, 2, 3, 4]), raw=True)
    node = helper.make_node("Probe", ["x", "weights", "", "x"], ["y"], domain="probe", n=42, r=0.5)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])
    graph = helper.make_graph([node], "probe", [x], [y], [weights])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("probe", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def main() -> int:
    """Say what is wrong; 1 if anything is."""
    with tempfile.TemporaryDirectory() as folder:
        found = ask(build_probe(Path(folder)))
    wrong = [name for name, verdicts in found.items() if verdicts != {"right"}]
    missing = sorted(places().keys() - found.keys())
    print(f"ONNX Runtime {ort.__version__}: {len(found)} places asked; wrong: {wrong or 'none'}")
    if missing:
        print(f"not asked: {missing}", file=sys.stderr)
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
