"""The systemd unit and the settings of docs/service.md: systemd takes them, and so does the command."""

import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from ipaddress import ip_network
from pathlib import Path

import pytest

from edgegen.cli import command_of
from edgegen.cli.environment import API_KEY, HOME, variables_of
from edgegen.server.http.options import ServerOptions
from tests.command_line import given
from tests.root import ROOT

UNIT = ROOT / "packaging" / "edgegen.service"
SETTINGS = ROOT / "packaging" / "edgegen.env"
MOST_EXPOSURE = 20
"""Tenths, as systemd-analyze security counts it from 0 to 100; a service without any limits has 96."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed: it reads the unit"
)


def settings() -> dict[str, list[str]]:
    """The unit's settings: each may stand there several times."""
    found = defaultdict[str, list[str]](list)
    for line in UNIT.read_text("utf-8").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there."""
    (program,) = settings()["ExecStart"]
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text("utf-8").replace(program.split()[0], "/bin/true"), "utf-8")
    return path


@needs_systemd
def test_systemd_finds_nothing_wrong(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
def test_systemd_finds_what_is_wrong(unit: Path) -> None:
    unit.write_text(unit.read_text("utf-8").replace("ProtectHome=yes", "ProtectHoem=yes"), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "ProtectHoem" in done.stderr


@needs_systemd
def test_the_service_is_exposed_to_little(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--no-pager", "--offline=true", f"--threshold={MOST_EXPOSURE}", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a unit that is a file: it is older than version 250")
    assert done.returncode == 0, done.stdout


def test_the_command_takes_the_flags_and_ends_in_time() -> None:
    (line,) = settings()["ExecStart"]
    program, verb, *flags = shlex.split(line)
    assert Path(program).name == "edgegen"
    assert verb == "serve"
    options = ServerOptions(**given("serve", flags, ServerOptions))
    assert options.grace_seconds < int(settings()["TimeoutStopSec"][0])


def test_bundles_are_kept_where_the_service_may_write() -> None:
    (folder,) = settings()["StateDirectory"]
    assert f"{HOME}=%S/{folder}" in settings()["Environment"]
    assert settings()["DynamicUser"] == settings()["NoNewPrivileges"] == ["yes"]
    assert settings()["ProtectSystem"] == ["strict"]


def test_private_networks_only() -> None:
    assert settings()["IPAddressDeny"] == ["any"]
    networks = [word for word in settings()["IPAddressAllow"][0].split() if "/" in word]
    assert networks
    assert all(ip_network(network).is_private for network in networks)


def test_each_setting_is_a_variable_of_the_server() -> None:
    known = {*variables_of(command_of("serve")), HOME, API_KEY}
    named = re.findall(r"^#?([A-Z_]+)=", SETTINGS.read_text("utf-8"), re.MULTILINE)
    assert named
    assert sorted(set(named) - known) == []


def test_settings_are_taken_when_they_are_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in re.findall(r"^#([A-Z_]+)=(.+)$", SETTINGS.read_text("utf-8"), re.MULTILINE):
        monkeypatch.setenv(name, value)
    options = given("serve", [], ServerOptions)
    assert (options["host"], options["allowed_hosts"]) == ("0.0.0.0", ("raspberrypi.local",))
