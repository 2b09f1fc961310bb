"""The servers of a measurement as processes: `edgegen serve`, llama-server, and llama-cpp-python's server."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from bench.compare.environments import ROOT, Environment

LLAMA_CPP_SERVER = Environment(
    "llama.cpp-server", ("llama-cpp-python[server]==0.3.36", "gguf==0.19.0", "safetensors==0.8.0")
)

READY_SECONDS = 120.0


class ServerError(Exception):
    """A server did not start; the message is the last line it said."""


@dataclass(frozen=True)
class Machine:
    """Resources that every server may use.

    Attributes:
        context: tokens of a sequence.
        sequences: that run together.
    """

    threads: int
    context: int
    sequences: int


@dataclass(frozen=True)
class Server:
    """
    Attributes:
        command: how it is started; its address is added.
        extra: parameters of every request besides OpenAI's, so that an answer does not end early.
        batches: whether it runs several requests at once.
    """

    label: str
    command: tuple[str, ...]
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    batches: bool = True

    @contextmanager
    def running(self, log: Path) -> Generator[str]:
        """Its address, once it answers; what it says goes to ``log``.

        Raises:
            ServerError: it ended, or did not answer in time.
        """
        port = free_port()
        command = [*self.command, "--host", "127.0.0.1", "--port", str(port)]
        paths = [str(ROOT), str(ROOT / "export"), os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1"}
        env.pop("EDGEGEN_API_KEY", None)
        with log.open("w") as file:
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        try:
            yield _when_ready(process, f"http://127.0.0.1:{port}", log)
        finally:
            process.kill()
            process.wait()


def edgegen(
    bundle: Path,
    machine: Machine,
    python: Path = Path(sys.executable),
    *,
    kv: str = "float32",
    max_pause: int | None = None,
) -> Server:
    """``max_pause``: in milliseconds, 0 for chunks of prompts that are never shortened; None: the default."""
    pause = () if max_pause is None else ("--max-pause", str(max_pause))
    command = (
        *(str(python), "-m", "edgegen", "serve", "-m", str(bundle), "--kv", kv),
        *("--threads", str(machine.threads), "--max-batch-size", str(machine.sequences), *pause),
    )
    return Server(
        ", ".join([f"edgegen int8, {kv} KV cache", *[" ".join(pause)] * bool(pause)]), command, {"eos_token_id": []}
    )


def llama_server(program: Path, gguf: Path, machine: Machine) -> Server:
    """llama.cpp's own server, with a slot for each client; its context is the sum over all slots."""
    threads = str(machine.threads)
    command = (
        *(str(program), "-m", str(gguf), "-t", threads, "-tb", threads, "-fa", "on"),
        *("-np", str(machine.sequences), "-c", str(machine.sequences * machine.context)),
    )
    return Server("llama-server Q8_0", command, {"ignore_eos": True})


def llama_cpp_python(python: Path, gguf: Path, machine: Machine, eos: int) -> Server:
    """llama-cpp-python's server, which runs one request at a time."""
    threads = str(machine.threads)
    command = (
        *(str(python), "-m", "llama_cpp.server", "--model", str(gguf), "--n_ctx", str(machine.context)),
        *("--n_threads", threads, "--n_threads_batch", threads, "--flash_attn", "true"),
        *("--interrupt_requests", "false", "--verbose", "false"),
    )
    return Server("llama-cpp-python Q8_0", command, {"logit_bias": {str(eos): -100}}, batches=False)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _when_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> str:
    end = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            if httpx2.get(f"{url}/v1/models", trust_env=False).status_code == 200:
                return url
        except httpx2.TransportError:
            pass
        time.sleep(0.1)
    said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    raise ServerError(said[-1] if said else f"no answer after {READY_SECONDS:g} s")
