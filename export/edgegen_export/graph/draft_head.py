"""The graph of a multi-token prediction head: hidden states and next tokens → logits of the tokens after these."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import GraphContract, KVSpec
from edgegen_export.architecture.components.draft_input import DraftInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.activations import softcap
from edgegen_export.graph.blocks import decoder_block, embedding, final_hidden, head
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.decoder import HIDDEN_SCALE, HIDDEN_STATES, step_inputs
from edgegen_export.graph.layer_graph import LayerGraph, ModelGraph
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.renamed import RenamedParameters
from edgegen_export.graph.step_inputs import StepInputs
from edgegen_export.graph.stream import Stream, added, pick

MODULE = "mtp"
"""Prefix of the names of the head's tensors."""

CUT_HEAD = f"{MODULE}.head"
"""The matrix of the rows of the model's head that the head has, where it has not all."""

HIDDEN_INPUT = "previous_hidden_states"
"""The input of hidden states."""


def build_draft_head(
    config: DecoderConfig,
    own: DraftInput,
    params: Parameters,
    kv: KVSpec,
    proposed: NDArray[np.int32] | None = None,
    *,
    scaled: bool = False,
) -> GraphBuilder:
    """ids [b, t] and the hidden states [b, t, d] of the positions before them, with past → logits [b, n, v] of the n
    positions per row that ``logits_indices`` names, and hidden states [b, t, d] to go on from.

    ``config``: a decoder of the head's layers; embedding and head are the model's. ``proposed``: the ids that have
    logits, those of others being -inf (Cai et al. 2025, arXiv:2509.18362); all without it. ``scaled``: the hidden
    states are multiplied with the vector ``HIDDEN_SCALE`` of the head.
    """
    names = GraphContract()
    g, of_head = GraphBuilder(MODULE), RenamedParameters(params, stored_name)
    model = ModelGraph(g, of_head, config)
    taken = head_inputs(model, kv, "draft_embed_norm")
    step, both = taken.step, (taken.normed, taken.token) if own.hidden_first else (taken.token, taken.normed)
    with g.scope("embed"):
        stream = Stream(model.linear(g.op.Concat(*both, axis=2), "draft_in"))
    for layer in range(config.num_layers):
        stream = decoder_block(LayerGraph(g, of_head, config, layer, kv, step), stream)
    with g.scope("head"):
        if not own.normed_output:
            stream = Stream(added(g, stream))
        final = final_hidden(model, stream)
        result = final if own.normed_output else stream.residual
        result = g.op.Mul(result, model.weight(HIDDEN_SCALE)) if scaled else g.op.Identity(result)
        g.output(HIDDEN_STATES, result, "float32", ["batch", "tokens", config.hidden_size])
        wanted = pick(g, final, g.input(names.logits_indices, "int64", ["batch", "wanted"]))
        stored = ModelGraph(g, params, config)
        logits = head(model, wanted) if proposed is None else some_logits(stored, wanted, proposed)
    g.output(names.logits, logits, "float32", ["batch", "wanted", config.vocab_size])
    return g


class HeadInputs(NamedTuple):
    """Embeddings [b, t, d] of the next ``token``, normalized; ``previous`` hidden states [b, t, d], and the same
    ``normed``; and what layers take of a ``step``."""

    token: Value
    previous: Value
    normed: Value
    step: StepInputs


def head_inputs(model: ModelGraph, kv: KVSpec, token_norm: str) -> HeadInputs:
    """Return the input of a head, made of inputs of its graph. ``token_norm``: the name of the norm of embeddings."""
    g, config = model.g, model.config
    ids = g.input(GraphContract().input_ids, "int64", ["batch", "tokens"])
    previous = g.input(HIDDEN_INPUT, "float32", ["batch", "tokens", config.hidden_size])
    step = step_inputs(model, kv, ids)
    with g.scope("embed"):
        token = added(g, embedding(model, ids, step.positions))
        token = model.normalized(token, token_norm)
        normed = model.normalized(previous, "draft_hidden_norm")
    return HeadInputs(token, previous, normed, step)


def some_logits(model: ModelGraph, hidden: Value, proposed: NDArray[np.int32]) -> Value:
    """The logits [b, n, v] of hidden [b, n, d], -inf but for the ids ``proposed``; ``model``: by stored names."""
    g, config = model.g, model.config
    logits = model.linear(hidden, CUT_HEAD)
    logits = softcap(g, config.logit_softcap, logits) if config.logit_softcap else logits
    rows = g.op.Slice(g.op.Shape(logits), g.axes(0), g.axes(2))
    nothing = g.constant(np.array([-np.inf], np.float32))
    whole = g.op.Expand(nothing, g.op.Concat(rows, g.axes(config.vocab_size), axis=0))
    where = g.op.Expand(g.constant(proposed, "proposed ids"), g.op.Shape(logits))
    return g.op.ScatterElements(whole, where, logits, axis=2)


def stored_name(name: str) -> str:
    """The head's name of a module or a tensor, as it is stored: embedding and head are the model's own."""
    return name if name.partition(".")[0] in ("embed", "head") else f"{MODULE}.{name}"
