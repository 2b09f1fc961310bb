"""examples/quickstart.py runs, and is what README.md shows."""

import ast
import os
import subprocess
import sys

from tests.docs.markdown import ROOT, blocks

PROGRAM = ROOT / "examples" / "quickstart.py"


def test_the_quickstart_writes_a_story() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")])}
    done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_readme_shows_it() -> None:
    """All but the docstring, as the first block of Python."""
    source = PROGRAM.read_text("utf-8")
    assert ast.get_docstring(ast.parse(source))
    shown = next(block.code for block in blocks(ROOT / "README.md") if block.language == "python")
    assert source.rstrip("\n").partition('"""\n\n')[2] == shown
