"""prepare(): what has to be known of a model before its weights can be stored.

A text to calibrate on, sampled from the model or read; matrices smoothed and quantized on it; scales of an int8 cache.
All of it takes time, so what is worked out is kept beside the target until there is a bundle (:mod:`unfinished`).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import KVSpec, MatrixFormat, Quantization
from edgegen.errors import BundleError, UsageError, one_or_list
from edgegen.system import trim_memory
from edgegen_export.calibration.text import (
    FEW_TOKENS,
    SAMPLED,
    TOKENS,
    Boundaries,
    CalibrationText,
    read_text,
    sample_text,
)
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.model_source import Construction, Via
from edgegen_export.output.resume import Unfinished, fingerprint
from edgegen_export.parity.sample_text import read_tokenizer
from edgegen_export.progress import Progress
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.blockwise import Blocks
from edgegen_export.quantize.recipe import CALIBRATED, EIGHT_BITS, ROUNDED, Scheme
from edgegen_export.self_sampling import draft_runner

LEAST_BUDGET, MOST_BUDGET = 4.0, 10.0
"""Bits per weight that can be asked for; what 4 bits take at least is said when it is known."""

_TEXT = "text.npy"


@dataclass(frozen=True, slots=True)
class QuantizationOptions:
    """How weights are to be stored; see :func:`edgegen_export.pipeline.export`."""

    scheme: Scheme = "int8"
    fast: bool = False
    calibration: Path | None = None
    bits_budget: float | None = None
    fast_prefill: bool = False

    def refuse_contradictions(self, via: Via) -> None:
        """
        Raises:
            UsageError: options that cannot go together; all of them are listed.
        """
        calibrates = CALIBRATED[self.scheme].calibrates and not self.fast and via == "edgegen"
        problems, budget = list[str](), self.bits_budget
        if self.scheme == "int4" and via == "optimum":
            problems.append("optimum's graphs are stored in 8 bits or in floats: leave int4 or --via optimum out")
        if self.calibration is not None and not calibrates:
            problems.append("a calibration text is of no use to plain rounding: leave it, or --fast, --fp32, --via out")
        if budget is not None and (self.scheme != "int4" or not calibrates):
            problems.append("a bits budget is for int4 without --fast")
        elif budget is not None and not LEAST_BUDGET <= budget <= MOST_BUDGET:
            problems.append(f"a bits budget lies between {LEAST_BUDGET} and {MOST_BUDGET}, not at {budget:g}")
        if self.fast_prefill and (via == "optimum" or self.scheme not in ("int8", "int4")):
            problems.append("a fast prefill is for int8 and int4 bundles of edgegen's own graphs")
        if problems:
            raise UsageError(one_or_list(problems))


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """``construction``, its tensors as they are to be stored; ``blocks`` has matrices that are quantized already, by
    their (fused) module and format; ``scales``: tensors for an int8 cache, none where there is to be no such variant;
    ``prefills``: whether variants have a fast one, or there are both.
    """

    construction: Construction
    recipe: Quantization
    blocks: Callable[[str, MatrixFormat], Blocks | None]
    scales: Mapping[str, LazyTensor]
    prefills: tuple[bool, ...] = (False,)

    @property
    def kvs(self) -> tuple[KVSpec, ...]:
        """The caches there are graphs for."""
        kv = self.construction.kv
        return (kv, replace(kv, dtype="int8")) if self.scales else (kv,)


def prepare(
    construction: Construction,
    options: QuantizationOptions,
    unfinished: Unfinished,
    scratch: Path,
    vocabulary: Path | None,
    settings: Mapping[str, Any],
    sample: NDArray[np.int64],
    progress: Progress,
) -> Prepared:
    """Quantize as ``options`` say.

    ``vocabulary``: the tokenizer's file, where there is one; ``settings``: the generation config; ``sample`` ids
    [windows, t]: a text where no other is needed; ``scratch``: a folder for what only this run needs.

    Raises:
        UsageError: the calibration text cannot be used; the bits budget cannot be kept, or is of no use.
        ExportError: the model's hidden states are not finite.
        TensorError: weights are not finite.
    """
    recipe = (ROUNDED if options.fast or not construction.calibrate else CALIBRATED)[options.scheme]
    if recipe.linear.bits < EIGHT_BITS.bits and construction.experts:
        recipe = replace(recipe, exceptions=dict.fromkeys(construction.experts, EIGHT_BITS))
        progress.warn("the matrices of the experts are stored in 8 bits: their operator is not used with fewer")
    if recipe.linear.bits < EIGHT_BITS.bits and "positions.weight" in construction.tensors:
        recipe = replace(recipe, exceptions={**recipe.exceptions, "positions": EIGHT_BITS})
    calibrates, repacked = recipe.calibrates, construction.repack(recipe)
    recipe = repacked.recipe
    if options.bits_budget is not None and recipe.method == "repacked":
        raise UsageError("a bits budget is of no use to matrices that are quantized already: leave it out")
    for warning in repacked.warnings:
        progress.warn(warning)
    if construction.calibrate is None or not calibrates:
        return Prepared(construction, recipe, _nothing, _int8_scales(construction, sample, progress))

    tokens = TOKENS if recipe.method == "gptq" else FEW_TOKENS
    given = None
    if options.calibration is not None:
        given = _text_of(options.calibration, construction, vocabulary, tokens)
    progress.stage("looking at the weights")
    facts = [construction.identity, asdict(recipe), dict(settings), "" if given is None else given.ids.tolist()]
    folder, again = unfinished.claim(fingerprint(construction.tensors, facts, progress.advance))
    if again:
        progress.warn("going on where an earlier export of the same ended")
    text = given or _own_text(construction, tokens, settings, folder / _TEXT, scratch, progress)
    trim_memory()  # of the draft's packed weights
    recipe = replace(recipe, calibration=text.source, calibration_tokens=text.ids.size)
    store = BlockStore(folder)
    progress.stage({"gptq": "quantizing", "repacked": "looking at activations"}.get(recipe.method, "smoothing"))
    calibrated = construction.calibrate(text.ids, recipe, store, options.bits_budget, progress.advance)
    for warning in calibrated.warnings:
        progress.warn(warning)
    construction = replace(construction, tensors=calibrated.tensors)
    few = text.ids[: max(1, FEW_TOKENS // text.ids.shape[1])]
    return Prepared(construction, calibrated.recipe, store.get, _int8_scales(construction, few, progress))


def _nothing(module: str, form: MatrixFormat) -> None:
    """No matrix is quantized beforehand."""


def _text_of(file: Path, construction: Construction, vocabulary: Path | None, tokens: int) -> CalibrationText:
    """
    Raises:
        UsageError: the file cannot be used.
    """
    if vocabulary is None:
        raise UsageError("a calibration text needs a tokenizer, and the checkpoint has none: leave the text out")
    return read_text(file, read_tokenizer(vocabulary), construction.vocab_size, construction.max_context, tokens)


def _own_text(
    construction: Construction,
    tokens: int,
    settings: Mapping[str, Any],
    kept: Path,
    scratch: Path,
    progress: Progress,
) -> CalibrationText:
    """What the model says itself, which ``kept`` has if it was sampled before."""
    if kept.exists():
        return CalibrationText(np.load(kept), SAMPLED)
    progress.stage("sampling text to calibrate on")
    with draft_runner(construction, scratch, lambda _: None) as runner:
        boundaries = Boundaries.of(settings, construction.vocab_size)
        text = sample_text(runner, construction.kv.bytes_per_token, boundaries, tokens, progress.advance)
    draft = kept.with_suffix(".partial.npy")
    np.save(draft, text.ids)
    draft.replace(kept)
    return text


def _int8_scales(construction: Construction, ids: NDArray[np.int64], progress: Progress) -> dict[str, LazyTensor]:
    """Scales for an int8 cache, or none where there is to be no such variant."""
    if construction.kv_scales is None:
        return {}
    progress.stage("calibrating int8 keys and values")
    try:
        return construction.kv_scales(construction.tensors, ids)
    except BundleError as error:
        progress.warn(f"the bundle gets no variant with int8 keys and values: {error}")
        return {}
