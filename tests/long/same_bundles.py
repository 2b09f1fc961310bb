"""Digests of the exports of every family's cases: the same before and after a change that means to change none.

``python -m tests.long.same_bundles --against FOLDER`` compares with the code of another checkout, ``git worktree add
FOLDER COMMIT``; ``--write FILE`` before the change and ``--compare FILE`` after it do so in one. A digest is that of
graphs, stored weights, tensors, norms, KV cache, the ONNX Runtime that is needed, smoothing pairs and the matrices that
calibration walks through, for random weights that depend on a tensor's name alone. ``layers`` is that of the graphs of
single layers, which run one by one; ``draft`` that of the multi-token prediction head of models that have one.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import KVSpec, Quantization
from edgegen_export.architecture.architecture import find_architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.draft_head import DraftHead
from edgegen_export.architecture.folding import folded
from edgegen_export.architecture.tensors import decoder_norms, decoder_tensors, least_onnxruntime
from edgegen_export.calibration.layer_walk import layer_matrices
from edgegen_export.families import FAMILIES
from edgegen_export.graph.blocks import decoder_block
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.carried import Carried
from edgegen_export.graph.decoder import (
    build_decode,
    build_prefill,
    build_states,
    kv_spec,
    rotary_tables,
    step_inputs,
)
from edgegen_export.graph.draft_head import MODULE, build_draft_head
from edgegen_export.graph.layer_graph import LayerGraph, ModelGraph
from edgegen_export.graph.parameters import FedParameters, StoredParameters
from edgegen_export.quantize.recipe import ROUNDED
from edgegen_export.quantize.smoothing import head_pair, layer_pairs
from edgegen_export.tensors.lazy import LazyTensor
from tests.families.cases import CASES, Case
from tests.second_oracle import config_json

_CONTEXT = "context of the export"
_FAILURE = "failure"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="FILE")
    action.add_argument("--compare", type=Path, metavar="FILE")
    action.add_argument("--against", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.write:
        told = {str(case): _told(case) for case in CASES if not case.refused}
        cases = {name: {"config": config, "digests": _digests(config)} for name, config in told.items()}
        options.write.write_text(json.dumps(cases), "utf-8")
    elif options.compare:
        sys.exit(_compare(options.compare))
    else:
        with tempfile.TemporaryDirectory() as folder:
            before = Path(folder) / "before.json"
            path = os.pathsep.join(map(str, (options.against.resolve(), options.against.resolve() / "export")))
            command = [sys.executable, "-P", __file__, "--write", before]
            subprocess.run(command, cwd=options.against, env={**os.environ, "PYTHONPATH": path}, check=True)
            sys.exit(_compare(before))


def _compare(file: Path) -> int:
    """Say what differs from the digests in ``file``; 1 where anything does."""
    before: dict[str, dict[str, dict[str, Any]]] = json.loads(file.read_text("utf-8"))
    changed = failed = 0
    for name, case in before.items():
        after, expected = _digests(case["config"]), case["digests"]
        failed += _FAILURE in after
        if parts := [part for part in expected | after if after.get(part) != expected.get(part)]:
            changed += 1
            print(f"{name}: {after.get(_FAILURE) or ', '.join(parts)}", flush=True)
    print(f"{len(before)} cases: {len(before) - failed} built, {failed} could not be built, {changed} changed")
    return 1 if changed else 0


def _told(case: Case) -> dict[str, Any]:
    """The case's config.json, with the context that it is exported for."""
    stated = config_json(case.family, case.config, use_diff=True, version=case.oracles[0])
    return {**stated, _CONTEXT: case.max_context}


def _digests(told: Mapping[str, Any]) -> dict[str, str]:
    """The digests of what a config is exported to, by part; or why it cannot be."""
    try:
        return digests(told)
    except Exception as error:
        return {_FAILURE: f"{type(error).__name__}: {error}"}


def digests(told: Mapping[str, Any]) -> dict[str, str]:
    """The digests of what a config is exported to, by part."""
    stated = {key: value for key, value in told.items() if key != _CONTEXT}
    architecture = find_architecture(stated, FAMILIES)
    config = architecture.read_config(stated)
    config = config.for_context(told[_CONTEXT] or config.max_positions)
    required, optional = decoder_tensors(config)
    stored = folded(config, {name: _random(name, shape) for name, shape in (required | optional).items()})
    kv = kv_spec(config)
    result = {
        "tensors": _digest([sorted(required.items()), sorted(optional.items())]),
        "names": _digest(sorted(map(repr, architecture.layouts(config)))),
        "norms": _digest(sorted(decoder_norms(config).items())),
        "kv": _digest([kv, rotary_tables(config).values(), least_onnxruntime(config)]),
        "pairs": _digest([head_pair(config), *(layer_pairs(config, i) for i in range(config.num_layers))]),
        "matrices": _digest([layer_matrices(config, i) for i in range(config.num_layers)]),
        "layers": _layers(config, stored, kv),
    }
    if architecture.draft_head:
        result["draft"] = _draft(config, architecture.draft_head)
    for scheme in ("fp32", "int8", "int4"):
        result[scheme] = _graphs(config, stored, kv, ROUNDED[scheme])
    return result


def _graphs(config: DecoderConfig, tensors: Mapping[str, LazyTensor], kv: KVSpec, recipe: Quantization) -> str:
    """The digest of the graphs and of the weights that they store, in order."""
    sink, result = _Sink(), hashlib.sha256()
    params = StoredParameters(tensors, recipe, sink, lambda count: None)
    for build in (build_prefill, build_decode, build_states):
        result.update(build(config, params, kv).model("weights.data").SerializeToString(deterministic=True))
    result.update(sink.digest.digest())
    return result.hexdigest()


def _layers(config: DecoderConfig, tensors: Mapping[str, LazyTensor], kv: KVSpec) -> str:
    """The digest of the graph of each layer by itself, as ``LayerwiseModel`` runs it."""
    carried, result = Carried(config), hashlib.sha256()
    for layer in range(config.num_layers):
        g = GraphBuilder("layer")
        x = g.input("x", "float32", ["batch", "tokens", carried.size])
        step = step_inputs(ModelGraph(g, FedParameters(tensors), config), kv, x)
        step = carried.entering(g, x, step, layer, config.layers[layer].source)
        stream = decoder_block(LayerGraph(g, FedParameters(tensors), config, layer, kv, step), carried.stream(g, x))
        g.output("y", carried.leaving(g, x, stream, step, layer), "float32", ["batch", "tokens", carried.size])
        result.update(g.model().SerializeToString(deterministic=True))
    return result.hexdigest()


def _draft(config: DecoderConfig, head: DraftHead) -> str:
    """The digest of the head's graph and of the weights that it stores."""
    own, sink = head.config(config), _Sink()
    required, optional = decoder_tensors(own)
    stored = folded(own, {name: _random(name, shape) for name, shape in (required | optional).items()})
    tensors = {name if name.startswith(("embed", "head")) else f"{MODULE}.{name}": one for name, one in stored.items()}
    params = StoredParameters(tensors, ROUNDED["int8"], sink, lambda count: None)
    graph = build_draft_head(own, head.takes, params, kv_spec(own)).model("weights.data")
    return _digest([graph.SerializeToString(deterministic=True), sink.digest.hexdigest()])


class _Sink:
    """A weights file of which the digest is kept."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._size = 0

    def begin(self, nbytes: int) -> int:
        start, self._size = self._size, self._size + nbytes
        return start

    def append(self, array: NDArray[np.generic]) -> None:
        self.digest.update(np.ascontiguousarray(array).tobytes())


def _random(name: str, shape: tuple[int, ...]) -> LazyTensor:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return LazyTensor.from_array(np.asarray(0.05 * rng.standard_normal(shape), np.float32))


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


if __name__ == "__main__":
    main()
