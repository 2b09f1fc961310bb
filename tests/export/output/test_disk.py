"""Free disk space is checked before anything is downloaded or written."""

from pathlib import Path

import pytest

from edgegen.errors import ExportError
from edgegen_export.files.disk import Disk, DiskNeed, amount, disk_of, refuse_full_disk
from edgegen_export.pipeline import export
from edgegen_export.preflight import preflight
from tests.export.checkpoint.layouts import write_gpt2

CACHE = DiskNeed(Path("/cache"), 3_000_000_000, "the download", "set HF_HOME to a folder on another disk")
BUNDLE = DiskNeed(Path("/out"), 2_000_000_000, "the bundle", "give -o a folder on another disk")


def test_needs_on_one_disk_are_added() -> None:
    with pytest.raises(ExportError) as raised:
        refuse_full_disk([CACHE, BUNDLE], lambda _: Disk(1, 4_500_000_000))
    assert str(raised.value) == (
        f"the disk is too full: the export needs 3.0 GB for the download in {CACHE.folder} and 2.0 GB for the bundle "
        f"in {BUNDLE.folder}, and 4.5 GB are free. Free 500 MB more, or set HF_HOME to a folder on another disk, or "
        "give -o a folder on another disk."
    )


def test_other_disks_count_for_themselves() -> None:
    disks = {CACHE.folder: Disk(1, CACHE.nbytes), BUNDLE.folder: Disk(2, BUNDLE.nbytes)}
    refuse_full_disk([CACHE, BUNDLE], disks.__getitem__)
    disks[BUNDLE.folder] = Disk(2, BUNDLE.nbytes - 1)
    with pytest.raises(ExportError, match=r"2\.0 GB for the bundle in [/\\]out, and 2\.0 GB are free\.") as raised:
        refuse_full_disk([CACHE, BUNDLE], disks.__getitem__)
    assert str(CACHE.folder) not in str(raised.value)
    disks[CACHE.folder] = Disk(1, 0)
    with pytest.raises(ExportError, match=r"(?s)[/\\]cache.*\n.*[/\\]out"):
        refuse_full_disk([CACHE, BUNDLE], disks.__getitem__)


def test_a_system_that_does_not_tell_is_trusted() -> None:
    refuse_full_disk([CACHE, BUNDLE], lambda _: None)


def test_a_folder_that_is_not_there_yet_lies_on_the_disk_of_its_parent(tmp_path: Path) -> None:
    here, there = disk_of(tmp_path), disk_of(tmp_path / "new" / "deeper")
    assert here is not None
    assert there is not None
    assert here.key == there.key


@pytest.mark.parametrize(("nbytes", "text"), [(1, "1 MB"), (52_400_000, "52 MB"), (13_480_000_000, "13.5 GB")])
def test_amounts(nbytes: int, text: str) -> None:
    assert amount(nbytes) == text


def test_an_export_to_a_full_disk_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = write_gpt2(tmp_path / "checkpoint", layout="original", n_layer=1, n_embd=32, n_positions=16)

    def full(needs: list[DiskNeed]) -> None:
        refuse_full_disk(needs, lambda _: Disk(1, 1_000_000))

    monkeypatch.setattr(preflight, "refuse_full_disk", full)
    with pytest.raises(ExportError, match=r"needs \d+ MB for the bundle and temporary files in .*, and 1 MB are free"):
        export(str(checkpoint), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_an_interrupted_export_left_needs_no_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = write_gpt2(tmp_path / "checkpoint", layout="original", n_layer=1, n_embd=32, n_positions=16)
    needs = list[DiskNeed]()
    monkeypatch.setattr(preflight, "refuse_full_disk", needs.extend)
    export(str(checkpoint), tmp_path / "out")
    kept = tmp_path / "again" / ".unfinished-0123"
    kept.mkdir(parents=True)
    (kept / "layers.0.npz").write_bytes(bytes(5000))
    export(str(checkpoint), tmp_path / "again")
    assert needs[0].nbytes - needs[1].nbytes == 5000
