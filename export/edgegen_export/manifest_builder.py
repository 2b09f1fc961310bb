"""build_manifest(): the manifest of a bundle, and the names of its files."""

from dataclasses import replace
from importlib.metadata import version

import numpy as np

import edgegen
from edgegen.bundle.manifest import (
    FORMAT_VERSION,
    GraphContract,
    GraphVariant,
    HiddenStates,
    KVSpec,
    Manifest,
    ModelCache,
    Quantization,
)
from edgegen.model.ort_session import version_numbers
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.graph.draft_head import HIDDEN_INPUT
from edgegen_export.output.bundle_writer import BundleWriter
from edgegen_export.quantization import Prepared
from edgegen_export.source.model_source import DraftGraph, ModelFacts
from edgegen_export.tokenizer.files import TOKENIZER

WEIGHTS = "weights.data"
GENERATION_CONFIG = "generation_config.json"
MTP = "mtp.onnx"
"""The graph of a multi-token prediction head."""
MTP_INT8 = "mtp.kv-int8.onnx"
"""Graph of a head that reads the model's KV cache, for an int8 one."""
PARITY = "parity.json"
PARITY_REFERENCE = "reference.npz"


def graph_files(kv: KVSpec) -> tuple[str, str]:
    """Names of the prefill and decode graphs over such a cache."""
    suffix = kv.format.suffix.replace("-", ".", 1)
    return f"prefill{suffix}.onnx", f"decode{suffix}.onnx"


def build_manifest(
    name: str,
    writer: BundleWriter,
    checkpoint: Checkpoint,
    facts: ModelFacts,
    prepared: Prepared,
    recipe: Quantization,
    hidden: HiddenStates | None = None,
    draft: DraftGraph | None = None,
) -> Manifest:
    """The manifest of the bundle ``name``, of what ``writer`` has so far; ``recipe``: what became of the weights;
    ``hidden``: the prefill graphs' output of hidden states; ``draft``: the graph of a multi-token prediction head."""
    return Manifest(
        format_version=FORMAT_VERSION,
        name=name,
        folder=writer.version,
        source=checkpoint.source,
        model=facts.model,
        quantization=recipe,
        variants=tuple(_variant(recipe, facts, kv, hidden) for kv in prepared.kvs),
        tokenizer=TOKENIZER if TOKENIZER in writer.files else None,
        generation_config=GENERATION_CONFIG,
        parity=PARITY,
        parity_reference=PARITY_REFERENCE,
        files=writer.files,
        provenance=_provenance(checkpoint) | facts.made_with,
        mtp=None if draft is None else _of_head(_variant(recipe, facts, draft.kv, draft.output), draft, writer),
    )


def _of_head(variant: GraphVariant, draft: DraftGraph, writer: BundleWriter) -> GraphVariant:
    head = replace(variant, name="mtp", prefill=MTP, decode=MTP, rotary=draft.rotary, hidden_input=HIDDEN_INPUT)
    if not draft.model_layers:
        return head
    return replace(head, model_cache=ModelCache(draft.model_layers, MTP_INT8 if MTP_INT8 in writer.files else None))


def _variant(recipe: Quantization, facts: ModelFacts, kv: KVSpec, hidden: HiddenStates | None) -> GraphVariant:
    prefill, decode = graph_files(kv)
    return GraphVariant(
        name=recipe.scheme + kv.format.suffix,
        prefill=prefill,
        decode=decode,
        weights=WEIGHTS,
        linear="matmul_nbits" if recipe.linear.block_size else "matmul",
        activation_dtype="float32",
        device="cpu",
        minimum_onnxruntime=max(facts.minimum_onnxruntime, kv.format.minimum_onnxruntime, key=version_numbers),
        kv=kv,
        contract=GraphContract(),
        rotary=facts.rotary,
        hidden_states=hidden,
    )


def _provenance(checkpoint: Checkpoint) -> dict[str, str]:
    gguf = {"gguf": checkpoint.gguf} if checkpoint.gguf else {}
    return {"edgegen": edgegen.__version__, "onnx": version("onnx"), "numpy": np.__version__, **gguf}
