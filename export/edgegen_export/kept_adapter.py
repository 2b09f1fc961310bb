"""export_adapter(): a LoRA adapter as a bundle of its own, beside its base's, which keeps graphs and weights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import edgegen
from edgegen.bundle.arrays_file import arrays_as_bytes, read_arrays
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import BaseBundle, Manifest
from edgegen.errors import UnsupportedModelError, UsageError, one_or_list
from edgegen.evaluation.parity.report import ParityReport
from edgegen.graph.low_rank import MATRIX, Factors, linear_matrices
from edgegen.system import read_regular, trim_memory
from edgegen_export.architecture.architecture import Architecture
from edgegen_export.calibration.moves import MOVES, Moves
from edgegen_export.checkpoint import Adapter, Checkpoint, merge_adapter
from edgegen_export.families import FAMILIES
from edgegen_export.files.disk import refuse_download
from edgegen_export.files.progress import COMPARING, ExportProgress, Silent
from edgegen_export.graph.fused import parts
from edgegen_export.manifest_builder import GENERATION_CONFIG, PARITY, PARITY_REFERENCE
from edgegen_export.options import ExportOptions
from edgegen_export.output.bundle_writer import BundleWriter, refuse_wrong_target
from edgegen_export.pipeline import (
    compare_with_checkpoint,
    compared_texts,
    compiled_tokenizer,
    generation_settings,
    license_files,
    to_json,
)
from edgegen_export.source.family_source import FamilyLoader, FamilySource
from edgegen_export.tensors.lazy import LazyTensor
from edgegen_export.tensors.low_rank import LowRankUpdate
from edgegen_export.tokenizer.files import TOKENIZER

FACTORS = "adapter.safetensors"

_COMPARED_ROWS = 64
_TOLERANCE = 1e-3
"""By which the change of a matrix may differ from its factors' product, relative to the largest value of that."""

_MERGE = "leave --keep-adapter out, and it is merged into a bundle of its own"


def export_adapter(
    source: str,
    base: Bundle,
    target: Path,
    adapter: str,
    options: ExportOptions | None = None,
    *,
    families: tuple[Architecture, ...] = FAMILIES,
    progress: ExportProgress | None = None,
) -> tuple[Bundle, ParityReport]:
    """Write ``adapter`` (a folder or a hub id), trained on the checkpoint ``source``, as a bundle to ``target`` that
    needs the bundle ``base`` of that checkpoint: its manifest names it by its hash.

    ``options``: which revision and file of the source, what to compare on, and whether to replace what is there.

    Raises:
        UsageError: ``base`` cannot have adapters beside it, or is another model's.
        UnsupportedModelError: the adapter changes what is no matrix of a linear layer.
        CheckpointError: the source or the adapter cannot be read, is not supported, or its tensors do not fit.
        ExportError: the target is taken (see ``force``) or cannot be written.
    """
    progress, options = progress or Silent(), options or ExportOptions()
    refuse_wrong_target(target, force=options.force)
    _check_base(base, target)
    base.verify_once()
    opened_adapter = Adapter.open(adapter, progress=progress.stage, check_download=refuse_download)
    loader = FamilyLoader(families, base.manifest.model.max_context, None, progress)
    progress.stage(f"opening {source}")
    plain = loader.ready(
        Checkpoint.open(
            source,
            revision=options.revision,
            gguf_file=options.gguf_file,
            progress=progress.stage,
            check_config=loader.check,
            check_download=refuse_download,
        )
    )
    architecture, config = loader.check(plain.config)
    merged = merge_adapter(
        plain, opened_adapter, architecture.base_names(config), tied_head=config.tied_head, warn=progress.warn
    )
    updates = _updates(plain, merged, opened_adapter)
    tokenizer = compiled_tokenizer(merged, progress)

    with BundleWriter(target, force=options.force) as writer:
        of_base, of_merged, of_updates = (
            loader.load(replace(plain, tensors=tensors), writer.scratch())
            for tensors in (plain.tensors, merged.tensors, {**plain.tensors, **updates})
        )
        _check_same_model(base, of_base)
        settings = generation_settings(merged, tokenizer, base.manifest.model.max_context, progress)
        for name, data in {**tokenizer, **license_files(merged, progress)}.items():
            writer.add(name, data)
        vocabulary = writer.folder / TOKENIZER if TOKENIZER in tokenizer else None
        _, evaluated, text = compared_texts(vocabulary, of_merged.facts.model, options.eval_text, progress)
        trim_memory()  # of the tokenizer
        progress.stage("writing the adapter")
        changes = _Changes(of_base, of_merged, of_updates, updates, opened_adapter)
        factors = changes.factors(base)
        arrays = {f"{name}.{part}": array for name, pair in factors.items() for part, array in pair._asdict().items()}
        writer.add(FACTORS, arrays_as_bytes(arrays))
        writer.add(GENERATION_CONFIG, to_json(settings))
        manifest = _manifest(target.absolute().name, base, merged, writer)
        progress.stage(COMPARING)
        report = compare_with_checkpoint(writer, manifest, of_merged, {}, evaluated, text, progress, base)
        for folder in writer.commit(manifest):
            progress.warn(f"the version that this one replaces is still in use: its files stay in {folder}")
    return Bundle.open(target), report


@dataclass(frozen=True, slots=True, eq=False)
class _Changes:
    """Changes of a model's matrices by an adapter, by our names: ``changed`` has the low-rank updates in the place of
    the base's own matrices."""

    base: FamilySource
    merged: FamilySource
    changed: FamilySource
    updates: Mapping[str, LowRankUpdate]
    adapter: Adapter

    def factors(self, base: Bundle) -> dict[str, Factors]:
        """The factors by the name of the matrix in the graphs of ``base``.

        Raises:
            UnsupportedModelError: something else is changed than matrices of linear layers.
        """
        config, tensors, moves = self.changed.config, self.changed.tensors, _moves(base)
        touched = {name for name, tensor in tensors.items() if self._updates_of(tensor)}
        found = dict[str, Factors]()
        for name in sorted(linear_matrices(read_regular(base.file(base.variant.prefill)))):
            modules = [f"{module}{MATRIX}" for module in parts(name)]
            if not touched.intersection(modules) or (name == "embed" and config.tied_head):
                continue
            self._check_linear(modules)
            moved = [moves.applied(config, m.removesuffix(MATRIX), self._change_of(m, touched)) for m in modules]
            rank = sum({key: one.rank for m in modules for key, one in self._updates_of(tensors[m]).items()}.values())
            found[name] = _factors(LazyTensor.concat(moved).read(), rank)
            touched.difference_update(modules)
        if touched:
            _refuse(self.adapter, sorted(touched))
        return found

    def _updates_of(self, tensor: LazyTensor) -> dict[str, LowRankUpdate]:
        """The updates that a tensor of ``changed`` is made of."""
        names = set(tensor.names)
        return {key: one for key, one in self.updates.items() if not names.isdisjoint(one.factor_names)}

    def _change_of(self, name: str, touched: set[str]) -> LazyTensor:
        tensor = self.changed.tensors[name]
        return tensor if name in touched else LazyTensor.from_array(np.zeros(tensor.shape, np.float32))

    def _check_linear(self, names: list[str]) -> None:
        """Check that each matrix changes by its update: factors folded into matrices multiply them.

        Raises:
            UnsupportedModelError: it is not.
        """
        for name in names:
            rows = min(_COMPARED_ROWS, self.base.tensors[name].shape[0])
            before, after = (one.tensors[name].rows(0, rows) for one in (self.base, self.merged))
            if not self._updates_of(self.changed.tensors[name]):
                continue
            update = self.changed.tensors[name].rows(0, rows)
            largest = max(np.abs(update).max(), np.abs(after).max() * _TOLERANCE)
            if np.abs(after - before - update).max() > _TOLERANCE * largest:
                _refuse(self.adapter, [name])


def _factors(update: NDArray[np.float32], rank: int) -> Factors:
    """Thin matrices whose product is ``update`` [n, k], which has no larger ``rank``."""
    rows, columns = update.shape
    rank = min(rank, rows, columns)
    drawn = np.random.default_rng(0).standard_normal((columns, rank)).astype(np.float32)
    basis = np.linalg.qr((update @ drawn).astype(np.float64)).Q
    return Factors((update.T @ basis).astype(np.float32), np.ascontiguousarray(basis.T, np.float32))


def _updates(plain: Checkpoint, merged: Checkpoint, adapter: Adapter) -> dict[str, LowRankUpdate]:
    """The low-rank updates of the checkpoint's tensors, by its names.

    Raises:
        UnsupportedModelError: the adapter changes tensors in another way too.
    """
    found, others = dict[str, LowRankUpdate](), list[str]()
    for name, tensor in merged.tensors.items():
        before = plain.tensors.get(name)
        if tensor is before:
            continue
        own = tensor.base if isinstance(tensor, LowRankUpdate) else tensor
        if before is None or (own is not before and not own.equals(before)):
            others.append(name)
        elif isinstance(tensor, LowRankUpdate):
            found[name] = tensor.update
    whole = {"vocab_size": "the size of the vocabulary", "tie_word_embeddings": "the head, which was tied"}
    others += [what for key, what in whole.items() if merged.config.get(key) != plain.config.get(key)]
    if others:
        _refuse(adapter, others)
    return found


def _refuse(adapter: Adapter, others: list[str]) -> None:
    listed = [*others[:12], *([f"and {len(others) - 12} more"] if len(others) > 12 else [])]
    raise UnsupportedModelError(
        f"the adapter {adapter.source.id} changes more than matrices of linear layers, which cannot be kept beside its "
        f"base: {one_or_list(listed)}\n{_MERGE[0].upper()}{_MERGE[1:]}."
    )


def _moves(base: Bundle) -> Moves:
    """Return the changes that calibration made to the base's matrices.

    Raises:
        UsageError: that is not known.
    """
    if MOVES in base.manifest.files:
        return Moves(read_arrays(base.file(MOVES)))
    if base.manifest.quantization.smoothing:
        raise UsageError(
            f"{base.path} was exported by an edgegen that kept no {MOVES}, which an adapter beside it needs: export it "
            f"again, or {_MERGE}."
        )
    return Moves()


def _check_base(base: Bundle, target: Path) -> None:
    """Check that a bundle can have adapters beside it.

    Raises:
        UsageError: it cannot.
    """
    manifest = base.manifest
    if manifest.base is not None:
        reason = "is an adapter itself: name the bundle of its base"
    elif manifest.source.adapter is not None:
        reason = f"has the adapter {manifest.source.adapter.id} merged in: export its base without one"
    elif base.variant.kv.kind != "in_place":
        reason = f"has graphs traced by optimum, to which nothing is added: {_MERGE}"
    elif manifest.quantization.linear.is_ternary:
        reason = "has ternary matrices, which no adapter is for: leave it out"
    elif base.manifest_digest.stated is None:
        reason = "has no hash of its own: an earlier edgegen wrote it; export it again"
    elif base.path.resolve() == target.resolve():
        reason = "is the folder to write to: give another -o"
    else:
        return
    raise UsageError(f"--keep-adapter: {base.path} {reason}.")


def _check_same_model(base: Bundle, model: FamilySource) -> None:
    """Check that a bundle can have been made of a checkpoint.

    Raises:
        UsageError: it is of another shape.
    """
    if (found := base.manifest.model) != (wanted := model.facts.model):
        raise UsageError(
            f"--keep-adapter: {base.path} is not a bundle of this checkpoint: it is {found.family} with "
            f"{found.parameters:,} parameters and a context of {found.max_context}, and the checkpoint "
            f"is {wanted.family} with {wanted.parameters:,} and {wanted.max_context}."
        )


def _manifest(name: str, base: Bundle, merged: Checkpoint, writer: BundleWriter) -> Manifest:
    return replace(
        base.manifest,
        name=name,
        folder=writer.version,
        source=merged.source,
        tokenizer=TOKENIZER if TOKENIZER in writer.files else None,
        generation_config=GENERATION_CONFIG,
        parity=PARITY,
        parity_reference=PARITY_REFERENCE,
        files=writer.files,
        provenance={"edgegen": edgegen.__version__, "onnx": version("onnx"), "numpy": np.__version__},
        base=BaseBundle(base.path.resolve().name, base.sha256, FACTORS),
    )
