"""The command that builds all wheels: its platforms, its comparison and its lists; `.ci/wheel` runs it."""

import hashlib
import json
import re
from pathlib import Path

import pytest

import make_wheels
from docs.make_systems import Finding
from make_wheels import SYSTEMS, TARGETS, Built, differences, findings, write_sums
from sbom import runtimes, sbom
from tests.root import ROOT
from wheel_promises import Platform, Report


def test_a_target_is_that_of_its_tag() -> None:
    """The least system of the name is what zig compiles for."""
    for tag, target in TARGETS.items():
        platform = Platform.of(tag)
        machine, _, rest = target.partition("-")
        assert machine.replace("aarch64", "arm64") == platform.machine
        if platform.format != "PE":
            assert rest.endswith(f".{platform.system[0]}.{platform.system[1]}")


def test_a_second_build_of_other_bytes_names_the_files(tmp_path: Path) -> None:
    pairs = [(tmp_path / "1" / name, tmp_path / "2" / name) for name in ("a.whl", "b.whl")]
    for one, other in pairs:
        for file in (one, other):
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"the same")
    pairs[1][1].write_bytes(b"another")
    first, second = zip(*pairs, strict=True)
    assert differences(first, second) == ["b.whl"]
    assert differences(first, second[1:]) == ["b.whl"]
    assert differences(first, second[:1]) == []


def test_lists_have_the_digests(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"wheel").hexdigest()
    name = "edgegen-0.1.0-py3-none-win_amd64.whl"
    write_sums([Built(name, digest, Report(name, 5, "Windows 6.0", []))], tmp_path)
    assert (tmp_path / "SHA256SUMS").read_text() == f"{digest}  {name}\n"
    (found,) = json.loads((tmp_path / "wheels.json").read_text())
    assert found["report"]["system"] == "Windows 6.0"
    assert len(json.loads((tmp_path / "findings.json").read_text())) == 2


def test_a_good_wheel_is_a_finding_of_its_system() -> None:
    assert SYSTEMS.keys() == TARGETS.keys()
    found = [
        Finding(**row)
        for row in findings(
            [
                Built("edgegen-0.1.0.tar.gz", ""),
                Built("edgegen-0.1.0-py3-none-any.whl", "", Report("", 5, "", [])),
                Built("edgegen-0.1.0-py3-none-win_amd64.whl", "", Report("", 5, "", ["it is broken"])),
                Built("edgegen-0.1.0-py3-none-win_arm64.whl", "", Report("", 5, "Windows 6.0", [])),
            ]
        )
    ]
    assert {(one.system, one.column, one.how) for one in found} == {
        ("Windows arm64", "installs", "cross-built"),
        ("Windows arm64", "kernels", "cross-built"),
    }


def test_a_build_that_fails_says_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(make_wheels.WheelsError, match="the wheel for any cannot be built"):
        make_wheels._hatchling("wheel", tmp_path, tmp_path, {})  # pyright: ignore[reportPrivateUsage]
    assert capsys.readouterr().err


def test_the_tools_are_pinned() -> None:
    lines = (ROOT / "packaging" / "wheel_tools.txt").read_text("utf-8").splitlines()
    tools = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z]+==[\d.]+", tool) for tool in tools)


class TestBillOfMaterials:
    def test_it_lists_what_is_in_the_wheel(self, tmp_path: Path) -> None:
        library = tmp_path / "edgegen_kernels.dll"
        library.write_bytes(b"library")
        found = json.loads(sbom(ROOT, "0.1.0", library, runtimes("win_amd64", clang=True)))
        assert [one["name"] for one in found["components"]] == [
            "stories",
            "edgegen-kernels",
            "compiler-rt",
            "mingw-w64",
        ]
        assert found["components"][1]["hashes"][0]["content"] == hashlib.sha256(b"library").hexdigest()
        assert found["metadata"]["component"]["purl"] == "pkg:pypi/edgegen@0.1.0"
        assert [one["name"] for one in json.loads(sbom(ROOT, "0.1.0", None))["components"]] == ["stories"]

    def test_gcc_adds_its_own(self) -> None:
        assert runtimes("manylinux_2_28_x86_64", clang=False) == ("libgcc",)
        assert runtimes("win_amd64", clang=False) == ("libgcc", "mingw-w64")
