"""The comparison without peers installed: contestants, environments, agreement of logits."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from bench.compare.comparison import Workshop, agreement
from bench.compare.contestants import CONTESTANTS, DEFAULT, Contestant, chosen
from bench.compare.environments import EDGEGEN, ROOT, Environment, InstallError
from bench.compare.footprint import installed_bytes


@pytest.mark.parametrize("contestant", CONTESTANTS.values(), ids=CONTESTANTS)
def test_a_contestant_has_an_adapter_and_a_conversion(contestant: Contestant) -> None:
    assert find_spec(contestant.module)
    if contestant.converted_as:
        source = CONTESTANTS[contestant.converted_as]
        assert (source.adapter, source.environment) == (contestant.adapter, contestant.environment)
        assert not source.converted_as


def test_an_unknown_peer_is_named_with_those_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no such peer: vllm \(there are edgegen, "):
        chosen(["edgegen", "vllm"])
    assert [contestant.name for contestant in chosen(DEFAULT)] == DEFAULT


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shapes", "G,X"], "no such shape: X (there are G, S, Q, L, L12, Q35, GLM, LING, M)"),
        (["--python", "vllm=python"], "no such environment: vllm (there are ctranslate2, "),
    ],
)
def test_what_is_unknown_ends_the_command_before_it_begins(tmp_path: Path, options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "bench.compare", "--work", str(tmp_path / "work"), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "work").exists()


def test_a_python_that_is_given_is_taken(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, reuse=False, pythons={EDGEGEN.name: Path("my-python")})
    assert workshop.python(EDGEGEN) == Path("my-python")
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_an_install_that_fails_says_why_and_is_not_taken_for_done(tmp_path: Path) -> None:
    environment = Environment("broken", (str(tmp_path / "no-such-folder"),))
    with pytest.raises(InstallError, match="no-such-folder"):
        environment.install(tmp_path / "venv")
    assert environment.python(tmp_path / "venv").exists()
    assert not environment.installed(tmp_path / "venv")


def test_an_environment_is_made_again_when_its_requirements_change(tmp_path: Path) -> None:
    (tmp_path / "requirements.json").write_text('["one==1"]')
    assert Environment("peer", ("one==1",)).installed(tmp_path)
    assert not Environment("peer", ("one==2",)).installed(tmp_path)


def test_agreement_takes_the_first_choice_from_what_is_generated() -> None:
    expected = {"a": np.array([0, 3, 4], np.float32), "b": np.array([5, 0, 0], np.float32)}
    actual = {"a": np.array([0, 3, 4.5]), "b": np.array([5, 0.5, 0]), "a-next": np.array([2]), "b-next": np.array([1])}
    found = agreement(expected, actual)
    assert (found.same, found.prompts) == (1, 2)
    assert found.error == pytest.approx(0.1)


def write_distribution(folder: Path, name: str, size: int, *requires: str) -> None:
    """As pip would install it: one file, and the metadata."""
    (folder / f"{name}.py").write_bytes(b" " * size)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
    (info / "RECORD").write_text(f"{name}.py,,\n")


def test_the_footprint_is_of_all_that_is_required_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]
    write_distribution(tmp_path, "peer_of_ours", 1000, "its-library>=1", "for_tests; extra == 'test'", "not-here")
    write_distribution(tmp_path, "its_library", 200, "peer-of-ours (>=1)")
    write_distribution(tmp_path, "for_tests", 50_000)
    assert installed_bytes(["peer-of-ours"]) == 1200
    assert installed_bytes(["peer-of-ours", "no-such-distribution"]) is None
