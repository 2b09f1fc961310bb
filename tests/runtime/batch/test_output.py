"""The output of a batch: resumed from every cut of its journal, and what is refused."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgegen.batch.input import InputLine, read_lines
from edgegen.batch.output import FileOutput, StreamOutput
from edgegen.batch.record import Entry
from edgegen.errors import UsageError
from tests.root import ROOT
from tests.systems import link
from tests.windows_files import windows_files

INPUT = b'{"a": 1}\n\n{"b": "\xc3\xa9"}\n[]\n{"c": 3}'
FINGERPRINT = {"model": "m", "top_p": "0.5"}


def entry_of(line: InputLine) -> Entry:
    record = {"line": line.number, "text": line.data.decode()}
    return Entry(line.digest, json.dumps(record, ensure_ascii=False).encode(), failed=line.data == b"[]")


def lines(data: bytes = INPUT) -> list[InputLine]:
    return [*read_lines(io.BytesIO(data))]


def expected(data: bytes = INPUT) -> bytes:
    return b"".join(entry_of(line).record + b"\n" for line in lines(data))


def run(path: Path, data: bytes = INPUT, *, most: int = 100, force: bool = False) -> list[int]:
    """Go on with a batch, for ``most`` lines; the numbers of those that were answered."""
    answered = list[int]()
    with FileOutput(path, FINGERPRINT, force=force) as output:
        for line in output.unanswered(iter(lines(data))):
            output.append(entry_of(line))
            answered.append(line.number)
            if len(answered) == most:
                return answered
        assert output.answered == len(lines(data))
        assert output.failed == (b"[]" in data)
        output.finish()
    return answered


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl.part"


def test_a_whole_run_leaves_the_output_alone(path: Path) -> None:
    assert run(path) == [1, 3, 4, 5]
    assert path.read_bytes() == expected()
    assert [*path.parent.iterdir()] == [path]


def test_from_every_cut_of_the_journal_it_goes_on(path: Path, part: Path) -> None:
    run(path, most=3)
    journal = part.read_bytes()
    whole = [n for n in range(len(journal)) if journal[n : n + 1] == b"\n"]
    for cut in range(len(journal) + 1):
        part.write_bytes(journal[:cut])
        done = max(0, sum(end < cut for end in whole) - 1)
        assert run(path) == [1, 3, 4, 5][done:], cut
        assert path.read_bytes() == expected()
        path.unlink()


def test_from_every_line_on_it_goes_on(path: Path) -> None:
    assert [run(path, most=1) for _ in range(4)] == [[1], [3], [4], [5]]
    assert not path.exists()
    assert run(path) == []
    assert path.read_bytes() == expected()


@pytest.mark.parametrize("rubbish", [b"\0" * 50, b"\0" * 50 + b"\n", b"f" * 32 + b"+ {}", b"x\n", b"\n"])
def test_what_a_power_failure_leaves_behind_the_last_line_is_cut(path: Path, part: Path, rubbish: bytes) -> None:
    run(path, most=2)
    with part.open("ab") as file:
        file.write(rubbish)
    assert run(path) == [4, 5]
    assert path.read_bytes() == expected()


def test_killed_between_renaming_and_tidying_up_nothing_is_done_twice(path: Path, part: Path) -> None:
    run(path, most=4)
    journal = part.read_bytes()
    run(path)
    part.write_bytes(journal)
    (path.parent / "out.jsonl.new").write_bytes(b"half of")
    with pytest.raises(
        UsageError, match=r"out\.jsonl exists: add --force to replace it, and resume the incomplete batch"
    ):
        run(path)
    assert run(path, force=True) == []
    assert [*path.parent.iterdir()] == [path]


def test_when_it_was_begun_is_remembered(path: Path, part: Path) -> None:
    run(path, most=1)
    part.write_bytes(part.read_bytes().replace(b'"created": 1', b'"created": 2'))
    with FileOutput(path, FINGERPRINT) as output:
        assert 2 * 10**9 < output.created < 3 * 10**9


def test_scratch_files_are_removed_where_open_files_cannot_be(path: Path) -> None:
    with windows_files():
        with FileOutput(path, FINGERPRINT) as output:
            list(output.unanswered(iter(lines())))  # and none is answered
        assert [*path.parent.iterdir()] == []
        run(path, most=2)
        assert run(path) == [4, 5]
        assert [*path.parent.iterdir()] == [path]


class TestRefusals:
    def test_a_finished_output_is_replaced_on_demand_and_by_one_rename(self, path: Path) -> None:
        path.write_bytes(b"old")
        with pytest.raises(UsageError, match="exists: add --force to replace it, or give another output"):
            run(path)
        assert run(path, most=2, force=True) == [1, 3]
        if sys.platform == "win32":  # which replaces no file that is open
            assert run(path, force=True) == [4, 5]
        else:
            with path.open("rb") as before:
                assert run(path, force=True) == [4, 5]
                assert before.read() == b"old"
        assert path.read_bytes() == expected()

    @pytest.mark.parametrize(
        ("data", "where", "kept"),
        [
            (INPUT.replace(b"1", b"2", 1), "line 1 of the input is not what", 0),
            (INPUT.replace(b"b", b"B"), "line 3 of the input is not what", 1),
            (b"\n" + INPUT, "line 2 of the input is not what", 0),
            (INPUT[:10], "the input has less lines than were what", 1),
        ],
    )
    def test_a_changed_input(self, path: Path, data: bytes, where: str, kept: int) -> None:
        run(path, most=2)
        with pytest.raises(UsageError, match=where):
            run(path, data)
        assert run(path) == [4, 5]  # nothing was lost
        path.unlink()
        run(path, most=2)
        assert run(path, data, force=True) == [line.number for line in lines(data)][kept:]
        assert path.read_bytes() == expected(data)

    def test_lines_behind_those_that_are_answered_may_change(self, path: Path) -> None:
        run(path, most=4)
        data = INPUT + b"\n{}\n"
        assert run(path, data) == [6]
        assert path.read_bytes() == expected(data)

    def test_other_options(self, path: Path) -> None:
        run(path, most=1)
        with pytest.raises(UsageError) as refusal, FileOutput(path, {"model": "n", "seed": "1"}):
            pass
        assert str(refusal.value).splitlines()[1:] == [
            "  - model was m and is n",
            "  - seed was not given and is 1",
            "  - top_p was 0.5 and is not given",
            "Go on as it was begun, or add --force to begin anew.",
        ]
        with FileOutput(path, {"model": "n"}, force=True) as output:
            assert [line.number for line in output.unanswered(iter(lines()))] == [1, 3, 4, 5]

    def test_options_may_change_while_nothing_is_answered(self, path: Path, part: Path) -> None:
        with FileOutput(path, {"model": "n"}) as output:
            assert part.exists()
            output.unanswered(iter(lines()))
        assert [*path.parent.iterdir()] == []
        part.write_bytes(b'{"edgegen batch": 1, "created": 1, "fingerprint": {"model": "n"}}\n')
        assert run(path) == [1, 3, 4, 5]

    def test_what_is_no_journal_stays(self, path: Path, part: Path) -> None:
        part.write_bytes(b"my notes\n")
        with pytest.raises(UsageError, match="is not an incomplete batch: move it away"):
            run(path, force=True)
        assert part.read_bytes() == b"my notes\n"
        assert [*path.parent.iterdir()] == [part]

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is a folder: give a file"):
            FileOutput(tmp_path, FINGERPRINT, force=True)
        with pytest.raises(UsageError, match=r"there is no folder .*nowhere to write out\.jsonl to: make it first"):
            FileOutput(tmp_path / "nowhere" / "out.jsonl", FINGERPRINT)

    def test_two_at_once(self, path: Path) -> None:
        other_name = path.with_name("link.jsonl")
        with FileOutput(path, FINGERPRINT):
            link(other_name, path)
            for name in (path, other_name):
                with pytest.raises(UsageError, match=r"another process writes .*out\.jsonl: wait for it"):
                    FileOutput(name, FINGERPRINT)
        assert run(path) == [1, 3, 4, 5]

    def test_a_killed_process_holds_nothing(self, path: Path) -> None:
        code = (
            "import sys, time; from pathlib import Path; from edgegen.batch.output import FileOutput\n"
            f"held = FileOutput(Path(sys.argv[1]), {FINGERPRINT!r}); print('held', flush=True); time.sleep(60)"
        )
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, env=environment)
        assert process.stdout
        assert process.stdout.readline().split() == [b"held"]
        try:
            with pytest.raises(UsageError, match="another process writes"):
                run(path)
        finally:
            process.kill()
            process.communicate()
        assert run(path) == [1, 3, 4, 5]
        assert [*path.parent.iterdir()] == [path]


def test_a_stream_has_records_only() -> None:
    file = io.BytesIO()
    with StreamOutput(file) as output:
        for line in output.unanswered(iter(lines())):
            output.append(entry_of(line))
        output.finish()
    assert (output.answered, output.failed) == (4, 1)
    assert file.getvalue() == expected()
