"""The contestants of the comparison: an adapter per runtime, run as a process in its own environment."""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.compare.environments import (
    CTRANSLATE2,
    EDGEGEN,
    GENAI,
    LLAMA_CPP,
    OPENVINO,
    OPTIMUM,
    ROOT,
    TRANSFORMERS,
    Environment,
)
from bench.compare.peers.protocol import MISSING

LONGEST = 1800
"""Time limit of a process in seconds; one that hangs is a failure, and the run continues."""


@dataclass(frozen=True)
class Contestant:
    """One row of the table: an adapter with a variant, such as a quantization."""

    name: str
    adapter: str
    label: str
    environment: Environment
    variant: str = ""
    bits: Literal[4, 8, 32] = 8
    """Bits per weight of most matrices, scales not counted."""
    converted_as: str = ""
    """The contestant whose conversion it uses; its own by default."""

    @property
    def module(self) -> str:
        return f"bench.compare.peers.{self.adapter}"

    @property
    def install(self) -> str:
        """The command that installs its requirements."""
        return self.environment.command

    @property
    def is_peer(self) -> bool:
        """Whether edgegen is compared with it."""
        return self.adapter != "edgegen"


def _edgegen(variant: str, label: str, *, bits: Literal[4, 8] = 8, converted_as: str = "edgegen") -> Contestant:
    """Another way to run a bundle of edgegen's."""
    name = f"edgegen-{variant}"
    return Contestant(name, "edgegen", f"edgegen {label}", EDGEGEN, variant, bits, converted_as)


CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant("edgegen", "edgegen", "edgegen int8", EDGEGEN),
        _edgegen("float32-kv", "int8, float32 KV cache"),
        _edgegen("int4-kv", "int8, int4 KV cache"),
        _edgegen("stock", "int8, stock operators"),
        Contestant("edgegen-int4", "edgegen", "edgegen int4", EDGEGEN, "int4", bits=4),
        _edgegen("int4-float32-kv", "int4, float32 KV cache", bits=4, converted_as="edgegen-int4"),
        _edgegen("int4-stock", "int4, stock operators", bits=4, converted_as="edgegen-int4"),
        Contestant("edgegen-fp32", "edgegen", "edgegen fp32", EDGEGEN, "fp32", bits=32),
        Contestant("llama.cpp", "llama_cpp", "llama.cpp Q8_0", LLAMA_CPP),
        Contestant(
            "llama.cpp-plain",
            "llama_cpp",
            "llama.cpp Q8_0, no flash attention",
            LLAMA_CPP,
            "plain",
            converted_as="llama.cpp",
        ),
        Contestant(
            "llama.cpp-q8-kv",
            "llama_cpp",
            "llama.cpp Q8_0, q8_0 KV cache",
            LLAMA_CPP,
            "q8-kv",
            converted_as="llama.cpp",
        ),
        Contestant(
            "llama.cpp-q4-kv",
            "llama_cpp",
            "llama.cpp Q8_0, q4_0 KV cache",
            LLAMA_CPP,
            "q4-kv",
            converted_as="llama.cpp",
        ),
        Contestant("llama.cpp-q4", "llama_cpp", "llama.cpp Q4_0", LLAMA_CPP, "q4", bits=4),
        Contestant("openvino", "openvino_genai", "OpenVINO GenAI int8", OPENVINO),
        Contestant("ctranslate2", "ctranslate2", "CTranslate2 int8", CTRANSLATE2),
        Contestant("genai-int8", "onnxruntime_genai", "onnxruntime-genai int8", GENAI, "int8"),
        Contestant("genai-int4", "onnxruntime_genai", "onnxruntime-genai int4", GENAI, "int4", bits=4),
        Contestant("optimum", "optimum", "optimum-onnx int8", OPTIMUM),
        Contestant("transformers", "transformers", "transformers fp32", TRANSFORMERS, bits=32),
    )
}

ASKED_FOR = ("edgegen-fp32", "edgegen-int4-kv", "llama.cpp-plain", "llama.cpp-q8-kv", "llama.cpp-q4-kv")
"""Contestants that are compared where `--peers` or `--long` says so."""
DEFAULT = [name for name in CONTESTANTS if name not in ASKED_FOR]
LONG = ["edgegen", "edgegen-float32-kv", "edgegen-int4-kv", "llama.cpp", "llama.cpp-q8-kv", "llama.cpp-q4-kv"]
"""Contestants of `--long`, by default: the KV caches of edgegen and of llama.cpp."""


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

    def footprint(self) -> int | None:
        """Bytes of the installed packages that running a model needs; None where that is not known."""
        return json.loads(self._run(["footprint"]).stdout)["bytes"]

    def prepare(self, checkpoint: Path, folder: Path) -> None:
        self._run(["prepare", *self._variant, str(checkpoint), str(folder)])

    def logits(self, folder: Path, threads: int, context: int, prompts: Path, npz: Path) -> None:
        """Logits after each prompt, and as `NAME-next` the greedy next id."""
        loading = ["--threads", str(threads), "--context", str(context)]
        self._run(["logits", *self._variant, str(folder), *loading, str(prompts), str(npz)])

    def measure(self, folder: Path, protocol: Sequence[str]) -> dict[str, Any]:
        """Values by metric, with all measurements as `metric/all` where the adapter gives them."""
        done = self._run(["measure", *self._variant, str(folder), *protocol, "--started", repr(time.time())])
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
        # pip compiled the peers' bytecode; edgegen runs from its folder, so its first process has to write it.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [str(self.python), "-m", self.contestant.module, *arguments]
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{arguments[0]}: no end after {LONGEST} s") from None
        if done.returncode not in ok:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise PeerError(f"{arguments[0]}: {said[-1]}")
        return done


def chosen(names: Sequence[str]) -> list[Contestant]:
    """The contestants of these names; ends the program with a list of those there are when one is unknown."""
    unknown = sorted({*names} - CONTESTANTS.keys())
    if unknown:
        raise SystemExit(f"no such peer: {', '.join(unknown)} (there are {', '.join(CONTESTANTS)})")
    return [CONTESTANTS[name] for name in names]
