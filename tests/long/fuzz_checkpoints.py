"""Mutated checkpoints: refused in a sentence, or exported, in limited memory and time, without a crash.

    python -m tests.long.fuzz_checkpoints [--count 100000] [--first 0] [--seed 0]

Files of tiny checkpoints are changed: ``config.json``, ``tokenizer.json`` and the header of safetensors value by value
and byte by byte, the files of a LoRA adapter, GGUF files byte by byte. What such an export does whatever the checkpoint
says is left out: the speed of the machine is not measured, and one in ten of the bundles written is compared with its
checkpoint. A signal, an error that is not edgegen's, more than the time, and more than twice the memory are failures.
"""

import random
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from edgegen_export import pipeline
from edgegen_export.files.progress import Silent
from edgegen_export.options import ExportOptions
from edgegen_export.preflight.preflight import Preflight
from tests.export.checkpoint.hostile import change, export_arguments, write_sources
from tests.long.mutants import Try, main

COMPARED = 0.1
GFLOPS = 100.0


def prepare(root: Path, _bundle: str) -> Try:
    """The checkpoints, whose files are changed in place."""
    warnings.simplefilter("ignore")
    sources = write_sources(root)
    compare = pipeline.compare_with_checkpoint

    def export(folder: Path, *, compared: bool) -> str:
        source, adapter = export_arguments(folder)
        measured = mock.patch.object(pipeline, "Preflight", partial(Preflight, measure=lambda: GFLOPS))
        written = mock.patch.object(pipeline, "compare_with_checkpoint", compare if compared else _not_compared)
        with measured, written, tempfile.TemporaryDirectory(dir=root) as target:
            pipeline.export(
                source, Path(target, "b"), ExportOptions(scheme="int8", fast=True, adapter=adapter), progress=Silent()
            )
        return "exported"

    def attempt(chance: random.Random | None) -> str:
        if chance is None:
            return [export(folder, compared=True) for folder in sources][-1]
        path, content = change(sources, chance)
        whole = path.read_bytes()
        path.write_bytes(content)
        try:
            return export(path.parent, compared=chance.random() < COMPARED)
        finally:
            path.write_bytes(whole)

    return attempt


def _not_compared(*_: Any) -> None:
    """In place of the comparison."""


if __name__ == "__main__":
    main("tests.long.fuzz_checkpoints", "Mutate checkpoints, and export them.", prepare)
