"""The kernels' build: flags by compiler and target, the same bytes anywhere, and failures told in one line."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from kernels.build import SOURCES, BuildError, Target, build, compiler, target_of
from tests.root import ROOT

MINGW = "x86_64-w64-mingw32-gcc"
GCC = {"__GNUC__": "12"}
CLANG = {"__GNUC__": "4", "__clang__": "1"}
WINDOWS = {"_WIN32": "1", "__x86_64__": "1"}
ARM_WINDOWS = {"_WIN32": "1", "__aarch64__": "1"}
ASSEMBLER = "-Wa,-muse-unaligned-vector-move"
NO_TIME = "-Wl,--no-insert-timestamp,--disable-auto-image-base"


def checkout(at: Path) -> ModuleType:
    """A copy of the build in a folder of its own, with one source whose path is in the library."""
    at.mkdir()
    shutil.copy(ROOT / "kernels/build.py", at)
    (at / "where.c").write_text(
        "#ifdef _WIN32\n__declspec(dllexport)\n#else\n"
        '__attribute__((visibility("default")))\n#endif\n'
        "const char *where(void) { return __FILE__; }\n"
    )
    spec = importlib.util.spec_from_file_location(f"build_in_{at.name}", at / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("macros", "linker", "compiled", "linked"),
    [
        (GCC | WINDOWS, "", [ASSEMBLER], ["-s", "-static-libgcc", NO_TIME]),
        (CLANG | WINDOWS, "LLD 19.1.0 (compatible with GNU linkers)\n", [], ["-s", NO_TIME]),
        (CLANG | WINDOWS, "zig ld 0.17.1\n", [], ["-s"]),
        (CLANG | ARM_WINDOWS, "zig ld 0.17.1\n", [], ["-s"]),
        (GCC | ARM_WINDOWS, "", [], ["-s", "-static-libgcc", NO_TIME]),
        (CLANG | {"__APPLE__": "1"}, "", ["-fPIC"], ["-Wl,-install_name,@rpath/name"]),
        (GCC, "", ["-fPIC"], []),
        (CLANG, "", ["-fPIC"], []),
    ],
)
def test_flags_follow_the_compiler_and_its_target(
    macros: dict[str, str], linker: str, compiled: list[str], linked: list[str]
) -> None:
    target = Target(macros)
    assert target.to_compile() == [*compiled, f"-ffile-prefix-map={SOURCES}=kernels"]
    assert target.to_link("name", linker) == linked


@pytest.mark.parametrize("command", ["cc", "clang", "aarch64-linux-gnu-gcc", MINGW])
def test_two_checkouts_build_the_same_bytes(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}")
    monkeypatch.setenv("CC", command)
    name = f"edgegen_kernels{target_of([command]).suffix}"
    libraries = list[bytes]()
    for folder in ("one", "the-other"):
        module = checkout(tmp_path / folder)
        module.build(tmp_path / folder / "built" / name)
        libraries.append((tmp_path / folder / "built" / name).read_bytes())
    assert libraries[0] == libraries[1]
    assert b"kernels/where.c" in libraries[0]


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
def test_a_library_of_another_system_is_refused(tmp_path: Path) -> None:
    command = compiler()
    assert command is not None
    wrong = ".so" if target_of(command).suffix == ".dll" else ".dll"
    with pytest.raises(BuildError, match=rf"compiles for \w+, whose .* edgegen_kernels{wrong} does not"):
        build(tmp_path / f"edgegen_kernels{wrong}")
    assert not list(tmp_path.glob("edgegen_kernels*"))


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
def test_code_of_another_processor_is_refused(tmp_path: Path) -> None:
    command = compiler()
    assert command is not None
    target = target_of(command)
    wrong = "manylinux_2_28_x86_64" if target.machine == "aarch64" else "macosx_11_0_arm64"
    with pytest.raises(BuildError, match=rf"compiles for {target.machine}, and {wrong} is a platform of"):
        build(tmp_path / f"edgegen_kernels{target.suffix}", platform=wrong)


def test_what_is_neither_gcc_nor_clang_is_told(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    with pytest.raises(BuildError, match="silent is neither gcc nor clang: name one of them by CC"):
        target_of([str(silent)])


def test_a_compilers_failure_is_told_with_all_its_words(tmp_path: Path) -> None:
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\necho 'note: some' >&2\necho 'error: no such target' >&2\nexit 1\n")
    failing.chmod(0o755)
    with pytest.raises(BuildError, match=r"cc -target sun fails: error: no such target$") as raised:
        target_of([str(failing), "-target", "sun"])
    assert raised.value.output == "note: some\nerror: no such target\n"
