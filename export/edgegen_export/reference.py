"""LayerwiseReference: the unquantized model, run layer by layer in the memory of its largest layer.

The same blocks that make the bundle's graphs make one small graph per layer, whose weights are inputs fed straight
from the mapped checkpoint. Nothing is quantized, nothing is packed, and no layer is kept.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.manifest import GraphContract, KVSpec
from edgegen.ort_session import open_session
from edgegen.rotary import rotary_table
from edgegen_export.blocks import Stream, added, decoder_block, embedding, final_hidden, linear
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.config import DecoderConfig
from edgegen_export.decoder import rotary_tables, step_inputs
from edgegen_export.graph import GraphBuilder, Value
from edgegen_export.parameters import FedParameters

Hidden = NDArray[np.float32]


class LayerwiseReference:
    """Runs our tensors (by our names) in float32."""

    def __init__(self, tensors: Mapping[str, LazyTensor], config: DecoderConfig, kv: KVSpec) -> None:
        self._tensors = tensors
        self._config = config
        self._kv = kv
        self._tables = rotary_tables(config)

    def hidden(self, ids: NDArray[np.int64]) -> Hidden:
        """ids [b, t] without past → hidden states float32 [b, t, e], what the head's matrix multiplies."""
        x = self._embed(ids)
        for layer in range(self._config.num_layers):
            x = self._layer(layer, x)
        return self._final_norm(x)

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """hidden [n, d] → logits float32 [n, vocab], the head read slab by slab."""
        head = self._tensors["embed.weight" if self._config.tied_head else "head.weight"]
        bias, cap = self._tensors.get("head.bias"), self._config.logit_softcap
        logits = np.empty((len(hidden), self._config.vocab_size), np.float32)
        with np.errstate(all="ignore"):  # logits are judged by who asked for them
            for start, stop, slab in head.slabs():
                np.matmul(hidden, slab.T, out=logits[:, start:stop])
            if bias is not None:
                logits += bias.read()
            if cap is not None:
                np.multiply(np.tanh(logits / np.float32(cap)), np.float32(cap), out=logits)
        return logits

    def _embed(self, ids: NDArray[np.int64]) -> Hidden:
        # Only the rows in use, so that the table is never read whole.
        used, renumbered = np.unique(ids, return_inverse=True)
        table = self._tensors["embed.weight"]
        rows = np.concatenate([table.rows(int(i), int(i) + 1) for i in used])
        table.release()  # each row mapped its neighbours too
        params = FedParameters({**self._tensors, "embed.weight": LazyTensor.from_array(rows)})
        g = GraphBuilder("embed")
        shape = ["batch", "tokens"]
        stream = embedding(g, params, self._config, g.input("ids", "int64", shape), g.input("at", "int64", shape))
        positions = np.tile(np.arange(ids.shape[1], dtype=np.int64), (ids.shape[0], 1))
        return _run(g, added(g, stream), params, {"ids": renumbered.reshape(ids.shape), "at": positions})

    def _layer(self, layer: int, x: Hidden) -> Hidden:
        params = FedParameters(self._tensors)
        cache = self._kv.layers[layer]
        kv_class = self._kv.classes[cache.cache_class]
        g = GraphBuilder(f"layer {layer}")
        rope = self._config.layers[layer].rope
        tables = {rope: self._tables[rope]} if rope else {}
        stream = _inputs(g)
        step = step_inputs(g, self._config, {cache.cache_class: kv_class}, tables, stream.residual)
        stream = decoder_block(g, params, self._config, layer, stream, cache, step)
        batch, tokens, _ = x.shape
        past = np.zeros((batch, cache.kv_heads, tokens, cache.head_dim), np.float32)
        seqlens, total = kv_class.length_inputs
        lengths = {seqlens: np.full(batch, tokens - 1, np.int32), total: np.array(tokens, np.int32)}
        positions = {GraphContract().position_ids: np.tile(np.arange(tokens, dtype=np.int64), (batch, 1))}
        rotary: dict[str, NDArray[Any]] = {}
        for table in tables.values():
            rotary[table.cos], rotary[table.sin] = rotary_table(table, tokens)
        feeds = {cache.past_key: past, cache.past_value: past, **lengths, **positions, **rotary, **_feeds(x)}
        result = _run(g, added(g, stream), params, feeds)
        for name, tensor in self._tensors.items():
            if name.startswith(f"layers.{layer}."):
                tensor.release()
        return result

    def _final_norm(self, x: Hidden) -> Hidden:
        params = FedParameters(self._tensors)
        g = GraphBuilder("final norm")
        hidden = final_hidden(g, params, self._config, _inputs(g))
        if self._config.embedding_size not in (None, self._config.hidden_size):
            hidden = linear(g, params.matrix("head_in"), hidden)
        return x if hidden == "x" else _run(g, hidden, params, _feeds(x))


_SHAPE = ("batch", "tokens", "hidden")


def _inputs(g: GraphBuilder) -> Stream:
    return Stream(g.input("x", "float32", _SHAPE))


def _feeds(x: Hidden) -> dict[str, NDArray[Any]]:
    return {"x": x}


def _run(g: GraphBuilder, result: Value, params: FedParameters, feeds: Mapping[str, NDArray[Any]]) -> Hidden:
    g.output("result", result, "float32", _SHAPE)
    session = open_session(g.model().SerializeToString())
    return session.run(["result"], {**feeds, **params.feeds()})[0]
