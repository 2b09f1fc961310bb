"""The graph of a multi-token prediction head: hidden states and next tokens → logits of the tokens after these."""

from edgegen.bundle.manifest import GraphContract, KVSpec
from edgegen_export.architecture.components.draft_input import DraftInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.graph.blocks import decoder_block, embedding, final_hidden, head
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.decoder import HIDDEN_STATES, pick, rotary_tables, step_inputs
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.renamed import RenamedParameters
from edgegen_export.graph.stream import Stream, added, normalized

MODULE = "mtp"
"""What the names of the head's tensors begin with."""

HIDDEN_INPUT = "previous_hidden_states"
"""The input of hidden states."""


def build_draft_head(config: DecoderConfig, own: DraftInput, params: Parameters, kv: KVSpec) -> GraphBuilder:
    """ids [b, t] and the hidden states [b, t, d] of the positions before them, with past → logits [b, n, v] of the n
    positions per row that ``logits_indices`` names, and hidden states [b, t, d] to go on from.

    ``config``: a decoder of one layer; embedding and head are the model's.
    """
    names = GraphContract()
    g, of_head = GraphBuilder(MODULE), RenamedParameters(params, stored_name)
    ids = g.input(names.input_ids, "int64", ["batch", "tokens"])
    previous = g.input(HIDDEN_INPUT, "float32", ["batch", "tokens", config.hidden_size])
    step = step_inputs(g, config, kv.dtype, kv.classes, rotary_tables(config), ids)
    with g.scope("embed"):
        token = added(g, embedding(g, of_head, config, ids, step.positions))
        token = normalized(g, of_head, config.norm, token, "draft_embed_norm")
        previous = normalized(g, of_head, config.norm, previous, "draft_hidden_norm")
        both = (previous, token) if own.hidden_first else (token, previous)
        x = linear(g, of_head.matrix("draft_in"), g.op.Concat(*both, axis=2))
    stream = decoder_block(g, of_head, config, 0, Stream(x), kv, step)
    with g.scope("head"):
        if not own.normed_output:
            stream = Stream(added(g, stream))
        final = final_hidden(g, of_head, config, stream)
        result = g.op.Identity(final if own.normed_output else stream.residual)
        g.output(HIDDEN_STATES, result, "float32", ["batch", "tokens", config.hidden_size])
        wanted = pick(g, final, g.input(names.logits_indices, "int64", ["batch", "wanted"]))
        logits = head(g, of_head, config, wanted)
    g.output(names.logits, logits, "float32", ["batch", "wanted", config.vocab_size])
    return g


def stored_name(name: str) -> str:
    """The head's name of a module or a tensor, as it is stored: embedding and head are the model's own."""
    return name if name.partition(".")[0] in ("embed", "head") else f"{MODULE}.{name}"
