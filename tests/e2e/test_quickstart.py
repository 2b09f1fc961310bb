"""examples/quickstart.py runs, and README.md leads to it."""

import ast
import os
import subprocess
import sys

from tests.root import ROOT

PROGRAM = ROOT / "examples" / "quickstart.py"


def test_the_quickstart_writes_a_story() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")])}
    done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_readme_leads_to_it() -> None:
    source = PROGRAM.read_text("utf-8")
    assert ast.get_docstring(ast.parse(source))
    assert "(examples/quickstart.py)" in (ROOT / "README.md").read_text("utf-8")
