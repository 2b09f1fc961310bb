"""Where the server listens beside addresses: UNIX sockets, sockets that systemd hands over, and what it is told."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from edgegen.errors import UsageError
from edgegen.server.http.listening import ListenError, listening
from edgegen.server.http.options import ServerOptions
from edgegen.system.systemd import handed_over, notify
from tests.systems import needs_posix
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow, needs_posix("UNIX sockets and no systemd")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: one of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="eg") as name:
        yield Path(name)


@pytest.mark.parametrize("prefix", ["", "unix:"])
def test_a_path_is_a_unix_socket_that_is_removed_at_the_end(folder: Path, prefix: str) -> None:
    path = folder / "e.sock"
    with listening(ServerOptions(host=f"{prefix}{path}")) as found:
        assert found.where == f"unix:{path}"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()


def test_the_socket_of_a_server_that_was_killed_is_replaced(folder: Path) -> None:
    path = folder / "e.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with listening(ServerOptions(host=str(path))):
        pass


def test_a_socket_that_is_listened_on_and_another_file_are_left_alone(folder: Path) -> None:
    path = folder / "e.sock"
    with (
        listening(ServerOptions(host=str(path))),
        pytest.raises(ListenError, match="another server listens there"),
        listening(ServerOptions(host=str(path))),
    ):
        pass
    path.write_text("notes")
    with (
        pytest.raises(ListenError, match="a file is there that is not a socket"),
        listening(ServerOptions(host=str(path))),
    ):
        pass
    assert path.read_text() == "notes"


@pytest.mark.parametrize("name", ["no/folder/e.sock", f"{'e' * 120}.sock"])
def test_a_path_that_cannot_be_one_is_told(folder: Path, name: str) -> None:
    with pytest.raises(ListenError, match="give another --host"), listening(ServerOptions(host=str(folder / name))):
        pass


def test_a_process_serves_at_a_unix_socket_under_any_name(folder: Path) -> None:
    path = folder / "e.sock"
    command = [sys.executable, "-m", "edgegen", "serve", "--host", str(path), "--log-level", "warning"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            assert f" at unix:{path} " in process.stderr.readline()
            with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path)), timeout=PATIENCE_S) as client:
                assert client.get("http://any.name/health").json() == {"status": "ok"}
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not path.exists()


def given(one: socket.socket) -> list[socket.socket]:
    """Return the sockets that systemd hands over in ``one``'s place."""
    copy = os.dup(one.fileno())
    environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
    return handed_over(environment, first=copy)


def test_a_socket_that_is_handed_over_is_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        (found,) = given(one)
        with found:
            assert found.getsockname() == one.getsockname()
            assert not found.get_inheritable()


@pytest.mark.parametrize("environment", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_FDS": "1"}])
def test_sockets_of_another_process_are_not_taken(environment: dict[str, str]) -> None:
    assert handed_over(environment) == []
    assert environment == {}


ACTIVATED = """
import os, socket, sys
one = socket.create_server((sys.argv[1], 0))
os.dup2(one.fileno(), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, "-m", "edgegen", "serve", "--log-level", "warning"])
"""


def test_a_service_says_when_it_serves_and_when_it_stops(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(folder / "notify"))
        systemd.settimeout(PATIENCE_S)
        environment = os.environ | {"NOTIFY_SOCKET": str(folder / "notify")}
        command = [sys.executable, "-c", ACTIVATED, "127.0.0.1"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stderr
            address = process.stderr.readline().partition(" at ")[2].split()[0]
            assert systemd.recv(100) == b"READY=1"
            assert httpx2.get(f"{address}/health").status_code == 200
            process.send_signal(signal.SIGTERM)
            assert systemd.recv(100) == b"STOPPING=1"
            assert process.wait(PATIENCE_S) == 0


def test_a_socket_for_other_machines_needs_a_key() -> None:
    done = subprocess.run([sys.executable, "-c", ACTIVATED, "0.0.0.0"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "0.0.0.0 can be reached from other machines: set EDGEGEN_API_KEY" in done.stderr


def test_nobody_is_told_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    notify("READY=1")


def test_a_unix_socket_needs_no_key() -> None:
    assert ServerOptions(host="/run/edgegen.sock").keys == ()
    with pytest.raises(UsageError, match="can be reached"):
        ServerOptions(host="edgegen.socket")
