"""The command ``edgegen`` in processes that are forked of one that has imported it: importing takes 0.3 s each time.

``python -m tests.forked_command SOCKET [MODULE ...]`` is that one; it forks for each order that comes through the
socket, and the
fork becomes ``python -m edgegen``, or another module.
"""

import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from tests.root import ROOT

IMPORTED = ("edgegen.cli", "edgegen.cli.generate", "edgegen.llm", "edgegen.tokenizer", "onnxruntime")

EXPORTER = ("edgegen.cli.export", "edgegen_export.pipeline", "numpy.ma", "numpy.random", "tests.warm_exports")
"""Modules that exports need beside that, which take 0.3 s."""

SEARCH = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "export")])}
"""Where the commands find edgegen and its exporter."""

LITTLE = (*EXPORTER, "tests.little_exports")
"""The same for exports that are compared and calibrated on little text."""

_ITS_OWN = ("EDGEGEN_", "HF_", "PYTEST_", "TORCH", "TRANSFORMERS_")
"""Variables that nothing reads while it is imported: huggingface_hub, which would, is not imported before the fork.
torch sets two of its own in a worker that imports it: they are no reason not to fork."""

_MOST = 100_000
"""Bytes of an order."""


@dataclass(frozen=True, slots=True)
class _Order:
    """A command to run: the module, its arguments and where."""

    module: str
    arguments: list[str]
    cwd: str
    environment: dict[str, str]
    cores: list[int]


class Forks:
    """Runs commands in forks of a process with ``environment``, which is started for the first one.

    ``also``: modules that the process imports beside those that generating needs.
    """

    def __init__(self, environment: Mapping[str, str], also: Sequence[str] = ()) -> None:
        self._environment = _imported_with(environment)
        self._also = also

    def run(
        self,
        arguments: Sequence[str | bytes],
        stdin: bytes,
        cwd: Path,
        environment: Mapping[str, str],
        module: str = "edgegen",
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``python -m MODULE ARGUMENTS``, forked unless its imports may read another environment."""
        command = [sys.executable, "-m", module, *arguments]
        if sys.platform == "linux" and _imported_with(environment) == self._environment:
            cores = sorted(os.sched_getaffinity(0))
            order = _Order(module, [os.fsdecode(each) for each in arguments], str(cwd), dict(environment), cores)
            data = json.dumps(asdict(order)).encode()
            if len(data) <= _MOST:
                return subprocess.CompletedProcess(command, *self._fork(data, stdin))
        return subprocess.run(
            command, input=stdin, capture_output=True, check=False, timeout=300, cwd=cwd, env=environment
        )

    @cached_property
    def _socket(self) -> socket.socket:
        """The orders to the process that forks."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(300)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked_command", str(theirs.fileno()), *self._also],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=self._environment,
            )
        return ours

    def _fork(self, order: bytes, stdin: bytes) -> tuple[int, bytes, bytes]:
        """Exit code, standard output and standard error."""
        orders = self._socket
        (read, write), (out, its_out), (err, its_err) = (os.pipe() for _ in range(3))
        socket.send_fds(orders, [order], [read, its_out, its_err])
        for descriptor in (read, its_out, its_err):
            os.close(descriptor)
        with ThreadPoolExecutor(2) as threads:
            said = [threads.submit(_read, descriptor) for descriptor in (out, err)]
            with suppress(BrokenPipeError), os.fdopen(write, "wb") as pipe:
                pipe.write(stdin)
            return int(orders.recv(16)), said[0].result(), said[1].result()

    def close(self) -> None:
        """End the process."""
        if "_socket" in vars(self):
            self._socket.close()
            self._process.wait()


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read()


def _imported_with(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_ITS_OWN)}


def _take_orders(orders: socket.socket) -> _Order | None:
    """The order that this process, a fork, is to follow; None in the first one, at the end."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, _MOST, 3)
        if not data:
            return None
        child = os.fork()
        if child == 0:
            orders.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return _Order(**json.loads(data))
        for descriptor in descriptors:
            os.close(descriptor)
        orders.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _become(order: _Order) -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old: Any = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        new = cast(Any, os.fdopen)(number, old.mode, buffering, old.encoding, old.errors, closefd=False)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.cwd)
    os.sched_setaffinity(0, order.cores)
    sys.argv[1:] = order.arguments
    runpy.run_module(order.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as its_socket:
        for module in (*IMPORTED, *sys.argv[2:]):
            import_module(module)
        assert "huggingface_hub" not in sys.modules
        followed = _take_orders(its_socket)
    if followed:
        _become(followed)
