"""Which operators run: edgegen's kernels, or ONNX Runtime's where there are none, they do not load or by choice."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from edgegen.graph.kernel_operators import with_kernels
from edgegen.graph.node import kernels_of
from edgegen.model import kernels, ort_session
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from tests.kernels.material import instruction_sets
from tests.kernels.stock import needs_kernels

STOCK = EngineOptions(threads=1, kernels="stock")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The library is no library."""
    library = tmp_path / "edgegen_kernels.so"
    library.write_bytes(b"of another platform")
    monkeypatch.setattr(kernels, "_LIBRARY", library)
    return library


def logits(options: EngineOptions) -> NDArray[np.float32]:
    runner = open_runner(Bundle.open(BundleStore().resolve(DEFAULT_MODEL)), options)
    return runner.prefill(runner.new_cache(), 0, [*range(5, 45)]).copy()


def test_a_library_that_cannot_be_loaded_is_one_line_and_stock_runs(broken: Path) -> None:
    with pytest.warns(UserWarning, match="cannot be loaded, ONNX Runtime's operators run instead") as warned:
        found = logits(EngineOptions(threads=1))
    (warning,) = warned
    assert str(broken) in str(warning.message)
    assert "\n" not in str(warning.message)
    np.testing.assert_array_equal(found, logits(STOCK))


def test_stock_asks_for_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(ort_session, "kernel_library", lambda: asked.append("library"))
    logits(STOCK)
    assert asked == []
    logits(EngineOptions(threads=1))
    assert asked == ["library"]


@pytest.mark.usefixtures("broken")
def test_the_instruction_set_in_use_is_reported() -> None:
    assert kernels.describe_kernels(wanted=False) == "stock"
    assert kernels.describe_kernels().startswith("stock (")
    assert kernels.describe_kernels() != "stock (no library for this platform: edgegen_kernels.so is not there)"


def test_missing_kernels_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernels, "_LIBRARY", tmp_path / "edgegen_kernels.so")
    assert kernels.describe_kernels() == "stock (no library for this platform: edgegen_kernels.so is not there)"


@needs_kernels
def test_kernels_are_named_and_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEGEN_ISA", raising=False)
    best = kernels.describe_kernels()
    assert best in ("amx", "avx512vnni", "avxvnni", "avx2", "i8mm", "dotprod", "neon", "portable")
    if Path("/proc/cpuinfo").is_file():  # what the processor has by Linux's word
        assert best == instruction_sets()[0]
    monkeypatch.setenv("EDGEGEN_ISA", "portable")
    assert kernels.describe_kernels() == "portable"
    monkeypatch.setenv("EDGEGEN_ISA", "amx")  # where the processor has none, the best runs
    assert kernels.describe_kernels() == best


@needs_kernels
@pytest.mark.parametrize("kv", ["float32", "int8"])
def test_a_session_has_the_kernels_of_its_graph_alone(kv: KVDtype) -> None:
    """ONNX Runtime takes milliseconds to describe the others."""
    bundle = Bundle.open(BundleStore().resolve(DEFAULT_MODEL))
    graph = with_kernels(bundle.file(bundle.variant_with(kv).prefill).read_bytes())
    nodes = onnx.load_from_string(graph).graph.node
    names = kernels_of(graph)
    assert names == sorted({node.op_type for node in nodes if node.domain == "edgegen"})
    assert names
    weights = str(bundle.file(bundle.variant_with(kv).prefill).parent)
    for missing in (None, *names):
        options = cast(Any, ort).SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", weights)
        listed = [name for name in names if name != missing]
        options.add_session_config_entry("edgegen.operators", f",{','.join(listed)},")
        options.register_custom_ops_library(str(kernels.kernel_library()))
        with pytest.raises(Exception, match=f"{missing}") if missing else nullcontext():
            cast(Any, ort).InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def test_functions_are_no_kernels() -> None:
    node = onnx.helper.make_node("CausalConv_4_bias", ["x"], ["y"], domain="edgegen")
    assert kernels_of(node.SerializeToString()) == []
    node.op_type = "CausalConv"
    assert kernels_of(node.SerializeToString()) == ["CausalConv"]


@needs_kernels
def test_a_list_of_kernels_that_is_too_long_is_refused() -> None:
    options = cast(Any, ort).SessionOptions()
    options.add_session_config_entry("edgegen.operators", "," * 1024)
    with pytest.raises(Exception, match="not large enough"):
        options.register_custom_ops_library(str(kernels.kernel_library()))


@needs_kernels
def test_kernels_give_nearly_what_stock_gives() -> None:
    own, stock = logits(EngineOptions(threads=1)), logits(STOCK)
    assert 0 < np.linalg.norm(own - stock) < 0.02 * np.linalg.norm(stock)
