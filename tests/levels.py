"""The levels of the test pyramid: which one each test is on, decided by where it lies and what it uses.

A ``pytest.mark`` of the test or of its file comes first, then the material it uses, and its folder: the longest path
that is listed.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath

LEVELS = {
    "unit": "logic by itself, over fakes; no graph is built",
    "graph": "graphs are built from small random checkpoints, load and run",
    "parity": "what random or small models compute is what the oracles compute (transformers, torch, peft, optimum)",
    "golden": "recorded ids and values of real checkpoints, tokenizers and suites are met",
    "published": "models as people publish them, from the checkpoint to the answer",
    "e2e": "the command line, the documentation and whole journeys, in processes of their own",
}

MATERIAL = {"test_data": "golden", "checkpoint": "graph", "int8_bundle": "graph", "fp32_bundle": "graph"}
"""Fixtures of tests/conftest.py that decide the level; the first that a test uses does."""

FOLDERS = {
    "bench": "unit",
    "cli": "e2e",
    "clients": "e2e",
    "docs": "unit",
    "e2e": "e2e",
    "export/architecture": "unit",
    "export/calibration": "graph",
    "export/checkpoint": "unit",
    "export/graph": "graph",
    "export/optimum": "graph",
    "export/output": "graph",
    "export/parity": "graph",
    "export/quantize": "unit",
    "export/tensors": "unit",
    "export/tokenizer": "unit",
    "families": "graph",
    "kernels": "graph",
    "models": "unit",
    "packaging": "unit",
    "published": "published",
    "runtime": "unit",
}


def level_of(path: PurePosixPath, marks: Sequence[str], fixtures: Sequence[str]) -> str | None:
    """The level of a test in the file ``path`` below tests/; None where nothing says it."""
    own = [mark for mark in marks if mark in LEVELS]
    if own:
        return own[0]
    material = (level for fixture, level in MATERIAL.items() if fixture in fixtures)
    folders = (FOLDERS[str(folder)] for folder in path.parents if str(folder) in FOLDERS)
    folder = next(folders, None)
    return folder if folder == "e2e" else next(material, folder)
