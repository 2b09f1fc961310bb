"""Manifests in which a value was replaced by a hostile one: loaded and run, or refused with one of edgegen's errors."""

import copy
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest

from edgegen import LLM, EdgegenError, ManifestError
from edgegen.bundle.store import DEFAULT_MODEL, BundleStore
from tests.runtime.models import raw_manifest

HOSTILE: tuple[Any, ...] = (
    *(-1, 0, 1, 2**31, 2**63, 2**70, 1e308, True, None),
    *("", "../x", "\0", "é" * 300, "decode.onnx", [], [1], {}, {"a": 1}),
)
EACH = 4
"""One of every ``EACH`` values is tried in a place, others in the next one."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(BundleStore().resolve(DEFAULT_MODEL), tmp_path / "stories")


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every value, of lists those of the first two."""
    if isinstance(value, dict):
        for key, inner in cast(dict[str, object], value).items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for n, inner in enumerate(cast(list[object], value)[:2]):
            yield from places(inner, (*path, n))
    if path:
        yield path


def replaced(manifest: Any, path: tuple[str | int, ...], value: object) -> Any:
    changed = copy.deepcopy(manifest)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.slow
def test_any_value_is_borne_or_refused(folder: Path) -> None:
    manifest = raw_manifest(folder)
    tried = 0
    for n, path in enumerate(places(manifest)):
        for value in islice(HOSTILE, n % EACH, None, EACH):
            (folder / "edgegen.json").write_text(json.dumps(replaced(manifest, path, value)))
            with suppress(EdgegenError), LLM.load(folder) as llm:
                llm.generate("a", max_new_tokens=1)
            tried += 1
    assert tried > 500


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("model", "vocab_size"), 2047, "its output 'logits' is .*, and the manifest says .…, …, 2047"),
        (("model", "max_context"), 0, "model.max_context: from 1 to .* expected, found 0"),
        (("variants", 0, "kv", "layers", 1, "kv_heads"), 3, "its input 'past_key_values.1.key' is .*.…, 3, …, 64"),
        (("variants", 0, "kv", "layers", 1, "head_dim"), -1, r"layers\[1\]\.head_dim: from 1 to .* expected, found -1"),
        (("variants", 0, "contract", "logits"), "x", "prefill.kv-int8.onnx: it has no output 'x'"),
        (("variants", 0, "kv", "classes", "full", "total"), "x", "it has no input 'x'"),
        (("variants", 0, "kv", "classes", "full", "window"), 0, r"classes\.full\.window: from 1 to"),
        (("variants", 0, "prefill"), "prefill.onnx", r"is a tensor\(float\), and the manifest says tensor\(int8\)"),
    ],
)
def test_what_is_not_so_is_named(folder: Path, path: tuple[str | int, ...], value: object, said: str) -> None:
    manifest = raw_manifest(folder)
    (folder / "edgegen.json").write_text(json.dumps(replaced(manifest, path, value)))
    with pytest.raises(ManifestError, match=said):
        LLM.load(folder)
