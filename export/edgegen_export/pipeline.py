"""export(): a checkpoint becomes a bundle. The whole pipeline on one page."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from onnx import ModelProto

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import KVSpec, Phase, Quantization, is_safe_path
from edgegen.errors import UsageError
from edgegen.model.ort_session import require_version
from edgegen.parity.measure import open_graph
from edgegen.parity.report import ParityReport
from edgegen.system import trim_memory
from edgegen_export.architecture.architecture import Architecture, bind, find_architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.folding import folded
from edgegen_export.calibration.calibrate import calibrate
from edgegen_export.calibration.kv_scales import kv_scales
from edgegen_export.calibration.prequantized import repacking
from edgegen_export.checkpoint import Adapter, Checkpoint, LazyTensor, merge_adapter, unpacked
from edgegen_export.checkpoint.companions import is_paper
from edgegen_export.checkpoint.weight_files import read_json_object
from edgegen_export.families import FAMILIES
from edgegen_export.families.refused import REFUSED
from edgegen_export.generation_config import generation_config
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.decoder import build_decode, build_prefill, build_states, kv_spec, rotary_tables
from edgegen_export.graph.layerwise_reference import LayerwiseReference
from edgegen_export.graph.parameters import FastParameters, Parameters, StoredParameters
from edgegen_export.graph.requirements import MINIMUM_FOR_EXPERTS, MINIMUM_FOR_WINDOWS, MINIMUM_ONNXRUNTIME
from edgegen_export.manifest_builder import GENERATION_CONFIG, PARITY, PARITY_REFERENCE, WEIGHTS, described, graph_files
from edgegen_export.model_source import Construction, LayerStates, Via
from edgegen_export.optimum.model_source import trace_model
from edgegen_export.optimum.trace import check_traceable
from edgegen_export.output.bundle_writer import BundleWriter, refuse_wrong_target
from edgegen_export.output.resume import Unfinished
from edgegen_export.parity.compare import compare, listen
from edgegen_export.parity.layer_errors import layer_errors
from edgegen_export.parity.sample_text import Ids, file_ids, sample_ids
from edgegen_export.parity.warnings import shortfalls
from edgegen_export.progress import Progress, Silent
from edgegen_export.quantization import Prepared, QuantizationOptions, prepare
from edgegen_export.quantize.recipe import ROUNDED, Scheme
from edgegen_export.tokenizer.files import TOKENIZER, tokenizer_files


def export(
    source: str,
    target: Path,
    *,
    scheme: Scheme = "int8",
    fast: bool = False,
    calibration: Path | None = None,
    bits_budget: float | None = None,
    fast_prefill: bool = False,
    eval_text: Path | None = None,
    via: Via = "edgegen",
    revision: str | None = None,
    gguf_file: str | None = None,
    adapter: str | None = None,
    force: bool = False,
    max_context: int | None = None,
    families: tuple[Architecture, ...] = FAMILIES,
    progress: Progress | None = None,
) -> tuple[Bundle, ParityReport]:
    """Write the checkpoint ``source`` (a folder, a GGUF file or a hub id) as a bundle to the folder ``target``.

    ``scheme``: how weights are stored; ``fast``: by plain rounding, without running the model to do better.
    ``calibration``: a text file to run it on; by default the model's own words.
    ``bits_budget``: bits per weight that the matrices of an int4 bundle may take on average.
    ``fast_prefill``: variants besides that read prompts faster, with the layers' matrices once more, rounded per row.
    ``eval_text``: a text file to compare bundle and checkpoint on; by default a short sample text.
    ``via``: who makes the graphs: edgegen, of the blocks of one of the ``families``, or optimum, by tracing the model.
    ``gguf_file``: which GGUF file of a folder or a hub repository to take the weights from.
    ``adapter``: a LoRA adapter (a folder or a hub id) to merge into it.
    ``max_context``: how many positions the bundle is for; by default those the model was made for.
    ``families``: the model families to look for its architecture in.

    Raises:
        UsageError: options contradict each other; the model cannot be exported for ``max_context`` positions;
            ``calibration`` or ``eval_text`` cannot be used; ``adapter`` or a GGUF file is to be traced.
        CheckpointError: the source or the adapter cannot be read, is not supported, or its tensors do not fit.
        BundleError: the installed ONNX Runtime cannot run such a bundle.
        ExportError: the target is taken (see ``force``) or cannot be written.
    """
    progress = progress or Silent()
    options = QuantizationOptions(scheme, fast, calibration, bits_budget, fast_prefill)
    options.refuse_contradictions(via)
    refuse_wrong_target(target, force=force)  # before anything is downloaded for it
    if via == "optimum" and adapter is not None:
        raise UsageError("optimum traces the model without its adapter: leave --via optimum or --adapter out")
    update = Adapter.open(adapter, progress=progress.stage) if adapter is not None else None
    progress.stage(f"opening {source}")

    def read_config(raw: Mapping[str, Any]) -> tuple[Architecture, DecoderConfig]:
        architecture = find_architecture(raw, families, REFUSED)
        config = architecture.read_config(raw)
        config = config.for_context(_context(config, max_context))
        require_version(_minimum_onnxruntime(config))
        return architecture, config

    check = check_traceable if via == "optimum" else read_config
    checkpoint = Checkpoint.open(
        source, revision=revision, gguf_file=gguf_file, progress=progress.stage, check_config=check
    )
    if via == "optimum" and checkpoint.gguf is not None:
        raise UsageError(f"{checkpoint.gguf} is a GGUF file, which optimum does not trace: leave --via optimum out")
    if via == "edgegen":
        architecture, config = read_config(checkpoint.config)
        names = architecture.base_names(config)
        checkpoint = unpacked(checkpoint, names)
        if update is not None:
            progress.stage(f"merging {adapter}")
            checkpoint = merge_adapter(checkpoint, update, names, tied_head=config.tied_head, warn=progress.warn)
    tokenizer = tokenizer_files(checkpoint)  # refused, if at all, before the long part

    with (
        BundleWriter(target, force=force) as writer,
        Unfinished(target, writer.scratch(), progress.warn) as unfinished,
    ):
        if via == "optimum":
            construction = trace_model(checkpoint.path, writer.scratch(), ROUNDED[scheme], max_context, progress.stage)
        else:  # the config anew: an adapter may have parted the head from the embedding
            construction = _of_blocks(*read_config(checkpoint.config), checkpoint.tensors, max_context)
        given = _json(checkpoint, GENERATION_CONFIG)
        settings, ignored = generation_config(given, checkpoint.config, construction.max_context)
        if ignored:
            progress.warn(f"{GENERATION_CONFIG} asks for what is not honoured: {', '.join(ignored)}")
        for warning in construction.warnings:
            progress.warn(warning)
        for name, data in {**tokenizer, **_papers(checkpoint)}.items():
            writer.add(name, data)
        vocabulary = writer.folder / TOKENIZER if TOKENIZER in tokenizer else None
        ids, text = sample_ids(vocabulary, construction.vocab_size, construction.max_context, progress.warn)
        evaluated = ids
        if eval_text is not None:
            evaluated = file_ids(eval_text, vocabulary, construction.vocab_size, construction.max_context)
            text = eval_text.name
        trim_memory()  # of the tokenizer
        prepared = prepare(construction, options, unfinished, writer.scratch(), vocabulary, settings, ids, progress)
        if fast_prefill:
            prepared = replace(prepared, prefills=(False, True))
        progress.stage(f"writing {scheme} weights")
        graphs, states, recipe = _write_weights(writer, prepared, progress)
        for name, graph in graphs.items():
            writer.add(name, graph)
        writer.add(GENERATION_CONFIG, _to_json(settings))

        manifest = described(target.absolute().name, writer, checkpoint, prepared, recipe)
        progress.stage("comparing with the checkpoint")
        trim_memory()  # before the weights are packed
        draft = Bundle(target, manifest, writer.folder)
        open_draft = partial(open_graph, draft, draft.variant, "decode")
        reference = listen(construction.reference, evaluated, construction.max_context, open_draft)
        writer.add(PARITY_REFERENCE, reference.to_bytes(construction.vocab_size))
        errors = _layer_errors(draft, construction, states, evaluated)
        report = compare(draft, reference, text, errors, progress.advance)
        for warning in shortfalls(report, manifest, can_be_calibrated=construction.calibrate is not None):
            progress.warn(warning)
        writer.add(PARITY, _to_json(report.to_json()))
        writer.commit(manifest)
    return Bundle.open(target), report


def _minimum_onnxruntime(config: DecoderConfig) -> str:
    if config.experts:
        return MINIMUM_FOR_EXPERTS
    return MINIMUM_FOR_WINDOWS if any(layer.window for layer in config.layers) else MINIMUM_ONNXRUNTIME


def _of_blocks(
    architecture: Architecture, config: DecoderConfig, theirs: Mapping[str, LazyTensor], max_context: int | None
) -> Construction:
    """Graphs of the blocks that every family shares."""
    bound = bind(architecture, config, theirs)
    tensors, kv = folded(config, bound), kv_spec(config)
    reference = LayerwiseReference(tensors, config, kv)

    def build(kv: KVSpec, params: Parameters, phase: Phase) -> GraphBuilder:
        make = build_prefill if phase == "prefill" else build_decode
        return make(config, params, kv)

    per_layer = ("gate+up", "down") if config.experts else ()
    experts = tuple(f"layers.{i}.mlp.{name}" for i in range(config.num_layers) for name in per_layer)
    longer = (
        f"exported for {config.max_positions} positions; --max-context takes up to {config.longest_context}, "
        "with the frequencies or distances for so many"
    )
    return Construction(
        tensors=tensors,
        build=build,
        kv=kv,
        rotary=tuple(rotary_tables(config).values()),
        reference=reference,
        calibrate=partial(calibrate, tensors, config, reference),
        repack=partial(repacking, tensors, config, experts),
        layer_states=LayerStates(lambda kv, params: build_states(config, params, kv), reference.states),
        experts=experts,
        kv_scales=lambda tensors, ids: kv_scales(tensors, config, kv, ids),
        identity=repr(config),
        parameters=_parameters(bound),
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        max_context=config.max_positions,
        minimum_onnxruntime=_minimum_onnxruntime(config),
        warnings=(longer,) if max_context is None and config.longest_context > config.max_positions else (),
    )


def _context(config: DecoderConfig, wanted: int | None) -> int:
    """
    Raises:
        UsageError: the model cannot be exported for so many positions.
    """
    if wanted is not None and not 1 <= wanted <= config.longest_context:
        raise UsageError(
            f"max_context: this model can be exported for 1 to {config.longest_context} positions, not {wanted}"
        )
    return wanted or config.max_positions


def _write_weights(
    writer: BundleWriter, prepared: Prepared, progress: Progress
) -> tuple[dict[str, bytes], dict[str, bytes], Quantization]:
    """Write every weight once; the graphs that use them, for each kind of cache, serialized, by file name; those that
    give hidden states, by the file of the prefill graph; and what the weights cost."""
    construction, recipe = prepared.construction, prepared.recipe
    tensors = {**construction.tensors, **prepared.scales}
    total, done = _parameters(tensors), 0

    def on_tensor(elements: int) -> None:
        nonlocal done
        done += elements
        progress.advance(done, total)

    sink = writer.weights(WEIGHTS)
    params = StoredParameters(tensors, recipe, sink, on_tensor, prepared.blocks)
    graphs, states = dict[str, ModelProto](), dict[str, bytes]()
    for kv in prepared.kvs:
        for fast in prepared.prefills:
            of_prefill = FastParameters(params) if fast else params
            prefill, decode = graph_files(kv, fast=fast)
            graphs[prefill] = construction.build(kv, of_prefill, "prefill").model(WEIGHTS)
            if not fast:
                graphs[decode] = construction.build(kv, params, "decode").model(WEIGHTS)
            if construction.layer_states:
                states[prefill] = construction.layer_states.build(kv, of_prefill).model(WEIGHTS).SerializeToString()
    writer.files[WEIGHTS] = sink.close()
    params.refuse_not_finite()
    recipe = replace(recipe, bits_per_weight=round(params.bits_per_weight, 3))
    return {name: model.SerializeToString(deterministic=True) for name, model in graphs.items()}, states, recipe


def _layer_errors(
    bundle: Bundle, construction: Construction, states: Mapping[str, bytes], ids: Ids
) -> dict[str, tuple[float, ...]]:
    """Those of each variant, by its name."""
    if construction.layer_states is None:
        return {}
    of_model = construction.layer_states.of_model
    return {v.name: layer_errors(bundle, v, states[v.prefill], of_model, ids) for v in bundle.manifest.variants}


def _parameters(tensors: Mapping[str, LazyTensor]) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors.values())


def _papers(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Licence and model card, which travel with the weights."""
    names = sorted(name for name in checkpoint.listing.files if is_paper(name) and is_safe_path(name))
    return {name: (checkpoint.path / name).read_bytes() for name in names}


def _json(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    path = checkpoint.file(name)
    return read_json_object(path) if path else {}


def _to_json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
