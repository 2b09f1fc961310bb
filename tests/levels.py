"""The levels of the test pyramid: which one each test is on, decided by where it lies and what it uses.

A test's own ``pytest.mark`` comes first, then its file, the material it uses, and its folder: the longest path that
is listed.
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

FILES = {
    "cli/test_remaining_time.py": "unit",
    "cli/test_systems.py": "unit",
    "docs/test_code_blocks.py": "e2e",
    "export/checkpoint/lora/test_against_peft.py": "parity",
    "export/checkpoint/test_gguf_architectures.py": "parity",
    "export/checkpoint/test_hostile.py": "graph",
    "export/checkpoint/lora/test_kept_adapter.py": "graph",
    "export/checkpoint/lora/test_kept_against_peft.py": "parity",
    "export/checkpoint/lora/test_merge_against_peft.py": "parity",
    "export/graph/test_bundles_against_transformers.py": "parity",
    "export/optimum/test_via_optimum.py": "parity",
    "export/test_few_bits.py": "e2e",
    "export/test_process.py": "e2e",
    "families/test_batches.py": "parity",
    "families/test_bitnet.py": "parity",
    "families/test_cases.py": "parity",
    "families/test_config_classes.py": "parity",
    "families/test_denormal_states.py": "parity",
    "families/test_exactness.py": "parity",
    "families/test_families.py": "parity",
    "families/test_groups.py": "parity",
    "families/test_hidden_states.py": "parity",
    "families/test_real_checkpoints.py": "golden",
    "families/test_vision.py": "parity",
    "families/test_without_attention.py": "parity",
    "families/test_windows.py": "parity",
    "packaging/test_image.py": "e2e",
    "runtime/chat/test_schemas_against_transformers.py": "parity",
    "runtime/evaluation/test_harness_against_lm_eval.py": "parity",
    "runtime/sampling/test_processors_against_transformers.py": "parity",
    "runtime/sampling/test_llamacpp_goldens.py": "golden",
    "runtime/scoring/test_scoring_against_transformers.py": "parity",
    "runtime/server_page/test_browser.py": "e2e",
    "runtime/server_page/test_browser_answers.py": "e2e",
    "runtime/server_page/test_browser_settings.py": "e2e",
    "runtime/server/test_lm_eval.py": "parity",
    "runtime/server/test_messages_client.py": "e2e",
    "runtime/server/test_server_process.py": "e2e",
    "runtime/server/test_responses_client.py": "e2e",
    "runtime/stopping/test_stopping_against_transformers.py": "parity",
    "test_docstrings.py": "unit",
    "test_layout.py": "unit",
    "test_levels.py": "unit",
    "test_reported.py": "unit",
}

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
    if str(path) in FILES:
        return FILES[str(path)]
    material = (level for fixture, level in MATERIAL.items() if fixture in fixtures)
    folders = (FOLDERS[str(folder)] for folder in path.parents if str(folder) in FOLDERS)
    folder = next(folders, None)
    return folder if folder == "e2e" else next(material, folder)
