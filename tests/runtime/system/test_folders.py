"""Files that other programs have open, as on Windows."""

from pathlib import Path

import pytest

from edgegen.system import retry_in_use


class InUse:
    """A file that another program has open for so many attempts."""

    def __init__(self, attempts: int) -> None:
        self.left = attempts

    def remove(self) -> str:
        if self.left:
            self.left -= 1
            raise PermissionError(13, "in use")
        return "removed"


@pytest.mark.parametrize("attempts", [0, 1, 3])
def test_what_is_in_use_for_a_moment_is_tried_again(attempts: int) -> None:
    assert retry_in_use(InUse(attempts).remove, [0, 0, 0]) == "removed"


def test_what_stays_in_use_raises_the_last_error() -> None:
    file = InUse(5)
    with pytest.raises(PermissionError, match="in use"):
        retry_in_use(file.remove, [0, 0, 0])
    assert file.left == 1


def test_other_errors_are_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        retry_in_use((tmp_path / "none").unlink, [60.0])
