"""The Containerfile of docs/service.md: it copies what is there, starts a real command, and its health check works."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

from edgegen.cli import command_of
from edgegen.cli.environment import HOME, variables_of
from edgegen.server.http.options import ServerOptions
from tests.command_line import given
from tests.root import ROOT

pytestmark = pytest.mark.e2e

TEXT = (ROOT / "packaging" / "Containerfile").read_text("utf-8").replace("\\\n", " ")
STEPS = [(match[1], match[2].strip()) for match in re.finditer(r"^([A-Z]+) (.*)$", TEXT, re.MULTILINE)]


def steps(name: str) -> list[str]:
    return [rest for step, rest in STEPS if step == name]


def variables() -> dict[str, str]:
    return dict(word.split("=", 1) for line in steps("ENV") for word in line.split() if word.startswith("EDGEGEN_"))


def healthy(port: int) -> bool:
    """Return whether the health check passes at a port."""
    (line,) = steps("HEALTHCHECK")
    program, *arguments = json.loads(line[line.index("[") :])
    assert program == "python"
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | {"EDGEGEN_PORT": str(port)}, capture_output=True, check=False
    )
    return done.returncode == 0


def test_what_the_build_needs_is_copied() -> None:
    copied = {word for line in steps("COPY") if "--from" not in line for word in line.split()[:-1]}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = {
        project["project"]["readme"],
        *project["project"]["license-files"],
        "pyproject.toml",
        "hatch_build.py",
        "kernels",
        "packaging",  # of which hatch_build.py takes two modules
    }
    assert files | {package.split("/")[0] for package in packages} == copied


def test_two_stages_and_no_root() -> None:
    first, second = steps("FROM")
    assert first == f"{second} AS build"
    user = steps("USER")
    assert user == ["10001"]
    assert f"--uid {user[0]} " in " ".join(steps("RUN"))
    assert steps("VOLUME") == [variables()[HOME]]


def test_the_command_is_there_and_takes_the_variables() -> None:
    verb, *flags = json.loads(steps("CMD")[0])
    assert json.loads(steps("ENTRYPOINT")[0]) == ["edgegen"]
    assert verb == "serve"
    assert given(verb, flags, ServerOptions) == {}
    assert sorted(set(variables()) - {HOME, *variables_of(command_of(verb))}) == []
    assert steps("EXPOSE") == [variables()["EDGEGEN_PORT"]]


def test_the_health_check() -> None:
    environment = os.environ | {"EDGEGEN_PORT": "0", "EDGEGEN_API_KEY": "a-key"}
    command = [sys.executable, "-m", "edgegen", "serve", "--host", variables()["EDGEGEN_HOST"]]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            said = process.stderr.readline()
            port = int(said.split(" at ")[1].split()[0].rpartition(":")[2])
            assert healthy(port)
        finally:
            process.kill()
            process.communicate()
    assert not healthy(port)
