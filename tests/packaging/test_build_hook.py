"""The build hook: a platform's wheel with kernels, a pure one without a compiler, and what variables demand."""

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, TypeVar, cast

import pytest

import commit
import kernels.build as kernels_build
from tests.root import ROOT

T = TypeVar("T")
ABORTED = 17
NO_COMPILER = "no-such-compiler"
needs_compiler = pytest.mark.skipif(kernels_build.compiler() is None, reason="there is no C compiler")


def _nothing(_root: Path) -> None:
    """The record where there is no checkout."""


def _a_commit(_root: Path) -> str:
    return "{}\n"


class Application:
    """hatchling's, as far as the hook uses it."""

    def __init__(self) -> None:
        self.warnings = list[str]()

    def display_warning(self, text: str) -> None:
        self.warnings.append(text)

    def abort(self, text: str) -> None:
        print(text, file=sys.stderr)
        raise SystemExit(ABORTED)


class Interface(Generic[T]):
    """hatchling's ``BuildHookInterface``, which the tests' environment has not."""

    def __init__(self) -> None:
        self.app = Application()
        self.target_name = "wheel"
        self.metadata = SimpleNamespace(version="0.1.0")


class Build:
    """One build by the hook: what it told hatchling, and what it warned of."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook
        self.data: dict[str, Any] = {"force_include": {}, "pure_python": True}

    def run(self, version: str = "standard") -> None:
        self.hook.initialize(version, self.data)

    @property
    def is_pure(self) -> bool:
        rest = {name: value for name, value in self.data.items() if name != "sbom_files"}
        return rest == {"force_include": {}, "pure_python": True}

    @property
    def components(self) -> list[str]:
        """Names in the bill of materials."""
        (path,) = self.data["sbom_files"]
        return [component["name"] for component in json.loads(Path(path).read_text("utf-8"))["components"]]

    @property
    def library(self) -> Path:
        (path,) = self.data["force_include"]
        return Path(path)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Build]:
    """Of a package whose library, beside its sources, would be in ``tmp_path``."""
    path = "hatchling.builders.hooks.plugin.interface"
    parts = path.split(".")
    for count in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), ModuleType(parts[count - 1]))
    monkeypatch.setitem(sys.modules, path, cast(Any, SimpleNamespace(BuildHookInterface=Interface)))
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("edgegen_hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library = tmp_path / kernels_build.LIBRARY.name
    monkeypatch.setattr(module, "LIBRARY", library)
    monkeypatch.setattr(module, "is_current", lambda: kernels_build.is_current(library))
    monkeypatch.setattr(commit, "record", _nothing)  # as where there is no checkout
    compile_all = module.build
    monkeypatch.setattr(module, "build", lambda to=library, platform="": compile_all(to, platform=platform))
    found = Build(module.Kernels())
    yield found
    found.hook.finalize("standard", found.data, "")


def test_without_a_compiler_a_wheel_is_pure_and_a_line_says_why(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", NO_COMPILER)
    build.run()
    assert build.is_pure
    assert build.components == ["stories"]
    (warning,) = build.hook.app.warnings
    assert NO_COMPILER in warning
    assert "ONNX Runtime's own operators will be used" in warning
    assert "\n" not in warning


@pytest.mark.parametrize("variable", ["EDGEGEN_KERNELS_REQUIRED=1", "EDGEGEN_WHEEL_PLATFORM=manylinux_2_28_aarch64"])
def test_a_library_that_is_required_and_cannot_be_built_ends_the_build(
    build: Build, variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", NO_COMPILER)
    monkeypatch.setenv(*variable.split("="))
    with pytest.raises(SystemExit, check=lambda error: error.code == ABORTED):
        build.run()
    assert f"{NO_COMPILER} cannot be started" in capsys.readouterr().err


def test_a_compiler_that_fails_leaves_the_installation_whole(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\necho 'a.c:1: error: this is no C' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CC", str(failing))
    old = tmp_path / kernels_build.LIBRARY.name
    old.write_bytes(b"of an older version")
    os.utime(old, (0, 0))
    build.run("editable")
    assert build.is_pure
    assert "this is no C" in build.hook.app.warnings[0]
    assert not old.exists()  # it may not fit the package


def test_a_pure_wheel_asks_no_compiler(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", NO_COMPILER)
    monkeypatch.setenv("EDGEGEN_PURE_WHEEL", "1")
    build.run()
    assert build.is_pure
    assert build.components == ["stories"]
    assert build.hook.app.warnings == []


@pytest.mark.parametrize("other", ["EDGEGEN_KERNELS_REQUIRED", "EDGEGEN_WHEEL_PLATFORM"])
def test_a_pure_wheel_with_kernels_is_a_contradiction(
    build: Build, other: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGEGEN_PURE_WHEEL", "1")
    monkeypatch.setenv(other, "1")
    with pytest.raises(SystemExit):
        build.run()
    assert f"EDGEGEN_PURE_WHEEL contradicts {other}" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_a_distribution_of_a_checkout_records_its_commit(
    build: Build, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEGEN_PURE_WHEEL", "1")
    monkeypatch.setattr(commit, "record", _a_commit)
    build.hook.target_name = target
    build.run()
    assert build.library.read_text("utf-8") == "{}\n"
    assert [*build.data["force_include"].values()] == ["edgegen/system/build_info.json"]
    assert ("sbom_files" in build.data) == (target == "wheel")


def test_an_editable_installation_records_no_commit(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEGEN_PURE_WHEEL", "1")
    monkeypatch.setattr(commit, "record", _a_commit)
    build.run("editable")
    assert build.data == {"force_include": {}, "pure_python": True}


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile without optimizing, which takes a minute: nothing of it is run here."""
    flags = tuple(flag.replace("-O3", "-O0") for flag in kernels_build.FLAGS)
    monkeypatch.setattr(kernels_build, "FLAGS", flags)


@pytest.mark.release  # compiles everything
@pytest.mark.usefixtures("quickly")
@needs_compiler
def test_a_wheel_has_the_library_and_the_platforms_tag(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEGEN_WHEEL_PLATFORM", "manylinux_2_28_x86_64")
    build.run()
    clang = kernels_build.target_of(kernels_build.compiler() or ()).is_clang
    library = build.library
    assert library.name == "edgegen_kernels.so"
    assert library.stat().st_size > 10_000
    assert build.data["force_include"] == {str(library): "edgegen/model/edgegen_kernels.so"}
    assert (build.data["pure_python"], build.data["tag"]) == (False, "py3-none-manylinux_2_28_x86_64")
    assert build.components == ["stories", "edgegen-kernels", "compiler-rt" if clang else "libgcc"]
    build.hook.finalize("standard", build.data, "")
    assert not library.exists()


@pytest.mark.release  # compiles everything
@pytest.mark.usefixtures("quickly")
@pytest.mark.skipif(shutil.which("aarch64-linux-gnu-gcc") is None, reason="there is no aarch64-linux-gnu-gcc")
def test_another_platforms_library_is_not_laid_beside_the_sources(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "aarch64-linux-gnu-gcc")
    monkeypatch.setenv("EDGEGEN_WHEEL_PLATFORM", "manylinux_2_28_aarch64")
    build.run()
    assert build.library.read_bytes()[18:20] == b"\xb7\x00"  # EM_AARCH64
    assert build.data["tag"] == "py3-none-manylinux_2_28_aarch64"
    assert not (tmp_path / kernels_build.LIBRARY.name).exists()
