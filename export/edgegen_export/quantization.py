"""prepare(): quantization of a model's weights, up to what can be stored: calibration text, recipe, int8 cache scales.

It takes time, so what is worked out is kept beside the target until there is a bundle (:mod:`output.resume`).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.kv_format import STORED
from edgegen.bundle.manifest import KVSpec, MatrixFormat, Quantization
from edgegen.errors import UsageError
from edgegen.system import retry_in_use, trim_memory
from edgegen_export.calibration.moves import Moves
from edgegen_export.calibration.text import SAMPLED, Amount, Boundaries, CalibrationText, read_text, sample_text
from edgegen_export.calibration.trial import none_known
from edgegen_export.files.progress import FINGERPRINT, QUANTIZING, SAMPLING, SMOOTHING, ExportProgress
from edgegen_export.files.scratch import Scratch
from edgegen_export.options import ExportOptions
from edgegen_export.output.resume import ResumeFolder, fingerprint
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.blockwise import Blocks
from edgegen_export.source.model_source import ModelSource
from edgegen_export.source.self_sampling import sampling_runner
from edgegen_export.tensors.lazy import LazyTensor
from edgegen_export.tokenizer.written import written_tokenizer

_TEXT = "text.npy"

_MOST_WINDOWS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """``tensors`` as they are to be stored by ``recipe``; ``blocks`` has matrices that are quantized already, by their
    (fused) module and format; ``kvs``: the KV caches there are graphs for, the preferred one first; ``moves``: what
    calibration did to the matrices; ``text``: ids of the text that it was done on; ``key_means``: what an int4 KV cache
    subtracts from keys."""

    tensors: Mapping[str, LazyTensor]
    recipe: Quantization
    blocks: Callable[[str, MatrixFormat], Blocks | None]
    kvs: tuple[KVSpec, ...]
    moves: Moves = field(default_factory=Moves)
    text: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    key_means: Mapping[str, NDArray[np.float32]] = field(default_factory=dict[str, NDArray[np.float32]])


def prepare(
    source: ModelSource,
    options: ExportOptions,
    resume: ResumeFolder,
    scratch: Path,
    vocabulary: Path | None,
    settings: Mapping[str, Any],
    sample: NDArray[np.int64],
    progress: ExportProgress,
) -> Prepared:
    """Quantize as ``options`` say.

    ``vocabulary``: the tokenizer's file, where there is one; ``settings``: the generation config; ``sample`` ids
    [windows, t]: a text where no other is needed; ``scratch``: a folder for what only this run needs.

    Raises:
        UsageError: the calibration text cannot be used; the bits budget cannot be kept, or is of no use.
        ExportError: the model's hidden states are not finite.
        TensorError: weights are not finite.
    """
    plan = source.plan(options.scheme, fast=options.fast)
    recipe, tensors, blocks, moves, entered = plan.recipe, source.tensors, none_known, Moves(), None
    ids = sample
    if options.bits_budget is not None and recipe.method == "repacked":
        raise UsageError("a bits budget is of no use to matrices that are quantized already: leave it out")
    if plan.calibrate is None and (options.calibration is not None or options.bits_budget is not None):
        raise UsageError(
            "the matrices of a ternary model are stored as they are: leave calibration and bits_budget out"
        )
    for warning in plan.warnings:
        progress.warn(warning)
    if plan.calibrate is not None:
        amount = Amount.of(source.facts.model.parameters)
        tokens = amount.tokens if recipe.method == "gptq" else amount.few
        given = None if options.calibration is None else _text_of(options.calibration, source, vocabulary, tokens)
        progress.stage(FINGERPRINT)
        facts = [source.identity, asdict(recipe), dict(settings), "" if given is None else given.ids.tolist()]
        folder, again = resume.claim(fingerprint(tensors, facts, progress.advance))
        if again:
            progress.note(_continues(folder, source.facts.model.num_layers))
        text = given or _own_text(source, tokens, settings, folder / _TEXT, scratch, progress)
        trim_memory()  # of the packed weights that the text was sampled with
        recipe = replace(recipe, calibration=text.source, calibration_tokens=text.ids.size)
        store = BlockStore(folder)
        progress.stage({"gptq": QUANTIZING, "repacked": "looking at activations"}.get(recipe.method, SMOOTHING))
        calibrated = plan.calibrate(
            text.ids, recipe, store, options.bits_budget, progress.advance, Scratch(scratch), held_out=sample
        )
        for warning in calibrated.warnings:
            progress.warn(warning)
        tensors, recipe, moves = calibrated.tensors, calibrated.recipe, calibrated.moves
        blocks = none_known if recipe.method == "rounding" else store.get
        ids, sample = text.ids, _for_scales(text.ids, source)
        entered = calibrated.entered or None
        trim_memory()  # of what calibration took
    cached, kv = source.kv_statistics(tensors, sample, progress, entered), source.facts.kv
    kvs = tuple(replace(kv, dtype=dtype) for dtype in (STORED if cached.scales else STORED[:1]))
    if recipe.embedding.block_size:  # the first is preferred: who rounds the weights means to save memory
        kvs = kvs[::-1]
    return Prepared({**tensors, **cached.scales}, recipe, blocks, kvs, moves, ids, cached.key_means)


def _for_scales(ids: NDArray[np.int64], source: ModelSource) -> NDArray[np.int64]:
    """Windows of the calibration text ids [rows, t] that the int8 cache is calibrated on. Without rotary positions they
    cover all positions, as far as a few can: rows come again, then, for another place."""
    length = ids.shape[1]
    windows = max(1, Amount.of(source.facts.model.parameters).few // length)
    if not source.facts.rotary:
        windows = max(windows, min(_MOST_WINDOWS, -(-source.facts.model.max_context // length)))
    return np.resize(ids, (windows, length))


def _continues(folder: Path, layers: int) -> str:
    """Describe for the user what an earlier try has left in ``folder``."""
    if done := BlockStore(folder).layers_done():
        return f"continues where an earlier export ended: {done} of {layers} layers are done"
    return "continues where an earlier export ended: the text to calibrate on is sampled"


def _text_of(file: Path, source: ModelSource, vocabulary: Path | None, tokens: int) -> CalibrationText:
    """The calibration text in a file.

    Raises:
        UsageError: the file cannot be used.
    """
    if vocabulary is None:
        raise UsageError("a calibration text needs a tokenizer, and the checkpoint has none: leave the text out")
    model = source.facts.model
    row = Amount.of(model.parameters).length
    return read_text(file, written_tokenizer(vocabulary), model.vocab_size, model.max_context, tokens, row)


def _own_text(
    source: ModelSource,
    tokens: int,
    settings: Mapping[str, Any],
    kept: Path,
    scratch: Path,
    progress: ExportProgress,
) -> CalibrationText:
    """Text sampled from the model itself; ``kept`` has it if it was sampled before."""
    if kept.exists():
        return CalibrationText(np.load(kept), SAMPLED)
    progress.stage(SAMPLING)
    with sampling_runner(source, scratch) as runner:
        kv, boundaries = source.facts.kv, Boundaries.of(settings, source.facts.model.vocab_size)
        row = Amount.of(source.facts.model.parameters).length
        text = sample_text(runner, kv.bytes_per_token, boundaries, tokens, progress.advance, kv.bytes_per_row, row)
        del runner  # has files mapped, and Windows removes them only then
    partial = kept.with_suffix(".partial.npy")
    np.save(partial, text.ids)
    retry_in_use(lambda: partial.replace(kept))
    return text
