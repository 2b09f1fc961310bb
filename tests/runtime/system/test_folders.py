"""Files that other programs have open, as on Windows."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from edgegen.system import locked, remove_folder, retry_in_use
from tests.root import ROOT
from tests.windows_files import windows_files


def windows_error(number: int, code: int) -> OSError:
    """An error with the number that Windows gives it, and the code that Python makes of that."""
    error = OSError(code, "in use")
    error.winerror = number  # pyright: ignore[reportAttributeAccessIssue]: on Windows alone it has one
    return error


class InUse:
    """A file that another program has open for the given number of attempts."""

    def __init__(self, attempts: int, error: OSError | None = None) -> None:
        self.left = attempts
        self._error = error or PermissionError(13, "in use")

    def remove(self) -> str:
        if self.left:
            self.left -= 1
            raise self._error
        return "removed"


@pytest.mark.parametrize("attempts", [0, 1, 3])
def test_what_is_in_use_for_a_moment_is_tried_again(attempts: int) -> None:
    assert retry_in_use(InUse(attempts).remove, [0, 0, 0]) == "removed"


@pytest.mark.parametrize(
    "error",
    [
        windows_error(5, errno.EACCES),
        windows_error(32, errno.EACCES),
        windows_error(33, errno.EACCES),
        windows_error(145, errno.ENOTEMPTY),  # a file in the folder is removed, but still open
        windows_error(1224, errno.EINVAL),
    ],
    ids=lambda error: str(error.winerror),
)
def test_every_error_of_windows_for_an_open_file_is_tried_again(error: OSError) -> None:
    assert retry_in_use(InUse(2, error).remove, [0, 0]) == "removed"


def test_what_stays_in_use_raises_the_last_error() -> None:
    file = InUse(5)
    with pytest.raises(PermissionError, match="in use"):
        retry_in_use(file.remove, [0, 0, 0])
    assert file.left == 1


def test_other_errors_are_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        retry_in_use((tmp_path / "none").unlink, [60.0])


def test_a_lock_leaves_no_file_though_it_is_open_until_the_end(tmp_path: Path) -> None:
    with windows_files():
        with locked(tmp_path / "out") as alone, locked(tmp_path / "out") as second:
            assert (alone, second) == (True, False)
        first, second = locked(tmp_path / "out"), locked(tmp_path / "out")
        assert first.__enter__()
        with second as alone:
            assert not alone
            first.__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_of_a_folder_in_use_all_else_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    for name in ("a", "inner/b", "z"):
        (folder / name).write_text(name)
    with windows_files():
        with (folder / "inner" / "b").open("rb"):
            assert isinstance(remove_folder(folder, ()), PermissionError)
            assert [path.name for path in folder.rglob("*")] == ["inner", "b"]
        assert remove_folder(folder, ()) is None
    assert not folder.exists()
    assert remove_folder(folder, ()) is None


ENDS = """
import sys
from pathlib import Path
from edgegen.system import remove_folder
from tests.windows_files import windows_files

with windows_files(), Path(sys.argv[1], "file").open("rb"):
    assert remove_folder(Path(sys.argv[1]), (), at_exit=True) is not None
assert Path(sys.argv[1], "file").exists()
"""


def test_what_was_in_use_is_removed_when_the_process_ends(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("in use")
    subprocess.run([sys.executable, "-c", ENDS, str(tmp_path / "folder")], check=True, cwd=ROOT)
    assert list(tmp_path.iterdir()) == []
