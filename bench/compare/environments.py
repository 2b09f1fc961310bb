"""Virtual environments of the compared runtimes, one each, since their pinned versions conflict."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class InstallError(Exception):
    """An environment could not be made; the message is the last line of what failed."""


@dataclass(frozen=True)
class Environment:
    """The requirements of an adapter, those of conversion included."""

    name: str
    requirements: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that a person would type."""
        return f"pip install {' '.join(self.requirements)}"

    def python(self, folder: Path) -> Path:
        """The interpreter path of the environment in `folder`, which may not exist yet."""
        return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def installed(self, folder: Path) -> bool:
        """Whether `folder` has the complete environment with these requirements."""
        record = self._record(folder)
        return record.exists() and json.loads(record.read_text(encoding="utf-8")) == [*self.requirements]

    def install(self, folder: Path) -> None:
        """Create it in `folder`; `InstallError` when that fails."""
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(self.python(folder)), "-m", "pip", "install", "--quiet", *self.requirements])
        self._record(folder).write_text(json.dumps([*self.requirements]), encoding="utf-8")

    def _record(self, folder: Path) -> Path:
        """Written last, so an incomplete install has none."""
        return folder / "requirements.json"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise InstallError(said[-1].strip())


TORCH = "torch==2.13.0"

EDGEGEN = Environment("edgegen", (".",))
LLAMA_CPP = Environment("llama.cpp", ("llama-cpp-python==0.3.36", "gguf==0.19.0", "safetensors==0.8.0"))
CTRANSLATE2 = Environment("ctranslate2", (TORCH, "ctranslate2==4.8.5", "transformers==4.57.6"))
OPENVINO = Environment(
    "openvino",
    (
        TORCH,
        "openvino==2026.4.0",  # the newest conflicts with the two below
        "openvino-genai==2026.4.0.0",
        "openvino-tokenizers==2026.4.0.0",
        "optimum-intel==2.0.0",  # later ones bring a torchvision that may need another torch
        "nncf==3.4.0",
    ),
)
GENAI = Environment(
    "genai",
    (
        TORCH,
        "onnxruntime-genai==0.18.0",
        "onnxruntime==1.31.1",
        "onnx==1.23.2",
        "onnx-ir==1.1.0",
        "transformers==5.23.0",
    ),
)
OPTIMUM = Environment("optimum", (TORCH, "optimum-onnx==0.1.0", "onnxruntime==1.31.1", "transformers==4.57.6"))
TRANSFORMERS = Environment("transformers", (TORCH, "transformers==4.57.6"))
