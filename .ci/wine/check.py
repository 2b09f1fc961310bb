"""Holds edgegen on Windows to edgegen here: `check.py WINDOWS`, where `make_python.py` has made WINDOWS.

The same ids from the same bundles, the same bytes from the same checkpoint, and the suites that Wine can run, two
processes at a time. `--report FILE` writes what was found as JSON.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHECKPOINT = ROOT / "models" / "stories"
USER = "C:\\users\\Zoë Ünïcode 山"
"""Whose bundles and exports are there; make_python.py puts the profile there too. The names are not ASCII."""
LONGEST_S = 600
"""Of one process under Wine, before it is ended."""

BUNDLES = {"int8": ["--int8"], "int4": ["--int4", "--fast"], "fp32": ["--fp32"]}
EXPORTED = ("int8", "fp32")
"""Whose bytes are equal. NumPy's OpenBLAS rounds otherwise in its Windows wheel, and int4 shows it."""

SUITES: dict[str, list[str]] = {
    "server": ["tests/runtime/server", "--ignore=tests/runtime/server/test_schemathesis.py"],  # not installed there
    "batch": ["tests/runtime/batch", "tests/cli/test_batch.py", "--ignore=tests/runtime/batch/test_ray.py"],
    "verbs": ["tests/cli/test_verbs.py"],
    "generate": [
        "tests/cli/test_generate.py",
        "-k",
        "not (SamplingFlags or StoppingFlags or Speculation or Constraints)",
    ],
    "bundle": [
        "tests/runtime/bundle",
        "tests/export/output",
        "--ignore=tests/export/output/test_estimate.py",
        "--deselect=tests/runtime/bundle/test_manifest_digest.py::test_no_flipped_bit_passes",
    ],
    "model": ["tests/runtime/model"],
    "kernels": ["tests/kernels"],
    "system": ["tests/runtime/system", "tests/cli/test_systems.py"],
}
"""Suites by name; the longest come first. What no system can change, numbers above all, is left to Linux's runs."""
LIBRARIES = ("ucrtbase", "wucrt", "bcryptprimitives", "dxgi")
"""Libraries that a program needs beside it and Wine does not have; make_python.py compiles them."""
BY_NAME_ONLY = ("server",)
"""Takes longer than all others together, and is run where it is asked for."""


@dataclass
class Suite:
    """Counts of tests, and the names of those that failed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass
class Report:
    """Findings. ``ids`` and ``exports`` say of each whether it is Linux's, ``desktop`` whether it works."""

    wine: str
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    kernels: str = ""
    ids: dict[str, bool] = field(default_factory=dict)
    exports: dict[str, bool] = field(default_factory=dict)
    desktop: dict[str, bool] = field(default_factory=dict)
    suites: dict[str, Suite] = field(default_factory=dict)
    seconds: float = 0.0

    def problems(self) -> list[str]:
        found = [f"{name}: the ids are not Linux's" for name, same in self.ids.items() if not same]
        found += [f"{name}: the files of the bundle are not Linux's" for name, same in self.exports.items() if not same]
        found += [f"{name}: does not work" for name, works in self.desktop.items() if not works]
        if self.kernels.startswith("stock"):
            found.append(f"the kernels do not run: {self.kernels}")
        return found + [f"{name}: {suite.failed} failed" for name, suite in self.suites.items() if suite.failed]


class Windows:
    """The Windows Python in ``folder``, and a copy of the checkout on its drive C."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.drive = self.folder / "prefix" / "drive_c"
        self.checkout = self.drive / "checkout"

    def run(
        self, arguments: list[str], *, tests: bool = False, display: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with ``arguments``: the installed wheel, or with ``tests`` the copy of the checkout.

        ``display``: windows are shown on a virtual display.
        """
        ours = {"OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        if data := os.environ.get("EDGEGEN_TEST_DATA"):
            ours["EDGEGEN_TEST_DATA"] = on_drive_z(Path(data).resolve())
        if tests:
            # Tests read what their processes print as text.
            ours |= {"PYTHONPATH": "C:\\checkout;C:\\checkout\\export", "PYTHONUTF8": "1"}
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("EDGEGEN_", "PYTEST_"))
        }
        environment.pop("PYTHONPATH", None)
        before = ["timeout", str(LONGEST_S), *(["xvfb-run", "-a"] if display else [])]
        return subprocess.run(
            [*before, HERE / "python", self.folder, *arguments],
            cwd=self.checkout if tests else self.drive,
            env=environment | ours,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )

    def on_drive_c(self, path: str) -> Path:
        """Where Linux has a path of drive C."""
        return self.drive.joinpath(*path.split("\\")[1:])

    def copy_checkout(self) -> None:
        """The files of the checkout, with the wheel's library of kernels in it."""
        shutil.rmtree(self.checkout, ignore_errors=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, self.checkout / name)
        library = "edgegen/model/edgegen_kernels.dll"
        shutil.copyfile(self.folder / "python/Lib/site-packages" / library, self.checkout / library)


def on_drive_z(path: Path) -> str:
    """A path of Linux, as Wine has it."""
    return "Z:" + str(path).replace("/", "\\")


def here(*arguments: str) -> str:
    """Return what Python prints here, on Linux.

    Raises:
        SystemExit: it fails.
    """
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")]), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | path, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"python {' '.join(arguments)} fails on Linux: {done.stderr.strip()}")
    return done.stdout


def export_arguments(name: str, checkpoint: str, to: str) -> list[str]:
    return ["-m", "edgegen", "export", checkpoint, *BUNDLES[name], "--force", "-o", to]


def observed(windows: Windows, what: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what observe.py prints on Linux, and on Windows."""
    there = windows.run([on_drive_z(HERE / "observe.py"), what, on_drive_z(folder)])
    if there.returncode:
        sys.exit(f"observe.py {what} fails on Windows: {there.stderr.strip()[-2000:]}")
    return json.loads(here(str(HERE / "observe.py"), what, str(folder))), json.loads(there.stdout)


def same_exports(windows: Windows, bundles: Path) -> dict[str, bool]:
    """Whether a bundle that Windows exports has the bytes of Linux's."""
    same = dict[str, bool]()
    for name in EXPORTED:
        to = windows.on_drive_c(f"{USER}\\exported\\{name}")
        done = windows.run(export_arguments(name, on_drive_z(CHECKPOINT), f"{USER}\\exported\\{name}"))
        if done.returncode:
            print(f"export {name}: {done.stderr.strip()[-2000:]}", flush=True)
        ours, theirs = (
            json.loads(here(str(HERE / "observe.py"), "files", str(one))) if one.is_dir() else {}
            for one in (bundles / name, to)
        )
        same[name] = ours == theirs
        if changed := sorted(file for file in ours.keys() | theirs.keys() if ours.get(file) != theirs.get(file)):
            print(f"export {name}: not the bytes of Linux: {', '.join(changed)}", flush=True)
    return same


def desktop(windows: Windows) -> dict[str, bool]:
    """Whether a frozen app writes what the program writes on Linux, and windows of Tk and Qt load, answer and stop."""
    examples = ROOT / "examples" / "desktop"
    found, folder = dict[str, bool](), windows.drive / "desktop"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    app, to = examples / "frozen_app.py", "C:\\desktop"
    expected = here(str(app))
    options = ["--noconfirm", "--log-level", "ERROR", "--workpath", f"{to}\\work", "--specpath", to]
    for name, more, written in (("frozen app", [], None), ("windowed frozen app", ["--windowed"], "answers.txt")):
        at = "windowed" if more else "console"
        done = windows.run(["-m", "PyInstaller", *options, *more, "--distpath", f"{to}\\{at}", on_drive_z(app)])
        program = folder / at / "frozen_app" / "frozen_app.exe"
        if program.is_file():
            for library in LIBRARIES:
                shutil.copyfile(windows.folder / "python" / f"{library}.dll", program.with_name(f"{library}.dll"))
            command = [f"{to}\\{at}\\frozen_app\\frozen_app.exe", *([f"{to}\\{written}"] if written else [])]
            done = windows.run(["-c", f"import subprocess, sys; sys.exit(subprocess.run({command!r}).returncode)"])
        answers = folder / written if written else None
        text = answers.read_text("utf-8") + "\n" if answers and answers.is_file() else done.stdout
        found[name] = text == expected
        if not found[name]:
            print(f"{name}: {done.stdout.strip()} {done.stderr.strip()[-2000:]}", flush=True)
    if shutil.which("xvfb-run"):
        driver = ROOT / "tests" / "e2e" / "tkinter_window.py"
        window = windows.run([on_drive_z(driver), on_drive_z(examples / "tkinter_chat.py")], display=True)
        found["tkinter window"] = window.returncode == 0
        if not found["tkinter window"]:
            print(f"tkinter window: {window.stderr.strip()[-2000:]}", flush=True)
        window = windows.run([on_drive_z(HERE / "window.py"), on_drive_z(examples / "pyside_chat.py")], display=True)
        found["PySide6 window"] = window.stdout.strip() in (
            f"{status} ['user', 'assistant'] None" for status in ("Stopped", "Ready")
        )
        if not found["PySide6 window"]:
            print(f"PySide6 window: {window.stdout.strip()} {window.stderr.strip()[-2000:]}", flush=True)
    print(f"   desktop  {sum(found.values())} of {len(found)} work: {', '.join(found)}", flush=True)
    return found


def run_suite(windows: Windows, name: str) -> Suite:
    """Run pytest on a suite, and print its time and its failures."""
    began, result = time.monotonic(), windows.drive / f"{name}.xml"
    result.unlink(missing_ok=True)
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow", "--hypothesis-profile", "quick"]
    options += ["--junit-xml", f"C:\\{name}.xml"]
    done = windows.run(["-m", "pytest", *options, *SUITES[name]], tests=True)
    suite = read_suite(result) if result.is_file() else Suite(failed=1, failures=["pytest did not end"])
    suite.seconds = round(time.monotonic() - began, 1)
    counts = f"{suite.passed:5} passed  {suite.failed:3} failed  {suite.skipped:3} skipped"
    print(f"{name:>10}  {counts}  {suite.seconds:4.0f} s", flush=True)
    if suite.failed:
        print("\n".join(done.stdout.splitlines()[-60:] + done.stderr.splitlines()[-20:]), flush=True)
    return suite


def read_suite(result: Path) -> Suite:
    """The counts in a file of JUnit's format."""
    suite = Suite()
    for case in ElementTree.parse(result).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            suite.failed += 1
            suite.failures.append(f"{case.get('classname')}.{case.get('name')}")
        elif "skipped" in kinds:
            suite.skipped += 1
        else:
            suite.passed += 1
    return suite


def compare(windows: Windows, report: Report) -> None:
    """Fill in ``ids`` and ``exports``, and what Python, libraries and kernels there are on Windows."""
    bundles = windows.on_drive_c(f"{USER}\\bundles")
    for name in BUNDLES:
        here(*export_arguments(name, str(CHECKPOINT), str(bundles / name)))
    ours, theirs = observed(windows, "ids", bundles)
    report.python, report.versions, report.kernels = theirs["python"], theirs["versions"], theirs["kernels"]
    report.ids = {name: theirs["ids"].get(name) == ids for name, ids in ours["ids"].items()}
    print(f"       ids  {sum(report.ids.values())} of {len(report.ids)} as on Linux, by {report.kernels}", flush=True)
    if ours["versions"] != theirs["versions"]:
        print(f"note: the versions are {theirs['versions']} on Windows, {ours['versions']} here", flush=True)
    report.exports = same_exports(windows, bundles)
    print(f"   exports  {sum(report.exports.values())} of {len(report.exports)} as on Linux", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("windows", type=Path)
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE",
        help=f"{', '.join(SUITES)}, same, desktop (default: all but {', '.join(BY_NAME_ONLY)})",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was found, as JSON")
    arguments = parser.parse_intermixed_args()
    names: list[str] = arguments.suites or ["same", *(name for name in SUITES if name not in BY_NAME_ONLY), "desktop"]
    if unknown := set(names) - {"same", "desktop", *SUITES}:
        parser.error(f"no suite is named {', '.join(sorted(unknown))}: there are same, desktop, {', '.join(SUITES)}")
    began, windows = time.monotonic(), Windows(arguments.windows)
    wine = subprocess.run(["wine", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    report = Report(wine)
    windows.copy_checkout()

    def one(name: str) -> None:
        if name == "same":
            compare(windows, report)
        elif name == "desktop":
            report.desktop = desktop(windows)
        else:
            report.suites[name] = run_suite(windows, name)

    with ThreadPoolExecutor(2) as processes:
        list(processes.map(one, names))
    report.seconds = round(time.monotonic() - began, 1)
    total = [sum(getattr(suite, kind) for suite in report.suites.values()) for kind in ("passed", "failed", "skipped")]
    print(f"     total  {total[0]:5} passed  {total[1]:3} failed  {total[2]:3} skipped  {report.seconds:4.0f} s")
    if arguments.report:
        arguments.report.write_text(json.dumps(asdict(report), indent=1) + "\n")
    if problems := report.problems():
        sys.exit("\n".join(["", *problems]))


if __name__ == "__main__":
    main()
