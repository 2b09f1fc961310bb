"""Something that another thread makes meanwhile."""

import shutil
import threading
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from edgegen.errors import BundleError
from edgegen.model.loading import Background, ignore_progress, open_model
from edgegen.model.ort_session import session_options
from edgegen.options.engine import EngineOptions
from edgegen.system import physical_cores


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
