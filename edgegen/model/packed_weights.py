"""Packed weights: ONNX Runtime's prepacked matrices for this processor, kept on disk and memory-mapped at every start.

A session packs the matrices each time it opens, into memory of its own. Saved packed, they are a memory-mapped file:
a start takes a fraction of the memory, and the system may drop pages that it needs elsewhere. The price is
disk, 2.3 times the bundle's weights. What is packed fits one processor and one version of ONNX Runtime only, so these
are part of its name. ONNX Runtime does not notice damaged or unfit weights: before the first use the results
are compared with the bundle's own, bit for bit, and before every later use the files with their hashes.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.external_data import move_to_pages
from edgegen.bundle.manifest import FileEntry, GraphVariant
from edgegen.bundle.verified_files import VerifiedFiles
from edgegen.errors import BundleError
from edgegen.model.interfaces import make_runner
from edgegen.model.ort_session import OneSession, runtime_version, save_packed
from edgegen.system import home_folder, locked, processor_features, trim_memory

_GRAPH, _WEIGHTS, _RECORD = "graph.onnx", "packed.data", "packed.json"
_LAYOUT = 1
"""Counts changes of what is kept, and how."""


def packed_graph(bundle: Bundle, variant: GraphVariant) -> Path:
    """The prefill graph of ``variant`` over packed weights, which are made if there are none, or damaged ones.

    Where they cannot be made (no room, a home that cannot be written, other results), a ``UserWarning`` says so, and
    the graph is the bundle's own.
    """
    folder, own = _folder(bundle, variant), bundle.file(variant.prefill)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_suffix(".lock")) as mine:
            if not _whole(folder):
                if not mine:  # another process makes them just now
                    return own
                _make(bundle, variant, folder)
    except (OSError, ValueError, BundleError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        warnings.warn(f"packed weights cannot be kept in {folder.parent}: {reason}", stacklevel=2)
        return own
    return folder / _GRAPH


def remove_packed(bundle: Bundle) -> None:
    """Delete what is kept for any variant of ``bundle``, on any processor."""
    for variant in bundle.manifest.variants:
        shutil.rmtree(_folder(bundle, variant).parent, ignore_errors=True)


def _folder(bundle: Bundle, variant: GraphVariant) -> Path:
    files = bundle.manifest.files
    content = [files[name].sha256 for name in (variant.prefill, variant.weights)]
    machine = [_LAYOUT, runtime_version(), processor_features()]
    return home_folder() / "packed" / _digest(content) / _digest(machine)


def _digest(what: Sequence[int | str]) -> str:
    return hashlib.sha256(json.dumps([*what]).encode()).hexdigest()[:32]


def _whole(folder: Path) -> bool:
    try:
        record = json.loads((folder / _RECORD).read_text("utf-8"))
        files = {name: FileEntry(record[name]["size"], record[name]["sha256"]) for name in (_GRAPH, _WEIGHTS)}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return not VerifiedFiles(folder, folder, files).problems_once()


def _make(bundle: Bundle, variant: GraphVariant, folder: Path) -> None:
    """Into ``folder``, by one rename; what is there for other processors or versions goes first, to make room.

    Raises:
        OSError: it cannot be written.
        ValueError: ONNX Runtime has written what is not understood.
        BundleError: ONNX Runtime cannot load the graph or save it, or what it saved gives other results.
    """
    for other in folder.parent.iterdir():
        if other.is_dir():
            shutil.rmtree(other, ignore_errors=True)
    partial = folder.with_name(f".partial-{os.getpid()}")
    partial.mkdir()
    try:
        saved, saved_weights = partial / "saved.onnx", partial / "saved.data"
        save_packed(bundle.file(variant.prefill), saved, saved_weights.name)
        with saved_weights.open("rb") as source, (partial / _WEIGHTS).open("wb") as target:
            graph = move_to_pages(saved.read_bytes(), source, target, _WEIGHTS)
        (partial / _GRAPH).write_bytes(graph)
        saved.unlink()
        saved_weights.unlink()
        trim_memory()
        if not _same_results(bundle, variant, partial / _GRAPH):
            raise BundleError(f"ONNX Runtime {runtime_version()} computes something else with them.")
        record = {name: _entry(partial / name) for name in (_GRAPH, _WEIGHTS)}
        (partial / _RECORD).write_text(json.dumps(record), "utf-8")
        partial.rename(folder)
    finally:
        with suppress(OSError):
            shutil.rmtree(partial)


def _entry(path: Path) -> dict[str, int | str]:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _same_results(bundle: Bundle, variant: GraphVariant, packed: Path) -> bool:
    first, second = (_logits(bundle, variant, graph) for graph in (bundle.file(variant.prefill), packed))
    trim_memory()
    return np.array_equal(first, second)


def _logits(bundle: Bundle, variant: GraphVariant, graph: Path) -> NDArray[np.float32]:
    """Those behind a few tokens at once, and one more."""
    model = bundle.manifest.model
    runner = make_runner(OneSession(graph), variant, model.vocab_size, model.max_context)
    ids = np.arange(1, min(20, model.max_context)) * 7919 % model.vocab_size
    cache = runner.new_cache()
    return np.stack([runner.prefill(cache, 0, ids.tolist()).copy(), runner.decode(cache, ids[None, :1])[0, 0]])
