"""Progress of a download while its file grows."""

import threading
from pathlib import Path

import pytest

from edgegen_export.checkpoint.download_watch import watching
from tests.waiting import PATIENCE_S, until


def test_bytes_that_are_there_are_told_and_at_the_end_all(tmp_path: Path) -> None:
    told = list[tuple[int, int]]()
    (tmp_path / "other.incomplete").write_bytes(bytes(50))
    with watching(tmp_path, "ab", 100, lambda done, total: told.append((done, total)), 0.001):
        assert until(lambda: (0, 100) in told)
        (tmp_path / "ab.x1.incomplete").write_bytes(bytes(30))
        assert until(lambda: (30, 100) in told)
    assert told[-1] == (100, 100)
    assert {*told} == {(0, 100), (30, 100), (100, 100)}


def test_a_download_that_fails_is_not_told_as_whole(tmp_path: Path) -> None:
    told = list[int]()

    def fail() -> None:
        with watching(tmp_path, "ab", 100, lambda done, _: told.append(done)):
            assert until(lambda: bool(told))
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert {*told} == {0}


def test_a_listener_that_has_gone_ends_no_download(tmp_path: Path) -> None:
    heard = threading.Event()

    def tell(done: int, total: int) -> None:
        if done < total:
            heard.set()
            raise BrokenPipeError

    with watching(tmp_path, "ab", 100, tell):
        assert heard.wait(PATIENCE_S)
