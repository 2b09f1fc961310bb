"""packaging/generating.txt: what generating text needs, and no more; what needs another package names it."""

import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests.root import ROOT

pytestmark = pytest.mark.slow

ALLOWED = """
import sys
allowed = {allowed!r}
class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in allowed:
            return None
        raise ModuleNotFoundError(f"No module named {{top!r}}", name=top)
sys.meta_path.insert(0, Only())
from edgegen.cli import run
sys.exit(run(sys.argv[1:]))
"""


def run_with(packages: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line where nothing but ``packages`` can be imported."""
    code = ALLOWED.format(allowed=packages | {"edgegen", "edgegen_export"})
    path = os.pathsep.join([str(ROOT), str(ROOT / "export")])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
        timeout=300,
    )


def whole() -> list[str]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]


def generating() -> list[str]:
    lines = (ROOT / "packaging" / "generating.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in requirements}


def test_what_generating_needs_is_a_part_of_the_whole() -> None:
    """But for what is a dependency of a dependency."""
    assert names(generating()) - names(whole()) == {"markupsafe"}
    bounds = {requirement for requirement in generating() if not requirement.startswith("markupsafe")}
    assert bounds <= set(whole())


@pytest.mark.e2e
class TestGeneratingOnly:
    PACKAGES = names(generating())

    @pytest.mark.parametrize(
        "arguments", [("generate", "Once", "-n", "3"), ("generate", "Once", "-n", "3", "--chat"), ("doctor",)]
    )
    def test_text_and_chats_are_generated(self, arguments: tuple[str, ...]) -> None:
        done = run_with(self.PACKAGES, *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()

    @pytest.mark.parametrize("flags", [("--choice", "a", "--choice", "b"), ("--regex", "a+")])
    def test_a_grammar_asks_for_llguidance_by_name(self, flags: tuple[str, ...]) -> None:
        done = run_with(self.PACKAGES, "generate", "Once", "-n", "3", *flags)
        assert done.returncode in (1, 2)
        (line,) = done.stderr.splitlines()
        assert line.startswith("edgegen: error: constrained output needs llguidance, which is not installed: run `pip")

    @pytest.mark.parametrize(("verb", "package"), [("serve", "starlette"), ("export", "onnx")])
    def test_other_verbs_name_what_they_need(self, verb: str, package: str) -> None:
        done = run_with(self.PACKAGES, verb, *(["gpt2"] if verb == "export" else []))
        assert done.returncode == 1
        assert (
            done.stderr
            == f"edgegen: error: this needs {package}, which is not installed: run `pip install {package}`.\n"
        )
