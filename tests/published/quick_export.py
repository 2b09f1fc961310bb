"""The command ``edgegen export``, in half the time; what it writes lacks the report of parity only.

``python -m tests.published.quick_export FOLDER CHECKPOINT ...`` is ``edgegen export CHECKPOINT ...``. It compares
nothing with the checkpoint, and compiles the tokenizer of a checkpoint of ``made`` once in a run of the tests, whose
processes share ``FOLDER``.
"""

import fcntl
import pickle
import runpy
import sys
from pathlib import Path

import pytest

from edgegen_export import pipeline
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.files.progress import ExportProgress
from tests.export.bundles import not_compared

_compile = pipeline.compiled_tokenizer


def main() -> None:
    folder, source = Path(sys.argv.pop(1)), Path(sys.argv[1])
    kept = folder / f"{(source if source.is_dir() else source.parent).name}.tokenizer"

    def compiled_tokenizer(checkpoint: Checkpoint, progress: ExportProgress) -> dict[str, bytes]:
        with kept.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if not file.read(1):
                pickle.dump(_compile(checkpoint, progress), file)
                file.flush()
            file.seek(0)
            return pickle.load(file)

    sys.argv.insert(1, "export")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "compare_with_checkpoint", not_compared)
        patch.setattr(pipeline, "compiled_tokenizer", compiled_tokenizer)
        runpy.run_module("edgegen", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
