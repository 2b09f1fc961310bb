"""`.ci/titles.py` and the hook of `make hooks` hold the titles of commits to the form that CONTRIBUTING.md gives."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.root import ROOT

SCRIPT = ROOT / ".ci" / "titles.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="a source distribution has no .ci")


def _check(tmp_path: Path, message: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "message"
    file.write_text(message, "utf-8")
    return subprocess.run([sys.executable, SCRIPT, file], capture_output=True, text=True)


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    name = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *name, *words], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one commit, and with the script, whose base is that commit."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    _git(folder, "init", "--initial-branch=main")
    assert _git(folder, "commit", "--allow-empty", "-m", "Whatever it was").returncode == 0
    base = _git(folder, "rev-parse", "HEAD").stdout.strip()
    script = folder / ".ci" / "titles.py"
    lines = [f'BASE = "{base}"' if line.startswith("BASE =") else line for line in script.read_text().splitlines()]
    script.write_text("\n".join(lines))
    return folder


def _check_history(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ".ci/titles.py"], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    "title",
    [
        "engine: split Sequence into parameters, cache state and timings",
        "README: bring figures up to date",
        "docs/cli: embed the help of every verb",
        "kernels: process two rows at once",
        "bench.gguf: bias the choice towards Q8_0",
        "a: " + "b" * 69,
        "Merge prefix caching",
        "Merge branch 'wire'",
        "model: merge two graphs",
    ],
)
def test_good_titles(tmp_path: Path, title: str) -> None:
    assert _check(tmp_path, f"{title}\n\nWhy. Anything may stand here.\n# a comment\n").returncode == 0


@pytest.mark.parametrize(
    ("title", "told"),
    [
        ("split Sequence into parts", "not of the form 'area: what it does'"),
        ("Engine: split Sequence", "not of the form 'area: what it does'"),
        ("engine, model: split Sequence", "not of the form 'area: what it does'"),
        ("engine:split Sequence", "not of the form 'area: what it does'"),
        ("wip", "not of the form 'area: what it does'"),
        ("engine: splits Sequence", "'splits' is not a verb in the imperative"),
        ("engine: splitting Sequence", "'splitting' is not a verb in the imperative"),
        ("engine: added a queue", "'added' is not a verb in the imperative"),
        ("engine: the queue of requests", "'the' is not a verb in the imperative"),
        ("docs: FP8 checkpoints", "'FP8' is not a verb in the imperative"),
        ("a: " + "b" * 70, "it has 73 characters, at most 72 are allowed"),
        ("docs: shorten a line.", "it ends with a full stop"),
        ("docs: shorten a line; tests: add one", "it names several things"),
        ("Merge the rest of hybrids", "it does not name what is merged"),
        ("Merge the last of trust", "it does not name what is merged"),
    ],
)
def test_bad_titles(tmp_path: Path, title: str, told: str) -> None:
    done = _check(tmp_path, f"# a comment\n{title}\n")
    assert done.returncode == 1
    assert told in done.stderr
    assert "CONTRIBUTING.md" in done.stderr


def test_all_problems_of_a_title_are_told(tmp_path: Path) -> None:
    told = _check(tmp_path, f"docs: the lines; {'more ' * 20}lines.").stderr
    assert all(problem in told for problem in ("it has 123 characters", "full stop", "'the'", "several things"))


def test_titles_after_the_base_are_checked(clone: Path) -> None:
    _git(clone, "commit", "--allow-empty", "-m", "docs: shorten a line")
    done = _check_history(clone)
    assert (done.returncode, done.stdout) == (0, "the titles of 1 commits have the form of CONTRIBUTING.md\n")
    _git(clone, "commit", "--allow-empty", "-m", "Shorter lines")
    assert "'Shorter lines'" in _check_history(clone).stderr


@pytest.mark.parametrize(("title", "code"), [("Merge shorter lines", 0), ("Merge the rest of lines", 1)])
def test_merges_name_what_they_merge(clone: Path, title: str, code: int) -> None:
    _git(clone, "checkout", "-b", "lines")
    _git(clone, "commit", "--allow-empty", "-m", "docs: shorten a line")
    _git(clone, "checkout", "main")
    assert _git(clone, "merge", "--no-ff", "-m", title, "lines").returncode == 0
    assert _check_history(clone).returncode == code


def test_only_a_merge_is_called_so(clone: Path) -> None:
    _git(clone, "commit", "--allow-empty", "-m", "Merge shorter lines")
    assert _check_history(clone).returncode == 1


def test_shallow_clones_are_not_checked(clone: Path, tmp_path: Path) -> None:
    _git(clone, "add", ".ci")
    _git(clone, "commit", "-m", "Shorter lines")
    _git(tmp_path, "clone", "--depth=1", clone.as_uri(), "shallow")
    done = _check_history(tmp_path / "shallow")
    assert (done.returncode, done.stdout) == (0, "titles are not checked: this clone is shallow\n")


def test_folders_without_history_are_not_checked(tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    done = _check_history(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("titles are not checked: ")


def test_hook_refuses_a_commit(clone: Path) -> None:
    words = next(line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if "core.hooksPath" in line)
    _git(clone, *words.split()[1:])
    refused = _git(clone, "commit", "--allow-empty", "-m", "Shorter lines")
    assert (refused.returncode, "not of the form" in refused.stderr) == (1, True)
    assert _git(clone, "commit", "--allow-empty", "-m", "docs: shorten a line").returncode == 0
