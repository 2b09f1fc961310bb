"""Processes that run edgegen too: the environment that they get, and how they are ended."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess  # takes as long to import as all else of this wing

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"

_FOLDERS = (
    *("EDGEGEN_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_XET_CACHE", "HF_TOKEN_PATH"),
    *("XDG_CACHE_HOME", "XDG_DATA_HOME"),
)
"""Variables that may be paths from the folder of this process."""

_set_here = set[str]()
"""Variables that this process has set for itself."""


def use_one_blas_thread() -> None:
    """Have NumPy, which is not imported yet, start no threads, unless the user says otherwise: they would cost time."""
    if _BLAS_THREADS not in os.environ:
        os.environ[_BLAS_THREADS] = "1"
        _set_here.add(_BLAS_THREADS)


def child_environment(*, exports: bool = False) -> dict[str, str]:
    """The environment of a process that runs this edgegen, wherever it was found, in any folder.

    ``exports``: whether it multiplies matrices with NumPy, whatever this one does.
    """
    environment = {name: text for name, text in os.environ.items() if not (exports and name in _set_here)}
    for name in _FOLDERS:
        if (text := environment.get(name)) and not text.startswith("~"):
            environment[name] = str(Path(text).absolute())
    source = str(Path(__file__).absolute().parents[2])
    known = [str(Path(path).absolute()) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    return environment | {"PYTHONPATH": os.pathsep.join([source, *known])}


def interrupt(process: "subprocess.Popen[str]") -> None:
    """Have a process end soon, which need not be running any more.

    It cleans up as at Ctrl-C; on Windows, where no process can send another a Ctrl-C alone, it is ended at once.
    """
    if sys.platform == "win32":
        process.terminate()
    else:
        process.send_signal(signal.SIGINT)
