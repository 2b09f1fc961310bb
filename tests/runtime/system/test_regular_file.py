"""Files are read, and what is no file is refused at once: pipes without a writer, devices that never end, folders."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from edgegen.batch.ray import Block, read_block
from edgegen.bundle.arrays_file import read_arrays
from edgegen.bundle.bundle import Bundle
from edgegen.errors import ManifestError, SessionError
from edgegen.generation.session import Session
from edgegen.system import open_regular, read_regular, read_regular_text
from edgegen_export.tensors.mapped_file import MappedFile
from tests.root import ROOT
from tests.systems import needs_posix

MAY_WAIT = {
    "edgegen/cli/constraint_flags.py": "grammars and schemas that a user names, by a process substitution too",
    "edgegen/cli/serve.py": "keys that a user names, likewise",
    "edgegen/cli/text_source.py": "prompts that a user names, likewise",
    "edgegen/server/page.py": "a file of the package",
    "edgegen/bundle/catalogue.py": "a file of the package",
    "edgegen/system/build_info.py": "a file of the package",
    "edgegen/system/source.py": "files of the system",
    "edgegen/generation/session.py": "a file that was made right before",
    "edgegen/batch/output.py": "a file that was read right before",
}
READS = re.compile(r"""\.read_(?:text|bytes)\(|\bopen\((?:[^()"']*,\s*)?(?:mode=)?["']r""")


def pipe(folder: Path) -> Path:
    path = folder / "pipe"
    os.mkfifo(path)
    return path


def device(folder: Path) -> Path:
    path = folder / "device"
    path.symlink_to("/dev/zero")
    return path


def first_line(path: Path) -> object:
    return read_block(path, Block(1, 0, 1))


@needs_posix("pipes in folders")
@pytest.mark.parametrize("make", [pipe, device])
@pytest.mark.parametrize(
    "read",
    [
        open_regular,
        read_regular,
        read_regular_text,
        read_arrays,
        MappedFile,
        first_line,
    ],
)
def test_pipes_and_devices_are_refused(
    make: Callable[[Path], Path], read: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="it is a pipe or a device, not a file"):
        read(make(tmp_path))


@needs_posix("pipes in folders")
@pytest.mark.parametrize("make", [pipe, device])
def test_a_bundle_and_a_session_say_so_in_a_sentence(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(SessionError, match=r"cannot be read: it is a pipe or a device, not a file\.$"):
        Session.load(path)
    path.rename(tmp_path / "edgegen.json")
    with pytest.raises(ManifestError, match=r"edgegen\.json cannot be read: it is a pipe or a device, not a file\.$"):
        Bundle.open(tmp_path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=re.escape(str(tmp_path.name))):
        open_regular(tmp_path)


def test_a_file_is_read_as_it_is_and_its_text_with_plain_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("é\r\nb".encode())
    assert read_regular(path) == b"\xc3\xa9\r\nb"
    assert read_regular_text(path) == "é\nb"
    assert read_regular_text(path, 1) == "é"


def test_all_else_that_may_wait_is_known() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("edgegen", "export/edgegen_export")
        for path in (ROOT / folder).rglob("*.py")
        if READS.search(path.read_text("utf-8"))
    }
    assert found == MAY_WAIT.keys()
