"""Something that another thread makes meanwhile."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from edgegen import LLM
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_cost import kv_warning
from edgegen.errors import BundleError
from edgegen.evaluation.parity.report import ParityReport
from edgegen.model.loading import Background, ignore_progress, open_model
from edgegen.model.ort_session import session_options
from edgegen.options.engine import EngineOptions
from edgegen.system import physical_cores
from tests.kernels.stock import needs_kernels
from tests.runtime.parity_reports import replace_parity, with_costly_int4_kv


def test_both_are_made_at_the_same_time():
    ours, theirs = threading.Event(), threading.Event()

    def make() -> str:
        theirs.set()
        assert ours.wait(60)
        return "made"

    with Background(make) as background:
        assert theirs.wait(60)
        ours.set()
    assert background.result() == "made"


def test_its_error_is_raised_where_the_result_is_wanted():
    def make() -> None:
        raise ValueError("broken")

    with Background(make) as background:
        pass
    with pytest.raises(ValueError, match="broken"):
        background.result()


def test_an_error_in_the_block_waits_for_the_thread():
    begun, done = threading.Event(), threading.Event()

    def make() -> None:
        assert begun.wait(60)
        done.set()

    def fail() -> None:
        with Background(make):
            begun.set()
            raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        fail()
    assert done.is_set()


def test_waiting_ends_when_it_is_made_or_in_time():
    go = threading.Event()
    with Background(lambda: go.wait(60)) as background:
        background.wait(0.01)  # and does not hang
        go.set()
        background.wait(60)
        assert background.result()


def test_a_runner_that_cannot_be_opened_is_an_error_at_once(fp32_bundle: Bundle, tmp_path: Path):
    """ONNX Runtime never gets the graph that loading waits to be handed over."""
    shutil.copytree(fp32_bundle.path, tmp_path / "copy")
    copy = Bundle.open(tmp_path / "copy")
    copy.file(copy.variant.prefill).unlink()
    with pytest.raises(BundleError, match=r"cannot load prefill\.onnx"):
        open_model(copy, EngineOptions(), ignore_progress)


@pytest.mark.usefixtures("all_cores")
def test_a_session_has_a_thread_for_each_performance_core_unless_told():
    assert session_options(None).intra_op_num_threads == physical_cores()
    assert session_options(3).intra_op_num_threads == 3


@needs_kernels
def test_an_int4_kv_cache_that_costs_much_is_told(int8_bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(int8_bundle.path, tmp_path / "bundle")
    said = with_costly_int4_kv(tmp_path / "bundle")
    LLM.load(tmp_path / "bundle", options=EngineOptions(threads=1)).close()
    with pytest.warns(UserWarning, match="KV cache in int4 costs") as warned:
        LLM.load(tmp_path / "bundle", options=EngineOptions(kv="int4", threads=1)).close()
    assert [(str(one.message), one.filename) for one in warned] == [(said, __file__)]


def test_what_the_weights_cost_is_not_blamed_on_the_kv_cache(int8_bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(int8_bundle.path, tmp_path / "bundle")
    for name, cost in (("int8", 0.3), ("int8-kv-int8", 0.301), ("int8-kv-int4", 0.34)):
        replace_parity(tmp_path / "bundle", name, replace(ParityReport.read(int8_bundle).variants[name], mean_kl=cost))
    assert kv_warning(Bundle.open(tmp_path / "bundle"), "int4") is None
    with_costly_int4_kv(tmp_path / "bundle", 0.36)
    assert "0.36 nats, and 0.3 with int8" in str(kv_warning(Bundle.open(tmp_path / "bundle"), "int4"))
    assert kv_warning(Bundle.open(tmp_path / "bundle"), "int8") is None
