"""The check of wheels: each promise of a name that a wheel breaks is told, and a good wheel has none."""

import base64
import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import shared_library
import wheel_promises
from shared_library import UnreadableError
from tests.packaging.made_up import elf, macho, pe
from wheel_promises import EXPORTS, LIBRARY, Platform, check, of_bytes, of_library

NAMES = sorted(EXPORTS)
LIBRARIES: Mapping[str, tuple[str, Callable[..., bytes], dict[str, Any]]] = {
    "manylinux_2_28_x86_64": (".so", elf, {}),
    "manylinux_2_28_aarch64": (".so", elf, {"machine": 183, "glibc": ["2.17"]}),
    "macosx_11_0_arm64": (".dylib", macho, {}),
    "win_amd64": (".dll", pe, {}),
    "win_arm64": (".dll", pe, {"machine": 0xAA64}),
}
"""By platform: the suffix of its library, and what makes one."""


def good(platform: str, **changes: Any) -> bytes:
    """The bytes of a library that keeps the platform's promises but for ``changes``."""
    _, make, arguments = LIBRARIES[platform]
    return make(**{"exports": NAMES, **arguments, **changes})


def problems(platform: str, **changes: Any) -> list[str]:
    """Return the problems of a library with these changes."""
    return [*of_library(shared_library.read(good(platform, **changes)), Platform.of(platform))]


def write_wheel(
    folder: Path, platform: str, changes: Mapping[str, bytes | None] | None = None, recorded: bool = True
) -> Path:
    """A good wheel but for the files of ``changes``, where None is a file that is not there."""
    tag = f"py3-none-{platform}"
    info = "edgegen-0.1.0.dist-info"
    pure = platform == "any"
    components = [{"name": "stories"}, *([] if pure else [{"name": "edgegen-kernels"}])]
    sbom = {"bomFormat": "CycloneDX", "metadata": {"component": {"name": "edgegen", "version": "0.1.0"}}}
    files: dict[str, bytes | None] = {
        "edgegen/__init__.py": b"",
        f"{info}/METADATA": b"Metadata-Version: 2.4\nName: edgegen\nVersion: 0.1.0\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: {str(pure).lower()}\nTag: {tag}\n".encode(),
        f"{info}/licenses/LICENSE": b"MIT",
        f"{info}/sboms/edgegen.cdx.json": json.dumps({**sbom, "components": components}).encode(),
    }
    if not pure:
        files[LIBRARY + LIBRARIES[platform][0]] = good(platform)
    present = {path: data for path, data in {**files, **(changes or {})}.items() if data is not None}
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()) for path, data in present.items()}
    lines = [f"{path},sha256={digests[path].decode().rstrip('=')},{len(present[path])}" for path in present]
    if not recorded:
        lines.pop()
    present[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    wheel = folder / f"edgegen-0.1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in present.items():
            archive.writestr(path, data)
    return wheel


class TestLibraries:
    @pytest.mark.parametrize("platform", LIBRARIES)
    def test_a_good_library_has_no_problems(self, platform: str) -> None:
        assert problems(platform) == []

    def test_what_a_library_says_is_read(self) -> None:
        found = shared_library.read(
            elf(["f"], ["libc.so.6", "libz.so.1"], glibc=["2.2.5", "2.34"], run_path="/opt/lib", stack=7)
        )
        assert (found.format, found.machine, found.system) == ("ELF", "x86_64", (2, 34))
        assert (found.exports, found.needs) == ({"f"}, {"libc.so.6", "libz.so.1"})
        assert (found.search_paths, found.executable_stack) == (("/opt/lib",), True)
        found = shared_library.read(pe(["f"], ["a.dll"], windows=(6, 2)))
        assert (found.format, found.system, found.exports, found.needs) == ("PE", (6, 2), {"f"}, {"a.dll"})
        found = shared_library.read(macho(["f"], macos=(13, 1), install_name="/x"))
        assert (found.format, found.system, found.exports, found.install_name) == ("Mach-O", (13, 1), {"f"}, "/x")

    @pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"MZ"])
    def test_other_bytes_are_no_library(self, data: bytes) -> None:
        with pytest.raises(UnreadableError):
            shared_library.read(data)

    @pytest.mark.parametrize(
        ("platform", "changes", "words"),
        [
            (
                "manylinux_2_28_x86_64",
                {"glibc": ["2.14", "2.34"]},
                "needs 2.34, and the oldest system promised is 2.28",
            ),
            ("macosx_11_0_arm64", {"macos": (13, 0)}, "needs 13.0, and the oldest system promised is 11.0"),
            ("win_amd64", {"windows": (10, 1)}, "needs 10.1, and the oldest system promised is 10.0"),
            ("manylinux_2_28_x86_64", {"machine": 183}, "it is ELF for arm64, not ELF for x86_64"),
            ("win_arm64", {"machine": 0x8664}, "it is PE for x86_64, not PE for arm64"),
            ("win_amd64", {"exports": [*NAMES, "malloc"]}, "it exports malloc besides its entry points"),
            ("macosx_11_0_arm64", {"exports": NAMES[1:]}, f"it does not export {NAMES[0]}"),
            (
                "manylinux_2_28_aarch64",
                {"needs": ["libc.so.6", "libgomp.so.1"]},
                "it needs libgomp.so.1, which not every",
            ),
            ("win_amd64", {"needs": ["kernel32.dll", "libgcc_s_seh-1.dll"]}, "it needs libgcc_s_seh-1.dll"),
            (
                "macosx_11_0_arm64",
                {"needs": ["/opt/homebrew/lib/libomp.dylib"]},
                "it needs /opt/homebrew/lib/libomp.dylib",
            ),
            ("macosx_11_0_arm64", {"install_name": "/tmp/a.dylib"}, "its install name is /tmp/a.dylib"),
            ("manylinux_2_28_x86_64", {"run_path": "/opt/lib"}, "it looks for libraries in /opt/lib"),
            ("manylinux_2_28_x86_64", {"stack": 7}, "its stack is executable"),
            ("manylinux_2_28_x86_64", {"glibc": []}, "it does not say which system it needs"),
        ],
    )
    def test_a_broken_promise_is_told(self, platform: str, changes: dict[str, Any], words: str) -> None:
        (problem,) = problems(platform, **changes)
        assert words in problem

    def test_a_library_of_another_format_is_told(self) -> None:
        (problem,) = of_library(shared_library.read(good("win_amd64")), Platform.of("manylinux_2_28_x86_64"))
        assert problem == "it is PE for x86_64, not ELF for x86_64"

    def test_size_and_paths_of_the_builder(self) -> None:
        assert [*of_bytes(b"lib\0/usr/lib/libSystem.B.dylib\0")] == []
        assert "names a folder" in next(of_bytes(b"\0/tmp/tmpq1/a.o\0"))
        assert "at most" in next(of_bytes(bytes(wheel_promises.MOST_LIBRARY_BYTES + 1)))


class TestWheels:
    @pytest.mark.parametrize("platform", [*LIBRARIES, "any"])
    def test_a_good_wheel_has_no_problems(self, platform: str, tmp_path: Path) -> None:
        report = check(write_wheel(tmp_path, platform))
        assert report.problems == []
        assert bool(report.system) == (platform != "any")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({LIBRARY + ".so": None}, ["it has no edgegen/model/edgegen_kernels.so"]),
            ({LIBRARY + ".so": b"no library"}, ["it is no shared library"]),
            ({LIBRARY + ".dll": b""}, ["edgegen_kernels.dll is no library of this platform"]),
            ({"numpy/__init__.py": b""}, ["numpy/__init__.py belongs to no package of ours"]),
            ({"edgegen-0.1.0.dist-info/licenses/LICENSE": None}, ["has no edgegen-0.1.0.dist-info/licenses/LICENSE"]),
            ({"edgegen-0.1.0.dist-info/sboms/edgegen.cdx.json": b"{}"}, ["has no CycloneDX bill of materials"]),
            ({"edgegen-0.1.0.dist-info/METADATA": b"Name: edgegen\n"}, ["Name: edgegen", "Version: 0.1.0"]),
            (
                {"edgegen-0.1.0.dist-info/WHEEL": b"Root-Is-Purelib: true\n"},
                ["WHEEL does not say Tag: py3-none-manylinux_2_28_x86_64", "Root-Is-Purelib: false"],
            ),
        ],
    )
    def test_what_is_wrong_is_told(self, changes: Mapping[str, bytes | None], words: list[str], tmp_path: Path) -> None:
        found = check(write_wheel(tmp_path, "manylinux_2_28_x86_64", changes)).problems
        assert len(found) == len(words)
        assert all(word in problem for word, problem in zip(words, found, strict=True))

    def test_a_pure_wheel_with_a_library(self, tmp_path: Path) -> None:
        found = check(write_wheel(tmp_path, "any", {LIBRARY + ".so": good("manylinux_2_28_x86_64")})).problems
        assert found == [f"a pure wheel has no libraries, and this one has {LIBRARY}.so"]

    def test_a_bill_of_another_wheel(self, tmp_path: Path) -> None:
        subject = {"name": "edgegen", "version": "9"}
        bill: dict[str, Any] = {"bomFormat": "CycloneDX", "metadata": {"component": subject}, "components": []}
        changes = {"edgegen-0.1.0.dist-info/sboms/edgegen.cdx.json": json.dumps(bill).encode()}
        found = check(write_wheel(tmp_path, "win_amd64", changes)).problems
        assert found == ["its bill of materials is CycloneDX edgegen 9", "its bill of materials leaves out the kernels"]

    def test_a_file_without_a_line_in_the_record(self, tmp_path: Path) -> None:
        found = check(write_wheel(tmp_path, "win_amd64", recorded=False)).problems
        assert found == [f"RECORD has not the digest and size of {LIBRARY}.dll"]

    @pytest.mark.parametrize("name", ["edgegen-0.1.0-cp311-cp311-win_amd64.whl", "edgegen.whl"])
    def test_a_name_of_another_kind(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="is not the name of a wheel for any Python 3"):
            check(tmp_path / name)
        assert wheel_promises.main([str(tmp_path / name)]) == 1

    def test_a_platform_without_wheels(self) -> None:
        with pytest.raises(ValueError, match="there are no wheels for the platform musllinux_1_2_x86_64"):
            Platform.of("musllinux_1_2_x86_64")
