"""Running a bundle's graphs in tests: logits of whole sequences, cut in chosen ways."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.manifest import Manifest, Phase
from edgegen.graph.kernel_operators import SummingOrder
from edgegen.model.cache import Cache
from edgegen.model.interfaces import Runner, make_runner
from edgegen.model.loading import open_runner
from edgegen.model.ort_session import Binding, OneSession, RunSwitch
from edgegen.options.engine import EngineOptions
from edgegen_export import kept_adapter, pipeline
from edgegen_export.calibration import text as calibration_text
from edgegen_export.calibration.text import OF_SMALL
from edgegen_export.files.progress import ExportProgress, Silent
from edgegen_export.manifest_builder import PARITY, PARITY_REFERENCE
from edgegen_export.options import ExportOptions
from edgegen_export.output.bundle_writer import BundleWriter
from edgegen_export.parity import extent
from edgegen_export.parity.extent import LARGE, Extent
from edgegen_export.pipeline import export
from edgegen_export.quantize.recipe import Scheme
from edgegen_export.source.model_source import ModelSource

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]


class TwoSessions:
    """A variant's two graphs, each in a session of its own, so that the decode graph runs too."""

    def __init__(self, prefill: Path, decode: Path, threads: int) -> None:
        self._graphs: dict[Phase, OneSession] = {
            "prefill": OneSession(prefill, threads, keep_spinning=False),
            "decode": OneSession(decode, threads, keep_spinning=False),
        }
        self.switch = RunSwitch()
        orders = {graph.order for graph in self._graphs.values()}
        self.attends_batches = False
        self.pending: dict[str, tuple[int, int]] = {}
        self.order: SummingOrder = "batch" if "batch" in orders else "rows" if "rows" in orders else "fixed"

    def binding(self, phase: Phase) -> Binding:
        return self._graphs[phase].binding(phase)


def export_to(checkpoint: Path, target: Path, scheme: Scheme = "fp32") -> Bundle:
    bundle, _ = export(str(checkpoint), target, ExportOptions(scheme=scheme))
    return bundle


WHOLE = extent.OF_SMALL
LITTLE = Extent(windows=1, length=64, prompts=2, tokens=4, rounds=1, states=16)
"""For tests that look at no figure of parity."""
DIVERGENCE = replace(LITTLE, windows=WHOLE.windows, length=WHOLE.length)
"""For tests that look at the divergence alone."""

_compare = pipeline.compare_with_checkpoint


class _NotCompared:
    """In place of the report of an export that was not compared."""

    def __getattr__(self, name: str) -> Any:
        fixtures = "little_parity, divergence and whole_parity"
        raise AssertionError(f"{name}: this export was not compared; {fixtures} are the fixtures")


def _compare_for_listeners(
    writer: BundleWriter,
    manifest: Manifest,
    model: ModelSource,
    states: Mapping[str, bytes],
    ids: Ids,
    text: str,
    progress: ExportProgress,
    base: Bundle | None = None,
) -> Any:
    """Compare large bundles, and those whose export someone listens to, who would hear warnings."""
    if type(progress) is not Silent or model.facts.model.parameters >= LARGE:
        return _compare(writer, manifest, model, states, ids, text, progress, base)
    return not_compared(writer)


def not_compared(writer: BundleWriter, *_: object) -> Any:
    """In place of the comparison of a bundle with its checkpoint: empty reports, which a bundle has to have."""
    for name in (PARITY, PARITY_REFERENCE):
        writer.add(name, b"{}")
    return _NotCompared()


@contextmanager
def compared_on(text: Extent | None) -> Generator[None]:
    """Small bundles that are exported meanwhile are compared with their checkpoints on ``text``; where it is None, on
    little, and not at all where nobody listens: it takes two thirds of a small export."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extent, "OF_SMALL", text or LITTLE)
        for module in (pipeline, kept_adapter):
            patch.setattr(module, "compare_with_checkpoint", _compare if text else _compare_for_listeners)
        yield


@contextmanager
def little_calibration() -> Generator[None]:
    """Exports to int4 meanwhile are calibrated on an eighth of their text, for tests of what comes after that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration_text, "OF_SMALL", replace(OF_SMALL, tokens=OF_SMALL.few))
        yield


def runner_of(
    bundle: Bundle, sessions: Literal["one", "two"] = "one", kv: KVDtype | None = None, threads: int = 1
) -> Runner[Any]:
    """Of the prefill graph in ``one`` session, as edgegen runs it, or of both graphs, each in its own."""
    if sessions == "one":
        return open_runner(bundle, EngineOptions(threads=threads, kv=kv))
    variant, model = bundle.variant_with(kv), bundle.manifest.model
    graphs = TwoSessions(bundle.file(variant.prefill), bundle.file(variant.decode), threads)
    return make_runner(graphs, variant, model.vocab_size, model.max_context)


def decoded(runner: Runner[Any], cache: Cache, ids: Sequence[int]) -> Logits:
    """Logits [t, vocab] of ids decoded together after what slot 0 holds; a copy."""
    return runner.decode(cache, np.array(ids, np.int64)[None])[0].copy()


def prefilled(runner: Runner[Any], cache: Cache, ids: Sequence[int], chunk: int, slot: int = 0) -> Logits:
    """Logits [chunks, vocab] after each chunk of ids prefilled into a slot; a copy."""
    starts = range(0, len(ids), chunk)
    return np.array([runner.prefill(cache, slot, ids[at : at + chunk]).copy() for at in starts])


def random_ids(bundle: Bundle, count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, bundle.manifest.model.vocab_size, count).tolist()


class Listener(Silent):
    """Keeps the warnings of an export."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)
