"""Writes the table of systems in docs/installing.md from docs/systems.json, where findings are kept.

``python docs/make_systems.py merge FINDINGS…`` takes what commands have found into that file, and writes the table;
without files it only writes the table. ``python docs/make_systems.py suite TESTS.xml… FINDINGS --system NAME --how
measured`` makes a finding of pytest's JUnit reports, and ``windows REPORT FINDINGS`` of what ``.ci/windows --report``
writes. ``make wheels`` and ``.ci/use_wheel.py`` write findings themselves, and ``.ci/run`` makes all that it can.
"""

import argparse
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "installing.md"
RECORD = ROOT / "docs" / "systems.json"
BEGIN, END = "<!-- systems:begin -->\n", "<!-- systems:end -->\n"

SYSTEMS = ("Linux x86-64", "Linux aarch64", "Windows x64", "Windows arm64", "macOS arm64")
COLUMNS = {"installs": "installs", "kernels": "kernels", "ids": "same ids", "suite": "tests"}
"""Facts about a system, and the names of their columns."""

WAYS = ("untried", "cross-built", "emulated", "measured")
"""How it was found out, the weakest first."""


class FindingError(ValueError):
    """A finding is not of the table; the text says what is wrong with it."""


@dataclass(frozen=True)
class Finding:
    """Contents of one cell."""

    system: str
    column: str
    how: str
    what: str
    """In a few words: a count, the instruction set."""

    def __post_init__(self) -> None:
        for value, known in ((self.system, SYSTEMS), (self.column, tuple(COLUMNS)), (self.how, WAYS[1:])):
            if value not in known:
                raise FindingError(f"{value!r} is none of {', '.join(known)}")


def read(path: Path) -> list[Finding]:
    """The findings of a file.

    Raises:
        FindingError: it holds something else.
    """
    try:
        return [Finding(**entry) for entry in json.loads(path.read_text("utf-8"))]
    except (TypeError, ValueError) as error:
        raise FindingError(f"{path}: {error}") from error


def merged(old: Iterable[Finding], new: Iterable[Finding]) -> list[Finding]:
    """One finding a cell, in the table's order: of two the one found in the better way, or else the new one."""
    cells = dict[tuple[str, str], Finding]()
    for finding in (*old, *new):
        known = cells.get((finding.system, finding.column))
        if known is None or WAYS.index(finding.how) >= WAYS.index(known.how):
            cells[finding.system, finding.column] = finding
    return sorted(cells.values(), key=lambda one: (SYSTEMS.index(one.system), [*COLUMNS].index(one.column)))


def of_suite(reports: Iterable[Path], system: str, how: str) -> Finding:
    """The finding of JUnit reports: how many tests passed and failed, of runs that shared the tests between them.

    Raises:
        FindingError: one is no report, or no test ran in it.
    """
    passed, failed = (sum(counts) for counts in zip(*map(_counts, reports), strict=True))
    return Finding(system, "suite", how, _suite_cell(passed, failed))


def _counts(report: Path) -> tuple[int, int]:
    """Tests that passed, and that failed."""
    try:
        suites = [*ElementTree.parse(report).getroot().iter("testsuite")]
        counts = {
            name: sum(int(suite.get(name, "0")) for suite in suites)
            for name in ("tests", "failures", "errors", "skipped")
        }
    except (ElementTree.ParseError, ValueError) as error:
        raise FindingError(f"{report} is no JUnit report: {error}") from error
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    if not passed + failed:
        raise FindingError(f"{report}: no test ran")
    return passed, failed


def _suite_cell(passed: int, failed: int) -> str:
    return f"{passed:,} passed, {failed:,} failed"


def of_windows(report: Path) -> list[Finding]:
    """The findings of a run of Windows' Python under Wine.

    Raises:
        FindingError: the file is no report of ``.ci/windows``.
    """
    try:
        found = json.loads(report.read_text("utf-8"))
        ids = [bool(same) for same in found["ids"].values()]
        passed, failed = (sum(suite[name] for suite in found["suites"].values()) for name in ("passed", "failed"))
        kernels = str(found["kernels"])
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise FindingError(f"{report} is no report of .ci/windows: {error!r}") from error
    cells = {
        "installs": "its wheel",
        "kernels": kernels,
        "ids": f"{sum(ids)} of {len(ids)} texts" if ids else "",
        "suite": _suite_cell(passed, failed) if passed or failed else "",
    }
    return [Finding("Windows x64", column, "emulated", what) for column, what in cells.items() if what]


def table(findings: Iterable[Finding]) -> str:
    """The rows of all systems."""
    cells = {(one.system, one.column): f"{one.how}: {one.what}" for one in findings}
    lines = [f"| | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    rows = {system: [cells.get((system, column), WAYS[0]) for column in COLUMNS] for system in SYSTEMS}
    lines += [f"| {system} | {' | '.join(row)} |" for system, row in rows.items()]
    return "\n".join(lines) + "\n"


def in_page(rows: str, page: str) -> str:
    """The page with these rows."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + rows + END + rest.partition(END)[2]


def write(findings: Iterable[Finding], to: Path) -> None:
    """A file of findings, one a line."""
    to.write_text("[\n" + ",\n".join(json.dumps(asdict(one)) for one in findings) + "\n]\n", "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say; return 1 where a file is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command")
    merge = commands.add_parser("merge", help="take findings into docs/systems.json, and write the table")
    merge.add_argument("files", nargs="*", type=Path)
    suite = commands.add_parser("suite", help="make a finding of JUnit reports")
    suite.add_argument("reports", nargs="+", type=Path)
    suite.add_argument("findings", type=Path)
    suite.add_argument("--system", required=True, choices=SYSTEMS)
    suite.add_argument("--how", required=True, choices=WAYS[2:])
    windows = commands.add_parser("windows", help="make findings of a report of .ci/windows")
    windows.add_argument("report", type=Path)
    windows.add_argument("findings", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "windows":
            write(of_windows(chosen.report), chosen.findings)
            return 0
        if chosen.command == "suite":
            write([of_suite(chosen.reports, chosen.system, chosen.how)], chosen.findings)
            return 0
        files: list[Path] = chosen.files if chosen.command else []
        found = merged(read(RECORD), [one for file in files for one in read(file)])
    except (FindingError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    write(found, RECORD)
    PAGE.write_text(in_page(table(found), PAGE.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
