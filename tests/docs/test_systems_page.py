"""docs/installing.md: the table of systems is that of the findings, which come from commands."""

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from docs.make_systems import (
    BEGIN,
    COLUMNS,
    END,
    PAGE,
    RECORD,
    SYSTEMS,
    Finding,
    FindingError,
    main,
    merged,
    of_suite,
    of_windows,
    read,
    table,
    write,
)
from tests.root import ROOT

X64, ARM = "Linux x86-64", "Windows arm64"


def test_the_page_has_the_table_of_the_findings() -> None:
    rows = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert rows == table(read(RECORD)), "run python docs/make_systems.py"
    assert merged(read(RECORD), []) == read(RECORD)


def test_no_count_is_typed() -> None:
    """They are what ``suite`` and ``windows`` write."""
    cells = [one.what for one in read(RECORD) if one.column == "suite"]
    assert [cell for cell in cells if not re.fullmatch(r"[\d,]+ passed, [\d,]+ failed", cell)] == []


def test_every_cell_says_how_it_is_known() -> None:
    rows = table([Finding(ARM, "kernels", "cross-built", "a library")]).splitlines()
    assert rows[0] == f"| | {' | '.join(COLUMNS.values())} |"
    assert [row.split(" | ")[0].strip("| ") for row in rows[2:]] == [*SYSTEMS]
    assert f"| {ARM} | untried | cross-built: a library | untried | untried |" in rows


def test_the_better_way_and_then_the_newer_finding_stays() -> None:
    measured, emulated = Finding(X64, "ids", "measured", "120 ids"), Finding(X64, "ids", "emulated", "120 ids")
    newer = Finding(X64, "ids", "measured", "240 ids")
    first = Finding(X64, "installs", "measured", "its wheel")
    assert merged([measured], [emulated]) == [measured]
    assert merged([emulated], [measured]) == [measured]
    assert merged([measured], [newer, first]) == [first, newer]


@pytest.mark.parametrize("wrong", [("Plan 9", "ids", "measured"), (X64, "speed", "measured"), (X64, "ids", "guessed")])
def test_what_is_not_of_the_table_is_refused(wrong: tuple[str, str, str], tmp_path: Path) -> None:
    with pytest.raises(FindingError, match="is none of"):
        Finding(*wrong, what="")
    file = tmp_path / "findings.json"
    file.write_text(json.dumps([dict(zip(("system", "column", "how", "what"), (*wrong, ""), strict=True))]))
    with pytest.raises(FindingError, match=r"findings\.json: .* is none of"):
        read(file)


class TestSuite:
    @staticmethod
    def report(folder: Path, counts: str) -> Path:
        file = folder / "tests.xml"
        file.write_text(f"<testsuites><testsuite {counts}/></testsuites>")
        return file

    def test_counts_become_a_finding(self, tmp_path: Path) -> None:
        report = self.report(tmp_path, 'tests="1500" failures="2" errors="1" skipped="97"')
        findings = tmp_path / "findings.json"
        assert main(["suite", str(report), str(findings), "--system", ARM, "--how", "measured"]) == 0
        assert read(findings) == [Finding(ARM, "suite", "measured", "1,400 passed, 3 failed")]
        write(read(findings), findings)
        assert read(findings) == [Finding(ARM, "suite", "measured", "1,400 passed, 3 failed")]

    def test_runs_that_shared_the_tests_are_one_finding(self, tmp_path: Path) -> None:
        (tmp_path / "first").mkdir()
        reports = [
            self.report(tmp_path / "first", 'tests="7000" skipped="900"'),
            self.report(tmp_path, 'tests="1500" failures="2" skipped="98"'),
        ]
        assert of_suite(reports, X64, "measured").what == "7,500 passed, 2 failed"

    def test_a_run_without_tests_finds_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        report = self.report(tmp_path, 'tests="3" skipped="3"')
        with pytest.raises(FindingError, match="no test ran"):
            of_suite([report], ARM, "measured")
        report.write_text("no XML")
        assert main(["suite", str(report), str(tmp_path / "f"), "--system", ARM, "--how", "measured"]) == 1
        assert "is no JUnit report" in capsys.readouterr().err


class TestWindows:
    REPORT: Mapping[str, Any] = {
        "kernels": "avx2",
        "ids": {"int8": True, "int4": False},
        "suites": {"server": {"passed": 1068, "failed": 0}, "kernels": {"passed": 598, "failed": 1}},
    }

    def test_a_report_of_wine_becomes_findings(self, tmp_path: Path) -> None:
        report, findings = tmp_path / "report.json", tmp_path / "findings.json"
        report.write_text(json.dumps(self.REPORT))
        assert main(["windows", str(report), str(findings)]) == 0
        assert {one.column: (one.how, one.what) for one in read(findings)} == {
            "installs": ("emulated", "its wheel"),
            "kernels": ("emulated", "avx2"),
            "ids": ("emulated", "1 of 2 texts"),
            "suite": ("emulated", "1,666 passed, 1 failed"),
        }

    def test_suites_that_did_not_run_are_no_finding(self, tmp_path: Path) -> None:
        report = tmp_path / "report.json"
        report.write_text(json.dumps({**self.REPORT, "suites": {}, "ids": {}}))
        assert {one.column for one in of_windows(report)} == {"installs", "kernels"}
        report.write_text("{}")
        with pytest.raises(FindingError, match=r"is no report of \.ci/windows"):
            of_windows(report)


def test_the_check_of_an_installed_wheel_names_columns_of_the_table() -> None:
    script = ROOT / ".ci" / "use_wheel.py"
    if not script.exists():
        pytest.skip("a source distribution has no .ci")
    spec = importlib.util.spec_from_file_location("use_wheel", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.findings(X64, "measured", "avx2", 120)
    assert {Finding(**row).column for row in rows} == {"installs", "kernels", "ids"}
