"""build_traced(): the prefill or decode graph of a traced decoder, over the matrices that the bundle stores."""

import numpy as np
from onnx import helper, numpy_helper

from edgegen.bundle.manifest import GraphContract, Phase
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.matrices import linear, rows
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.stream import pick
from edgegen_export.source.optimum.traced_graph import ALL_LOGITS, IDS, MASK, POSITIONS, TracedGraph


def build_traced(traced: TracedGraph, phase: Phase, params: Parameters) -> GraphBuilder:
    """ids [b, t] with past → logits: ``prefill`` [b, n, v] of n positions per row, ``decode`` [b, t, v] of each.

    The attention mask, all ones, is made in the graph. Positions are an input even where the model needs none.
    """
    names = GraphContract()
    g = GraphBuilder(phase, traced.opset)
    ids = g.input(names.input_ids, "int64", ["batch", "tokens"])
    values = {"": Value(""), IDS: ids, POSITIONS: g.input(names.position_ids, "int64", ["batch", "tokens"])}
    for layer in traced.kv.layers:
        for past in (layer.past_key, layer.past_value):
            values[past] = g.input(past, "float32", ["batch", layer.kv_heads, "past", layer.head_dim])
    values[MASK] = _mask(g, ids, values[traced.kv.layers[0].past_key])
    wanted = g.input(names.logits_indices, "int64", ["batch", "wanted"]) if phase == "prefill" else None

    def value(name: str) -> Value:
        if name not in values:
            values[name] = _array(g, traced, params, name)
        return values[name]

    for position, node in enumerate(traced.nodes):
        if position in traced.linear:
            x = value(node.input[0])
            if position == traced.head and wanted is not None:
                x = pick(g, x, wanted)
            with g.scope(node.name):
                y = linear(g, params.matrix(traced.matrices[node.input[1]]), x)
                made = (g.op.Add(y, value(node.input[2])) if len(node.input) > 2 else y,)
        elif position in traced.embeddings:
            with g.scope(node.name):
                made = (rows(g, params.matrix(traced.matrices[node.input[0]]), value(node.input[1])),)
        else:
            made = g.copy(node, [value(name) for name in node.input])
        values |= zip(node.output, made, strict=True)

    logits = values[ALL_LOGITS]
    if wanted is not None and traced.head is None:
        logits = pick(g, logits, wanted)
    g.output(names.logits, logits, "float32", ["batch", "wanted" if wanted else "tokens", traced.vocab_size])
    for layer in traced.kv.layers:
        shape = ["batch", layer.kv_heads, "past + tokens", layer.head_dim]
        for present in (layer.present_key, layer.present_value):
            g.output(present, values[present], "float32", shape)
    return g


def _mask(g: GraphBuilder, ids: Value, past: Value) -> Value:
    """Ones, int64 [b, past + t]: nothing is padded."""
    batch, tokens = g.op.Shape(ids, start=0, end=1), g.op.Shape(ids, start=1, end=2)
    length = g.op.Add(g.op.Shape(past, start=2, end=3), tokens)
    return g.op.Expand(g.constant(np.array(1, np.int64)), g.op.Concat(batch, length, axis=0))


def _array(g: GraphBuilder, traced: TracedGraph, params: Parameters, name: str) -> Value:
    """A weight of the bundle, or a constant in the graph."""
    if name in traced.vectors:
        return g.weight(params.vector(traced.vectors[name]))
    constant = helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(traced.arrays[name]))
    return g.copy(constant, [])[0]
