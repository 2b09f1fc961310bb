"""export(): converts a checkpoint to a bundle: the whole pipeline on one page."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from edgegen.bundle.arrays_file import arrays_as_bytes
from edgegen.bundle.bundle import KEY_MEANS, Bundle
from edgegen.bundle.embedding_defaults import EMBEDDING, EmbeddingDefaults
from edgegen.bundle.manifest import GraphVariant, Manifest, Model, Phase, Quantization
from edgegen.errors import CheckpointError
from edgegen.evaluation.parity.measure import graph_of
from edgegen.evaluation.parity.report import ParityReport
from edgegen.model.interfaces import Runner
from edgegen.model.ort_session import OneSession
from edgegen.system import is_portable, name_clashes, read_regular, trim_memory
from edgegen.tokenizer import Tokenizer
from edgegen_export.architecture.architecture import Architecture
from edgegen_export.calibration.moves import MOVES
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.checkpoint.companions import is_license_file
from edgegen_export.checkpoint.weight_files import read_json_object
from edgegen_export.families import FAMILIES
from edgegen_export.files.progress import COMPARING, ExportProgress, Silent, writing
from edgegen_export.files.scratch import Scratch
from edgegen_export.files.scratch_runner import scratch_runner
from edgegen_export.files.threads import one_thread_per_product
from edgegen_export.graph.parameters import StoredParameters
from edgegen_export.manifest_builder import (
    GENERATION_CONFIG,
    MTP,
    MTP_INT8,
    PARITY,
    PARITY_REFERENCE,
    WEIGHTS,
    build_manifest,
    graph_files,
)
from edgegen_export.options import ExportOptions
from edgegen_export.output.bundle_writer import BundleWriter, refuse_wrong_target
from edgegen_export.output.embedding_defaults import embedding_defaults
from edgegen_export.output.generation_config import generation_config
from edgegen_export.output.resume import ResumeFolder
from edgegen_export.parity.compare import compare, record_reference
from edgegen_export.parity.extent import Extent
from edgegen_export.parity.layer_errors import layer_errors
from edgegen_export.parity.sample_text import Ids, file_ids, sample_ids
from edgegen_export.parity.warnings import parity_warnings
from edgegen_export.preflight.preflight import Preflight, memory_here, needs
from edgegen_export.quantization import Prepared, prepare
from edgegen_export.quantize.recipe import ROUNDED
from edgegen_export.source.family_source import FamilyLoader
from edgegen_export.source.model_source import DraftGraph, HiddenGraphs, ModelSource, SourceLoader
from edgegen_export.source.optimum.model_source import TraceLoader
from edgegen_export.tokenizer.compiled import compiled_form
from edgegen_export.tokenizer.files import TOKENIZER, end_of_sequence, tokenizer_files
from edgegen_export.tokenizer.opened_tokenizer import OpenedTokenizer
from edgegen_export.tokenizer.special_tokens import check_special_tokens
from edgegen_export.tokenizer.written import added_ids


def export(
    source: str,
    target: Path,
    options: ExportOptions | None = None,
    *,
    families: tuple[Architecture, ...] = FAMILIES,
    progress: ExportProgress | None = None,
) -> tuple[Bundle, ParityReport]:
    """Write the checkpoint ``source`` (a folder, a GGUF file or a hub id) as a bundle to the folder ``target``.

    ``families``: the model families to look for its architecture in.

    Raises:
        UsageError: the model cannot be exported for ``max_context`` positions; ``calibration`` or ``eval_text`` cannot
            be used; a GGUF file is to be traced.
        CheckpointError: the source or the adapter cannot be read, is not supported, or its tensors do not fit.
        BundleError: the installed ONNX Runtime cannot run such a bundle.
        ExportError: the target is taken (see ``force``) or cannot be written; or the disk has no room for it, for
            temporary files and for what is to be downloaded; or see ``runs_here``.
    """
    progress = progress or Silent()
    options = options or ExportOptions()
    refuse_wrong_target(target, force=options.force)  # before anything is downloaded for it
    loader = _loader(options, families, progress)
    memory = memory_here() if options.runs_here else None
    preflight = Preflight(loader, target, options.scheme, options.fast, progress, memory=memory)
    progress.stage(f"opening {source}")
    opened = Checkpoint.open(
        source,
        revision=options.revision,
        gguf_file=options.gguf_file,
        progress=progress.stage,
        check_config=preflight.check_config,
        check_download=preflight.check_download,
        on_download=progress.downloaded,
    )
    if opened.source.kind == "hub" and opened.gguf and options.gguf_file is None:
        progress.note(f"of {source}, {opened.gguf} is taken; another is named by --gguf-file, or as {source}:QUANT")
    checkpoint = loader.ready(opened)
    if checkpoint.ignored_weights:
        progress.warn(checkpoint.ignored_weights)
    tokenizer = compiled_tokenizer(checkpoint, progress)  # refused, if at all, before the long part
    embedding = embedding_defaults(checkpoint, progress.warn) if options.with_hidden else None
    preflight.check_target()

    with (
        one_thread_per_product(),
        BundleWriter(target, force=options.force) as writer,
        ResumeFolder(target, writer.scratch(), progress.warn) as resume,
    ):
        model = loader.load(checkpoint, writer.scratch())
        settings = generation_settings(checkpoint, tokenizer, model.facts.model.max_context, progress)
        for warning in model.warnings:
            progress.warn(warning)
        for name, data in {**tokenizer, **license_files(checkpoint, progress)}.items():
            writer.add(name, data)
        vocabulary = writer.folder / TOKENIZER if TOKENIZER in tokenizer else None
        sample, evaluated, text = compared_texts(vocabulary, model.facts.model, options.eval_text, progress)
        trim_memory()  # of the tokenizer
        prepared = prepare(model, options, resume, writer.scratch(), vocabulary, settings, sample, progress)
        added = added_ids(tokenizer[TOKENIZER]) if vocabulary else ()
        draft = model.draft_graph(prepared.tensors, prepared.recipe, {*map(int, np.unique(prepared.text)), *added})
        hidden = model.hidden_graphs(prepared.tensors) if options.with_hidden or draft else None
        for own in (one.tensors for one in (hidden, draft) if one is not None):
            prepared = replace(prepared, tensors={**prepared.tensors, **own})
        if draft is not None:
            exceptions = {**prepared.recipe.exceptions, **draft.exceptions}
            prepared = replace(prepared, recipe=replace(prepared.recipe, exceptions=exceptions))
        progress.stage(writing(options.scheme))
        states, recipe = _write_graphs(writer, model, prepared, hidden, draft, progress)
        writer.add(GENERATION_CONFIG, to_json(settings))
        if hidden is not None and not options.with_hidden:
            embedding = _unless_refused(checkpoint, progress)
        if embedding is not None:
            writer.add(EMBEDDING, to_json(asdict(embedding)))
        if recipe.smoothing:
            writer.add(MOVES, arrays_as_bytes(prepared.moves.arrays))
        if prepared.key_means:
            writer.add(KEY_MEANS, arrays_as_bytes(prepared.key_means))
        output = None if hidden is None else hidden.output
        manifest = build_manifest(
            target.absolute().name, writer, checkpoint, model.facts, prepared, recipe, output, draft
        )
        progress.stage(COMPARING)
        trim_memory()  # before the weights are opened
        report = compare_with_checkpoint(writer, manifest, model, states, evaluated, text, progress)
        for folder in writer.commit(manifest):
            progress.warn(
                f"the version that this one replaces is still in use: its files stay in {folder} until the next export "
                "to this folder"
            )
    return Bundle.open(target), report


def needs_of(source: str, target: Path, options: ExportOptions) -> str | None:
    """Describe what :func:`export` of a checkpoint on this machine to ``target`` would take; None if it is not known.

    Raises:
        EdgegenError: as :func:`export`, of what it refuses before its long part.
    """
    refuse_wrong_target(target, force=True)
    loader = FamilyLoader(FAMILIES, None, None, Silent(), with_head=True, draft_head=None)
    preflight = Preflight(loader, target, options.scheme, options.fast, Silent(), memory=memory_here())
    opened = Checkpoint.open(source, check_config=preflight.check_config)
    files = tokenizer_files(loader.ready(opened), lambda _: None)
    if TOKENIZER in files:
        OpenedTokenizer.quick_to_read(files[TOKENIZER])
    preflight.check_target()
    return None if preflight.estimate is None else needs(preflight.estimate)


def _loader(options: ExportOptions, families: tuple[Architecture, ...], progress: ExportProgress) -> SourceLoader:
    """The loader of families, or of traces.

    Raises:
        CheckpointError: the adapter or the draft head cannot be read.
        UnsupportedModelError: the draft head is not read.
    """
    if options.via == "optimum":
        return TraceLoader(ROUNDED[options.scheme], options.max_context, progress)
    adapter, head = options.adapter, options.draft_head
    return FamilyLoader(families, options.max_context, adapter, progress, with_head=options.mtp, draft_head=head)


def _unless_refused(checkpoint: Checkpoint, progress: ExportProgress) -> EmbeddingDefaults | None:
    """How embeddings are made of hidden states that are there for proposals; where that is refused, a warning."""
    try:
        return embedding_defaults(checkpoint, progress.warn)
    except CheckpointError as error:
        progress.warn(f"embeddings of this bundle are means, as the checkpoint's own are refused: {error}")
        return None


def compiled_tokenizer(checkpoint: Checkpoint, progress: ExportProgress) -> dict[str, bytes]:
    """The files of the tokenizer, checked, and compiled for the runtime; none of a checkpoint without one.

    Raises:
        CheckpointError: the files are malformed, contradict each other, or make no tokenizer.
    """
    files = tokenizer_files(checkpoint, progress.warn)
    if TOKENIZER in files:
        opened = OpenedTokenizer.quick_to_read(files[TOKENIZER])
        files[TOKENIZER] = opened.data
        for warning in check_special_tokens(files, Tokenizer(opened.backend)):
            progress.warn(warning)
        files |= compiled_form(opened)
    return files


def compared_texts(
    vocabulary: Path | None, model: Model, eval_text: Path | None, progress: ExportProgress
) -> tuple[Ids, Ids, str]:
    """The sample text, and what a bundle is compared with its checkpoint on: a part of it or ``eval_text``, and the
    name of that."""
    sample, text = sample_ids(vocabulary, model.vocab_size, model.max_context, progress.warn)
    if eval_text is not None:
        return sample, file_ids(eval_text, vocabulary, model.vocab_size, model.max_context), eval_text.name
    extent = Extent.of(model.parameters)
    return sample, sample[: extent.windows, : extent.length], text


def generation_settings(
    checkpoint: Checkpoint, tokenizer: Mapping[str, bytes], max_context: int, progress: ExportProgress
) -> dict[str, Any]:
    """The generation settings of the checkpoint, completed and checked; what is not honoured becomes a warning."""
    path = checkpoint.file(GENERATION_CONFIG)
    given = read_json_object(path) if path else {}
    known = any(settings.get("eos_token_id") is not None for settings in (given, checkpoint.config))
    eos = None if known else end_of_sequence(tokenizer)
    settings, ignored = generation_config(given, checkpoint.config, max_context, eos[1] if eos else None)
    if eos:
        progress.warn(f"only the tokenizer's files name an end-of-sequence token: texts end at {eos[0]!r} ({eos[1]})")
    if ignored:
        progress.warn(f"{GENERATION_CONFIG} asks for what is not honoured: {', '.join(ignored)}")
    return settings


def _write_graphs(
    writer: BundleWriter,
    model: ModelSource,
    prepared: Prepared,
    hidden: HiddenGraphs | None,
    draft: DraftGraph | None,
    progress: ExportProgress,
) -> tuple[dict[str, bytes], Quantization]:
    """Write every weight once, and the graphs that use them, for each KV cache. Returns the graphs that give the
    states after each layer, serialized, by the name of the prefill graph; and the recipe with what the weights take."""
    total, done = sum(math.prod(tensor.shape) for tensor in prepared.tensors.values()), 0

    def on_tensor(elements: int) -> None:
        nonlocal done
        done += elements
        progress.advance(done, total)

    sink = writer.weights(WEIGHTS)
    params = StoredParameters(prepared.tensors, prepared.recipe, sink, on_tensor, prepared.blocks)
    graphs, states = dict[str, ModelProto](), dict[str, bytes]()
    for kv in prepared.kvs:
        prefill, decode = graph_files(kv)
        made = hidden.build(kv, params) if hidden else model.build(kv, params, "prefill")
        graphs[prefill] = made.model(WEIGHTS)
        graphs[decode] = model.build(kv, params, "decode").model(WEIGHTS)
        if graph := model.build_states(kv, params):
            states[prefill] = graph.model(WEIGHTS).SerializeToString()
    if draft is not None:
        graphs[MTP] = draft.build(params).model(WEIGHTS)
        if draft.build_int8 is not None and any(kv.dtype == "int8" for kv in prepared.kvs):
            graphs[MTP_INT8] = draft.build_int8(params).model(WEIGHTS)
    writer.files[WEIGHTS] = sink.close()
    params.refuse_not_finite()
    for name, graph in graphs.items():
        writer.add(name, graph.SerializeToString(deterministic=True))
    return states, replace(prepared.recipe, bits_per_weight=round(params.bits_per_weight, 3))


def compare_with_checkpoint(
    writer: BundleWriter,
    manifest: Manifest,
    model: ModelSource,
    states: Mapping[str, bytes],
    ids: Ids,
    text: str,
    progress: ExportProgress,
    base: Bundle | None = None,
) -> ParityReport:
    """Compare what is written with the checkpoint, on ids [windows, t] of ``text``; add the report to the bundle.

    ``states``: graphs that give the states after each layer, serialized, by the name of the prefill graph; ``base``: of
    an adapter bundle, the bundle that has its graphs.
    """
    bundle, facts = Bundle.with_manifest(writer.target, manifest, writer.folder, base), model.facts.model
    adapter = bundle.low_rank()
    extent = Extent.of(facts.parameters)
    scratch, of_model = Scratch(writer.scratch()), list[NDArray[np.float32]]()

    def open_runner(variant: GraphVariant, phase: Phase) -> Runner[Any]:
        graph, conversion = bundle.file(graph_of(variant, phase)), bundle.conversion(variant)
        graphs = OneSession(graph, keep_spinning=False, adapter=adapter, conversion=conversion)
        return scratch_runner(graphs, variant, facts.vocab_size, facts.max_context, scratch)

    reference, drafted = record_reference(
        model.reference,
        ids,
        facts.max_context,
        partial(open_runner, bundle.variant, "decode"),
        extent,
        lambda x: of_model.append(scratch.kept(x[0, : extent.states])),
    )
    writer.add(PARITY_REFERENCE, reference.to_bytes(facts.vocab_size))
    errors = {
        v.name: layer_errors(bundle, v, states[v.prefill], of_model, ids, scratch)
        for v in manifest.variants
        if v.prefill in states
    }
    report = compare(bundle, open_runner, reference, text, errors, progress.advance, drafted)
    for warning in parity_warnings(report, manifest, can_be_calibrated=model.can_calibrate):
        progress.warn(warning)
    writer.add(PARITY, to_json(report.to_json()))
    return report


def license_files(checkpoint: Checkpoint, progress: ExportProgress) -> dict[str, bytes]:
    """Licence and model card, which travel with the weights, where every system can have files of these names."""
    found = sorted(name for name in checkpoint.listing.files if is_license_file(name))
    left = {name for name in found if not is_portable(name)} | {second for _, second in name_clashes(found)}
    for name in sorted(left):
        progress.warn(f"{name!r} is left out: not every system can have a file of this name in the bundle's folder")
    return {name: read_regular(checkpoint.path / name) for name in found if name not in left}


def to_json(value: Mapping[str, Any]) -> bytes:
    """The contents of a JSON file of the bundle."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
