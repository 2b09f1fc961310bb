"""The graphs of an EAGLE-3 draft: hidden states and next tokens → logits, and the model's that gives these states."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import GraphContract, KVSpec
from edgegen_export.architecture.components.draft_input import EagleInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.blocks import final_hidden
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.decoder import HIDDEN_STATES
from edgegen_export.graph.draft_head import CUT_HEAD, MODULE, head_inputs, some_logits, stored_name
from edgegen_export.graph.layer_graph import LayerGraph, ModelGraph
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.renamed import RenamedParameters
from edgegen_export.graph.stream import Stream, added, pick
from edgegen_export.graph.sublayers import mix, think


def build_eagle_head(
    config: DecoderConfig, own: EagleInput, params: Parameters, kv: KVSpec, proposed: NDArray[np.int32]
) -> GraphBuilder:
    """As :func:`build_draft_head`, of the draft ``config``; ``proposed``: the ids of its head's rows."""
    names = GraphContract()
    g, of_head = GraphBuilder(MODULE), RenamedParameters(params, eagle_name)
    model = ModelGraph(g, of_head, config)
    token, previous, normed, step = head_inputs(model, kv, "layers.0.attn_norm")
    with g.scope("embed"):
        both = g.op.Concat(token, normed, axis=2)
    layer = LayerGraph(g, of_head, config, 0, kv, step)
    with g.scope(layer.name):
        before = normed if own.normed_residual else previous
        x, residual = layer.norm(replace(mix(layer, both), residual=before), "mlp_norm")
        last = added(g, replace(think(layer, x, residual), residual=residual))
    with g.scope("head"):
        g.output(HIDDEN_STATES, g.op.Identity(last), "float32", ["batch", "tokens", config.hidden_size])
        final = final_hidden(model, Stream(last))
        wanted = pick(g, final, g.input(names.logits_indices, "int64", ["batch", "wanted"]))
        logits = some_logits(ModelGraph(g, params, config), wanted, proposed)
    g.output(names.logits, logits, "float32", ["batch", "wanted", config.vocab_size])
    return g


def eagle_name(name: str) -> str:
    """The draft's name of a module or a tensor, as it is stored: its head is that of the ids that are proposed."""
    module, _, rest = name.partition(".")
    return f"{CUT_HEAD}.{rest}".rstrip(".") if module == "draft_head" else stored_name(name)
