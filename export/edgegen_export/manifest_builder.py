"""described(): the manifest of a bundle, and how its files are called."""

from importlib.metadata import version

import numpy as np

import edgegen
from edgegen.bundle.manifest import (
    FORMAT_VERSION,
    GraphContract,
    GraphVariant,
    KVSpec,
    Manifest,
    Model,
    Quantization,
)
from edgegen.model.ort_session import version_numbers
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.graph.requirements import MINIMUM_FOR_INT8_KV
from edgegen_export.model_source import Construction
from edgegen_export.output.bundle_writer import BundleWriter
from edgegen_export.quantization import Prepared
from edgegen_export.tokenizer.files import TOKENIZER

WEIGHTS = "weights.data"
GENERATION_CONFIG = "generation_config.json"
PARITY = "parity.json"
PARITY_REFERENCE = "reference.npz"


def graph_files(kv: KVSpec, *, fast: bool = False) -> tuple[str, str]:
    """Names of the prefill and decode graphs over such a cache."""
    suffix = "" if kv.dtype == "float32" else f".kv-{kv.dtype}"
    return f"prefill{suffix}{'.fast' if fast else ''}.onnx", f"decode{suffix}.onnx"


def described(
    name: str, writer: BundleWriter, checkpoint: Checkpoint, prepared: Prepared, recipe: Quantization
) -> Manifest:
    """The manifest of the bundle ``name``, of what ``writer`` has so far; ``recipe``: what became of the weights."""
    construction = prepared.construction
    return Manifest(
        format_version=FORMAT_VERSION,
        name=name,
        folder=writer.version,
        source=checkpoint.source,
        model=_describe(checkpoint, construction),
        quantization=recipe,
        variants=tuple(
            _variant(recipe, construction, kv, fast=fast) for fast in prepared.prefills for kv in prepared.kvs
        ),
        tokenizer=TOKENIZER if TOKENIZER in writer.files else None,
        generation_config=GENERATION_CONFIG,
        parity=PARITY,
        parity_reference=PARITY_REFERENCE,
        files=writer.files,
        provenance=_provenance(checkpoint) | construction.made_with,
    )


def _variant(recipe: Quantization, construction: Construction, kv: KVSpec, *, fast: bool) -> GraphVariant:
    prefill, decode = graph_files(kv, fast=fast)
    name = recipe.scheme if kv.dtype == "float32" else f"{recipe.scheme}-kv-{kv.dtype}"
    minimum = construction.minimum_onnxruntime
    return GraphVariant(
        name=f"{name}-fast-prefill" if fast else name,
        prefill=prefill,
        decode=decode,
        weights=WEIGHTS,
        linear="matmul_nbits" if recipe.linear.block_size else "matmul",
        activation_dtype="float32",
        device="cpu",
        minimum_onnxruntime=(
            minimum if kv.dtype == "float32" else max(minimum, MINIMUM_FOR_INT8_KV, key=version_numbers)
        ),
        kv=kv,
        contract=GraphContract(),
        rotary=construction.rotary,
        fast_prefill=fast,
    )


def _describe(checkpoint: Checkpoint, construction: Construction) -> Model:
    return Model(
        family=checkpoint.config["model_type"],
        parameters=construction.parameters,
        num_layers=len(construction.kv.layers),
        hidden_size=construction.hidden_size,
        vocab_size=construction.vocab_size,
        max_context=construction.max_context,
    )


def _provenance(checkpoint: Checkpoint) -> dict[str, str]:
    gguf = {"gguf": checkpoint.gguf} if checkpoint.gguf else {}
    return {"edgegen": edgegen.__version__, "onnx": version("onnx"), "numpy": np.__version__, **gguf}
