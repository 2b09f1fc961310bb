"""`.ci/windows`: where the files of Windows' wheels go, and what it counts as a failure."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from tests.root import ROOT

FOLDER = ROOT / ".ci" / "wine"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="a source distribution has no .ci")

RESULT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4">
<testcase classname="tests.a" name="test_passes" time="0.1" />
<testcase classname="tests.a" name="test_fails" time="0.1"><failure message="1">no</failure></testcase>
<testcase classname="tests.a" name="test_fails_and_ends_badly"><failure /><error>no</error></testcase>
<testcase classname="tests.b" name="test_has_no_fixture"><error message="2">no</error></testcase>
<testcase classname="tests.b" name="test_is_skipped"><skipped type="pytest.skip">no</skipped></testcase>
</testsuite></testsuites>
"""


def load(name: str, patch: pytest.MonkeyPatch) -> ModuleType:
    """A script of `.ci/wine` as a module."""
    spec = importlib.util.spec_from_file_location(f"edgegen_wine_{name}", FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as context:
        yield context


@pytest.fixture(scope="module")
def check(patch: pytest.MonkeyPatch) -> ModuleType:
    return load("check", patch)


@pytest.fixture(scope="module")
def make_python(patch: pytest.MonkeyPatch) -> ModuleType:
    return load("make_python", patch)


def test_failures_and_errors_are_failures(check: ModuleType, tmp_path: Path) -> None:
    result = tmp_path / "result.xml"
    result.write_text(RESULT, encoding="utf-8")
    suite = check.read_suite(result)
    assert (suite.passed, suite.failed, suite.skipped) == (1, 3, 1)
    assert suite.failures == [
        "tests.a.test_fails",
        "tests.a.test_fails_and_ends_badly",
        "tests.b.test_has_no_fixture",
    ]


def test_what_differs_from_linux_is_a_problem(check: ModuleType) -> None:
    good = check.Report("wine-8.0", kernels="avx2", ids={"int8, stock": True}, exports={"int8": True})
    good.suites["verbs"] = check.Suite(passed=1, skipped=2)
    assert good.problems() == []
    bad = check.Report("wine-8.0", kernels="stock (no library)", ids={"int8, stock": False}, exports={"fp32": False})
    bad.suites["verbs"] = check.Suite(passed=9, failed=2)
    assert bad.problems() == [
        "int8, stock: the ids are not Linux's",
        "fp32: the files of the bundle are not Linux's",
        "the kernels do not run: stock (no library)",
        "verbs: 2 failed",
    ]


def test_the_suites_are_there(check: ModuleType) -> None:
    for words in check.SUITES.values():
        named = [word.rpartition("=")[2].partition("::") for word in words if "tests/" in word]
        assert [path for path, _, _ in named if not (ROOT / path).exists()] == []
        assert [
            test for path, _, test in named if test and f"def {test}(" not in (ROOT / path).read_text("utf-8")
        ] == []
        left_out = re.findall(r"[A-Z]\w+", words[words.index("-k") + 1]) if "-k" in words else []
        classes = [f"class Test{name}:" for name in left_out]
        assert [line for line in classes if line not in (ROOT / words[0]).read_text("utf-8")] == []


@pytest.mark.parametrize(
    ("wheel", "name", "place"),
    [
        ("panda3d-1.10-cp311-cp311-win_amd64.whl", "deploy_libs/python311.dll", "python311.dll"),
        ("panda3d-1.10-cp311-cp311-win_amd64.whl", "deploy_libs/_ssl.pyd", "DLLs/_ssl.pyd"),
        ("panda3d-1.10-cp311-cp311-win_amd64.whl", "deploy_libs/libffi-8.dll", "DLLs/libffi-8.dll"),
        ("panda3d-1.10-cp311-cp311-win_amd64.whl", "deploy_libs/tk86t.dll", "tk86t.dll"),
        ("panda3d-1.10-cp311-cp311-win_amd64.whl", "deploy_libs/VCRUNTIME140.dll", None),
        ("panda3d-1.10-cp311-cp311-win_amd64.whl", "panda3d/core.pyd", None),
        ("msvc_runtime-14-cp311-cp311-win_amd64.whl", "msvc_runtime-14.data/data/MSVCP140.dll", "msvcp140.dll"),
        ("msvc_runtime-14-cp311-cp311-win_amd64.whl", "msvc_runtime-14.dist-info/METADATA", None),
        ("a-1-py3-none-any.whl", "a/b.py", "Lib/site-packages/a/b.py"),
        ("a-1-py3-none-any.whl", "a-1.data/purelib/c.py", "Lib/site-packages/c.py"),
        ("a-1-py3-none-any.whl", "a-1.data/scripts/a", None),
    ],
)
def test_files_of_wheels_have_their_places(
    make_python: ModuleType, tmp_path: Path, wheel: str, name: str, place: str | None
) -> None:
    with ZipFile(tmp_path / wheel, "w") as archive:
        archive.writestr(name, "content")
    make_python.install(tmp_path / wheel, tmp_path / "python")
    found = [path.relative_to(tmp_path / "python").as_posix() for path in (tmp_path / "python").rglob("*.*")]
    assert found == ([] if place is None else [place])


def test_tcl_of_another_patch_level_takes_the_scripts(
    make_python: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_python, "TCL", tmp_path / "tcltk")
    make_python.copy_tcl(tmp_path / "without")
    assert not (tmp_path / "without").exists()
    for name, text in (
        ("tcl8.6/init", "# -exact\npackage require -exact Tcl 8.6.13\n"),
        ("tk8.6/tk", "switch -exact -- 1\n"),
    ):
        file = tmp_path / "tcltk" / f"{name}.tcl"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    make_python.copy_tcl(tmp_path / "python")
    assert (tmp_path / "python/tcl/tcl8.6/init.tcl").read_text() == "# -exact\npackage require Tcl 8.6\n"
    assert (tmp_path / "python/tcl/tk8.6/tk.tcl").read_text() == "switch -exact -- 1\n"


def test_every_function_of_complex_numbers_has_its_three_types(make_python: ModuleType) -> None:
    functions = dict(make_python.complex_functions())
    assert {"cabs", "cabsf", "cabsl", "conjf", "cpowl"} <= functions.keys()
    assert len(functions) == 3 * len(make_python.COMPLEX)
    assert functions["cpowf"].count("struct floats") == 3
    assert functions["cabsl"].startswith("double ")
