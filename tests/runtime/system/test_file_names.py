"""Names that are one file on every system, and paths that Windows can open."""

from pathlib import Path

import pytest

from edgegen.system import is_portable, name_clashes, path_too_long
from tests.runtime.system.recorded import Recorded

LONG_PATHS = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem\\LongPathsEnabled"


@pytest.mark.parametrize(
    "path",
    [
        *("CON", "nul", "Prn", "aux", "com0", "COM9", "lpt1", "LPT\u00b2", "CONIN$", "conout$"),
        *("nul.txt", "con.tar.gz", "nul .txt", "a/aux/b", "a/com1.json"),
        *("a.", "a ", "...", "a./b", "a /b", "..", ".", "", "a//b", "/a", "a/"),
        *("a:b", "C:a", "a\\b", "a<b", "a>b", 'a"b', "a|b", "a?", "*"),
        *("a\0b", "a\nb", "a\x1fb", "a\x7fb", "a\u202eb", "\ud800"),
    ],
)
def test_what_is_another_file_or_none_on_some_system_is_refused(path: str) -> None:
    assert not is_portable(path)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "a",
            "a.b",
            "a/b",
            "..a",
            "a..b",
            ".a",
            "\u00e9",
            "a b",
            " a",
            "weights.data",
            "model-00001-of-00002.safetensors",
        ),
        *("console", "com", "com10", "lpt", "null", "nul_", "auxiliary.json", "a.nul", "communication", "con-1"),
    ],
)
def test_all_else_is_a_name(path: str) -> None:
    assert is_portable(path)


@pytest.mark.parametrize(
    ("names", "clashes"),
    [
        (["a", "b", "A.b"], []),
        (["README.md", "readme.md", "x"], [("README.md", "readme.md")]),
        (["a", "A/b", "a/B"], [("A/b", "a/B")]),
        (["caf\u00e9", "cafe\u0301"], [("cafe\u0301", "caf\u00e9")]),
        (["stra\u00dfe", "STRASSE"], [("STRASSE", "stra\u00dfe")]),
        (["a", "a"], []),
    ],
)
def test_names_that_differ_in_case_or_accents_alone_are_one_file(
    names: list[str], clashes: list[tuple[str, str]]
) -> None:
    assert name_clashes(names) == clashes


def test_a_long_path_is_told_where_windows_has_not_enabled_them() -> None:
    windows, enabled = Recorded("win32"), Recorded("win32", calls={LONG_PATHS: b"1"})
    path = Path("a").absolute()
    rest = 259 - len(str(path))
    assert path_too_long(path, rest, windows) is None
    said = path_too_long(Path("a"), rest + 1, windows)
    assert said is not None
    assert f"{path} is too long a path: with the names of files in it 260 characters, and Windows" in said
    assert "LongPathsEnabled" in said
    for other in (enabled, Recorded("linux"), Recorded("darwin")):
        assert path_too_long(path, rest + 1, other) is None
