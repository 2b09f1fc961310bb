"""Every client that docs/serving.md names, in an environment of its own, against ``edgegen serve``.

    python -m tests.long.clients [NAME …]

Each Python client is installed, with what it needs, into a virtual environment in a temporary folder; all else, edgegen
and pytest among it, comes from the environment of this command, which has the extra ``oracle``. Those of npm are
installed by ``npm ci`` into their folders in tests/clients. Then the tests of tests/clients run with it. The table of
docs/serving.md is printed at the end; what fails is shown before, and the exit code is 1.
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from tests.root import ROOT

SCENARIOS = ("chat", "stream", "tools", "structured_output", "errors")
"""The tests of each begin with its name."""

FOLDER = ROOT / "tests" / "clients"


@dataclass(frozen=True)
class Client:
    """A client of the table.

    Attributes:
        module: its tests, in tests/clients.
        requirement: what pip installs; None if it is in this environment already, or not pip's.
        packages: the folder in tests/clients for npm, of a client for Node.
    """

    name: str
    module: str
    requirement: str | None = None
    packages: str | None = None

    @property
    def version(self) -> str:
        if self.requirement:
            return self.requirement.partition("==")[2]
        if self.packages is None:
            return version(self.name)
        return json.loads((FOLDER / self.packages / "package.json").read_text())["dependencies"][self.name.split()[0]]


CLIENTS = (
    Client("openai", "test_openai_client.py"),
    Client("instructor", "test_instructor.py", "instructor==1.17.0"),
    Client("llama-index", "test_llama_index.py", "llama-index-llms-openai-like==0.8.1"),
    Client("pydantic-ai", "test_pydantic_ai.py", "pydantic-ai-slim==2.68.0"),
    Client("langchain-openai", "test_langchain.py", "langchain-openai==1.7.4"),
    Client("litellm", "test_litellm.py", "litellm==1.110.2"),
    Client("ai", "test_vercel.py", packages="vercel"),
    Client("ollama", "test_ollama_client.py", "ollama==0.6.3"),
    Client("ollama (npm)", "test_ollama_js.py", packages="ollama"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [client.name for client in CLIENTS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all by default")
    chosen: list[str] = parser.parse_args().names
    if unknown := sorted({*chosen} - {*names}):
        parser.error(f"no client is named {', '.join(unknown)}: there are {', '.join(names)}")
    rows, failed = list[list[str]](), False
    for client in CLIENTS:
        if not chosen or client.name in chosen:
            cells = run(client)
            failed |= any(cell != "yes" for cell in cells)
            rows.append([f"`{client.name}`", client.version, *cells])
    print(table(rows))
    return int(failed)


def run(client: Client) -> list[str]:
    """The cells of a client: whether all tests of a scenario pass."""
    with TemporaryDirectory() as folder:
        print(f"{client.name} {client.version}: installing", file=sys.stderr)
        python = installed(client, Path(folder))
        print(f"{client.name} {client.version}: testing", file=sys.stderr)
        report = Path(folder) / "report.xml"
        command = [str(python), "-m", "pytest", "-q", "-n", "0", "-W", "ignore", "--tb=short", f"--junitxml={report}"]
        path = os.pathsep.join(str(part) for part in (ROOT, ROOT / "export"))
        environment = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(
            [*command, f"tests/clients/{client.module}"], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
        return results(report) if report.exists() else ["did not run"] * len(SCENARIOS)


def installed(client: Client, folder: Path) -> Path:
    """The Python that has the client."""
    if client.packages is not None:
        npm = ["npm", "ci", "--prefix", str(FOLDER / client.packages), "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(npm, check=True, stdout=subprocess.DEVNULL)
    if client.requirement is None:
        return Path(sys.executable)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    purelib = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run([python, *purelib], check=True, capture_output=True, text=True).stdout.strip()
    (Path(own) / "first.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, client.requirement], check=True)
    return python


def results(report: Path) -> list[str]:
    """Return the results of each scenario, from pytest's report."""
    counts = {scenario: Counter[str]() for scenario in SCENARIOS}
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("name", "").removeprefix("test_").partition("[")[0]
        scenario = next((one for one in SCENARIOS if name.startswith(one)), None)
        assert scenario, f"{name}: the name of a test begins with one of {', '.join(SCENARIOS)}"
        kinds = {child.tag for child in case}
        counts[scenario][
            "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        ] += 1
    return [cell(count) for count in counts.values()]


def cell(count: Counter[str]) -> str:
    if count["failed"]:
        return f"{count['failed']} of {count.total()} fail"
    return "yes" if count["passed"] == count.total() > 0 else "not tested"


def table(rows: Sequence[Sequence[str]]) -> str:
    head = ["client", "version", *(scenario.replace("_", " ") for scenario in SCENARIOS)]
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


if __name__ == "__main__":
    sys.exit(main())
