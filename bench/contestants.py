"""Who runs: the adapters as processes in the Python that has their packages."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.protocol import MISSING

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Contestant:
    """One line of the table: an adapter and what it is asked to make of the checkpoint."""

    name: str
    module: str
    label: str
    install: str
    """The command that makes it run in an environment of its own."""
    variant: str = ""
    weight_bytes: int = 1
    """Bytes per matrix weight, scales not counted."""


CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant("edgegen", "bench.peers.edgegen", "edgegen int8", "pip install edgegen"),
        Contestant(
            "edgegen-int8-kv",
            "bench.peers.edgegen",
            "edgegen int8, int8 keys and values",
            "pip install edgegen",
            "int8-kv",
        ),
        Contestant(
            "edgegen-fp32",
            "bench.peers.edgegen",
            "edgegen fp32",
            "pip install edgegen",
            "fp32",
            weight_bytes=4,
        ),
        Contestant(
            "llama.cpp",
            "bench.peers.llama_cpp",
            "llama.cpp Q8_0",
            "pip install llama-cpp-python gguf safetensors",
        ),
        Contestant(
            "llama.cpp-plain",
            "bench.peers.llama_cpp",
            "llama.cpp Q8_0, no flash attention",
            "pip install llama-cpp-python gguf safetensors",
            "plain",
        ),
        Contestant(
            "optimum",
            "bench.peers.optimum",
            "optimum-onnx int8",
            "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
            ' && pip install "optimum-onnx[onnxruntime]==0.1.0"',
        ),
    )
}


class PeerError(Exception):
    """An adapter's process failed; the message is the last line of its standard error."""


class NotInstalledError(Exception):
    """The adapter's packages are missing in the Python it was given."""


@dataclass(frozen=True)
class Process:
    """A contestant together with the Python that runs it."""

    contestant: Contestant
    python: Path

    def check(self) -> dict[str, str]:
        """Versions of the packages it uses; `NotInstalledError` names the missing ones."""
        done = self._run(["check"], ok=(0, MISSING))
        answer = json.loads(done.stdout)
        if done.returncode == MISSING:
            raise NotInstalledError(", ".join(answer["missing"]))
        return answer["versions"]

    def prepare(self, checkpoint: Path, folder: Path) -> None:
        self._run(["prepare", *self._variant, str(checkpoint), str(folder)])

    def logits(self, folder: Path, threads: int, context: int, prompts: Path, npz: Path) -> None:
        loading = ["--threads", str(threads), "--context", str(context)]
        self._run(["logits", *self._variant, str(folder), *loading, str(prompts), str(npz)])

    def measure(self, folder: Path, protocol: Sequence[str]) -> dict[str, Any]:
        """The values by metric; `metric/all` where an adapter gives the single ones too."""
        done = self._run(["measure", *self._variant, str(folder), *protocol])
        values: dict[str, Any] = {}
        for text in done.stdout.splitlines():
            line = json.loads(text)
            values[line["metric"]] = line["value"]
            if "all" in line:
                values[f"{line['metric']}/all"] = line["all"]
        return values

    @property
    def _variant(self) -> list[str]:
        return ["--variant", self.contestant.variant]

    def _run(self, arguments: Sequence[str], ok: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
        paths = [str(ROOT), str(ROOT / "export"), os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1"}
        command = [str(self.python), "-m", self.contestant.module, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        if done.returncode not in ok:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise PeerError(f"{arguments[0]}: {said[-1]}")
        return done


def processes(names: Sequence[str], pythons: dict[str, Path]) -> list[Process]:
    unknown = sorted({*names, *pythons} - CONTESTANTS.keys())
    if unknown:
        raise SystemExit(f"no such peer: {', '.join(unknown)} (there are {', '.join(CONTESTANTS)})")
    # The Python given for one contestant serves the others of the same adapter.
    by_module = {CONTESTANTS[name].module: python for name, python in pythons.items()}
    return [Process(c, by_module.get(c.module, Path(sys.executable))) for c in (CONTESTANTS[name] for name in names)]
