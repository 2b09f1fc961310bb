"""``edgegen completion``: the scripts, and what they are answered when a shell asks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import CompletionItem, ShellComplete

from edgegen.cli import VERBS, app
from tests.cli.conftest import Edgegen
from tests.root import ROOT
from tests.systems import needs_posix

pytestmark = pytest.mark.slow

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def completions(*words: str) -> list[CompletionItem]:
    """Return click's completions of the last word, by the protocol that all shells' scripts use."""
    *before, incomplete = words
    return ShellComplete(app, {}, "edgegen", "_EDGEGEN_COMPLETE").get_completions([*before], incomplete)


def completed(*words: str) -> list[str]:
    return [item.value for item in completions(*words)]


@pytest.mark.unit
class TestProtocol:
    def test_verbs(self) -> None:
        assert completed("") == [*VERBS]
        assert completed("co") == ["completion", "config"]
        assert {item.value: item.help for item in completions("")} == VERBS

    def test_flags(self) -> None:
        assert completed("serve", "--po") == ["--port"]
        assert "--help" in completed("--")

    def test_choices(self) -> None:
        assert completed("generate", "--kv", "") == ["float32", "int8", "int4"]
        assert completed("chat", "--context-overflow", "d") == ["drop_oldest"]
        assert completed("completion", "") == ["bash", "zsh", "fish"]

    @pytest.mark.parametrize(
        "words", [("generate", "-m"), ("chat", "--draft"), ("serve", "--model"), ("info",), ("verify",), ("eval",)]
    )
    def test_bundles(self, words: tuple[str, ...], edgegen_home: Path, tmp_path: Path) -> None:
        (edgegen_home / "bundles" / "tiny-int8").mkdir(parents=True)
        (edgegen_home / "bundles" / "tiny-int8" / "edgegen.json").write_text("{}")  # unreadable, and still a name
        assert completed(*words, "") == ["stories", "tiny-int8"]
        assert completed(*words, "ti") == ["tiny-int8"]
        assert [item.type for item in completions(*words, "./nowhere")] == ["dir"]

    @pytest.mark.parametrize(
        "words", [("generate", "-f"), ("batch",), ("batch", "-o"), ("export",), ("serve", "--api-key-file")]
    )
    def test_files_are_left_to_the_shell(self, words: tuple[str, ...]) -> None:
        assert [item.type for item in completions(*words, "no")] == ["file"]

    def test_verbs_of_config_and_their_end(self) -> None:
        assert completed("config", "ch") == ["chat"]
        assert completed("config", "chat", "ch") == []

    def test_an_unknown_verb_is_no_error(self) -> None:
        assert completed("nonsense", "--kv", "") == [*VERBS]

    def test_misspelt_variables_are_no_matter(
        self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EDGEGEN_TEMPRATURE", "1")
        monkeypatch.setenv("EDGEGEN_KV", "int5")
        assert completed("generate", "--kv", "i") == ["int8", "int4"]
        assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("shell", "registers"),
    [("bash", "complete -o nosort -F _edgegen_completion edgegen"), ("zsh", "compdef"), ("fish", "--command edgegen")],
)
def test_the_scripts(edgegen: Edgegen, shell: str, registers: str) -> None:
    done = edgegen("completion", shell)
    assert done.returncode == 0
    assert registers in done.stdout.decode()
    assert f"_EDGEGEN_COMPLETE={shell}_complete" in done.stdout.decode()


def test_another_shell_is_an_error(edgegen: Edgegen) -> None:
    done = edgegen("completion", "tcsh")
    assert (done.returncode, done.stdout) == (2, b"")
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.stderr.decode()


@needs_bash
@needs_posix("programs that are shell scripts")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["edgegen", "gen"], ["generate"]),
        (["edgegen", "generate", "-m", "sto"], ["stories"]),
        (["edgegen", "generate", "--kv", ""], ["float32", "int8", "int4"]),
        (["edgegen", "batch", "pro"], []),
    ],
)
def test_bash_completes_with_the_script(edgegen: Edgegen, tmp_path: Path, words: list[str], replies: list[str]) -> None:
    script, program = tmp_path / "script.bash", tmp_path / "edgegen"
    script.write_bytes(edgegen("completion", "bash").stdout)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edgegen "$@"\n')
    program.chmod(0o755)
    # A shell that is not interactive has no compopt, by which the script leaves files to bash.
    ask = (
        f'compopt() {{ :; }}; source "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _edgegen_completion edgegen'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", f'{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"', "bash", *words],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}:{ROOT / 'export'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == replies
    assert done.stderr == ""
