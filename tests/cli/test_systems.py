"""Commands behave alike on each system: closed pipes, ends of lines, paths in names and in messages."""

import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import PurePath, PurePosixPath, PureWindowsPath

import click
import pytest

from edgegen.cli import run, write_any_character
from edgegen.cli.check import Check
from edgegen.cli.export import source_name
from edgegen.cli.os_errors import long_path_note, reader_has_gone
from edgegen.errors import CheckpointError, EdgegenError, UsageError, quoted
from tests.runtime.system.recorded import Recorded

pytestmark = pytest.mark.unit

INVALID = OSError(errno.EINVAL, "Invalid argument")


class TestAReaderThatHasGone:
    @pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
    def test_is_a_broken_pipe(self, system: str) -> None:
        assert reader_has_gone(BrokenPipeError(errno.EPIPE, "Broken pipe"), system)
        assert not reader_has_gone(OSError(errno.ENOSPC, "No space left on device"), system)

    def test_is_an_invalid_argument_on_windows(self) -> None:
        assert reader_has_gone(INVALID, "win32")
        assert not reader_has_gone(INVALID, "linux")

    def test_is_no_invalid_path(self) -> None:
        assert not reader_has_gone(OSError(errno.EINVAL, "Invalid argument", 'a"b'), "win32")

    @pytest.mark.parametrize(
        ("error", "code", "said"),
        [
            (BrokenPipeError(errno.EPIPE, "Broken pipe"), 0, ""),
            (OSError(errno.ENOSPC, "Full"), 1, "edgegen: error: Full\n"),
        ],
    )
    def test_ends_a_command_without_a_word(
        self, error: OSError, code: int, said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> None:
            raise error

        def command_of(verb: str) -> click.Command:
            return click.Command(verb, callback=fail)

        monkeypatch.setattr("edgegen.cli.command_of", command_of)
        with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:  # which is given away
            monkeypatch.setattr(sys, "stdout", out)
            assert run(["doctor"]) == code
        assert capfd.readouterr() == ("", said)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_lines_in_pipes_end_in_lf_on_windows_too(is_terminal: bool) -> None:
    class Stream(io.TextIOWrapper):
        def isatty(self) -> bool:
            return is_terminal

    raw = io.BytesIO()
    stream = Stream(raw, encoding="cp1252", newline="\r\n")  # as Windows opens it
    write_any_character(stream)
    stream.write("Zoë 山\n")
    stream.flush()
    assert raw.getvalue() == (b"Zo\xeb ?\r\n" if is_terminal else "Zoë 山\n".encode())


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("C:\\models\\typo", PureWindowsPath, "typo"),
        ("models\\typo\\", PureWindowsPath, "typo"),
        ("C:/models/typo", PureWindowsPath, "typo"),
        ("org/typo", PureWindowsPath, "typo"),
        ("org/typo", PurePosixPath, "typo"),
        ("/models/typo/", PurePosixPath, "typo"),
        ("~nobody-at-all/typo", PurePosixPath, "typo"),
        ("typo", PurePosixPath, "typo"),
        ("odd\\name", PurePosixPath, "odd\\name"),
    ],
)
def test_the_name_of_a_source_is_its_last_part(source: str, kind: type[PurePath], name: str) -> None:
    assert source_name(source, None, kind) == name
    assert source_name(source, "sub/model.Q8_0.gguf", kind) == "model.Q8_0"


@pytest.mark.parametrize("source", ["/models/no-such-checkpoint", "./no-such-checkpoint", "~nobody-at-all/checkpoint"])
def test_a_checkpoint_that_is_not_there_is_a_failure(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", source]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"edgegen: error: {source!r} is neither a folder") or f"no folder {source!r}" in said


@pytest.mark.parametrize(
    ("name", "shown"),
    [("C:\\new\\model", "'C:\\new\\model'"), ("it's", '"it\'s"'), ("a\x1bb", "'a\\x1bb'"), ("Zoë", "'Zoë'")],
)
def test_backslashes_of_paths_are_not_doubled(name: str, shown: str) -> None:
    assert quoted(name) == shown


def test_messages_show_a_path_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    given = "C:\\new\\model"
    for arguments in (["info", given], ["export", given, "-o", "nowhere"], ["rm", given]):
        assert run(arguments) in (1, 2)
        assert f"'{given}'" in capsys.readouterr().err


WINDOWS = Recorded("win32", "AMD64")
LONG = "C:\\" + "\\".join(["a-folder-of-some-length"] * 12)


class TestLongPaths:
    def caused(self, by: Callable[[], BaseException]) -> EdgegenError:
        try:
            try:
                raise by()
            except OSError as error:
                raise CheckpointError(f"cannot read it: {error.strerror}") from None
        except CheckpointError as error:
            return error

    def test_the_cause_is_named_on_windows(self) -> None:
        missing = FileNotFoundError(errno.ENOENT, "No such file or directory", LONG)
        for error in (missing, self.caused(lambda: missing)):
            note = long_path_note(error, WINDOWS)
            assert note
            assert "characters, and Windows is set to at most" in note
            assert long_path_note(error, Recorded()) is None

    @pytest.mark.parametrize(
        "error",
        [
            FileNotFoundError(errno.ENOENT, "No such file or directory", "short"),
            OSError(errno.ENOSPC, "No space left on device", LONG),
            FileNotFoundError(errno.ENOENT, "No such file or directory"),
            CheckpointError("of no file"),
        ],
        ids=["short", "full disk", "no path", "no cause"],
    )
    def test_it_is_not_blamed_for_other_errors(self, error: Exception) -> None:
        assert long_path_note(error, WINDOWS) is None

    @pytest.mark.skipif(sys.platform != "win32", reason="Windows alone has a limit so low")
    @pytest.mark.parametrize("command", [["info", LONG], ["batch", LONG, "-o", "out"]], ids=lambda given: given[0])
    def test_commands_say_it(self, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run(command) in (1, 2)
        assert "enable long paths (LongPathsEnabled)" in capsys.readouterr().err


def test_notes_of_all_problems_are_told() -> None:
    def fail(note: str) -> None:
        error = UsageError(f"bad {note}")
        error.add_note(note)
        raise error

    check = Check()
    for note in ("first", "second"):
        check.attempt(lambda note=note: fail(note))
    with pytest.raises(UsageError, match="bad first") as caught:
        check.finish()
    assert caught.value.__notes__ == ["first", "second"]
