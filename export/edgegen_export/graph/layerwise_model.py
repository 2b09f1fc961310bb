"""LayerwiseModel: the unquantized model in float32, run layer by layer in the memory of its largest layer.

The blocks of the bundle's graphs build one small graph per layer, whose weights are inputs fed straight from the mapped
checkpoint. Nothing is quantized, nothing is packed, and no layer is kept.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from edgegen.bundle.layer_state import FixedState
from edgegen.bundle.manifest import GraphContract, KVLayer, KVSpec, MatrixFormat
from edgegen.model.ort_session import open_session
from edgegen.model.rotary import rotary_table
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.tensors import layer_products
from edgegen_export.files.threads import in_threads
from edgegen_export.graph.blocks import decoder_block, embedding, final_hidden
from edgegen_export.graph.blocks import projected as in_embedding_width
from edgegen_export.graph.builder import GraphBuilder, Value
from edgegen_export.graph.carried import Carried
from edgegen_export.graph.decoder import rotary_tables, step_inputs
from edgegen_export.graph.fused import fused_name, fused_weight
from edgegen_export.graph.kept_state import kv_layers
from edgegen_export.graph.layer_graph import LayerGraph, ModelGraph
from edgegen_export.graph.parameters import FedParameters
from edgegen_export.graph.per_layer import per_layer_inputs
from edgegen_export.graph.stream import Stream, added
from edgegen_export.quantize.activations import rounded_inputs
from edgegen_export.quantize.blockwise import Blocks, block_size_for, round_rows, rounded_plainly
from edgegen_export.quantize.recipe import EIGHT_BITS, FLOATS
from edgegen_export.tensors.lazy import LazyTensor

Hidden = NDArray[np.float32]
Stored = MatrixFormat | Blocks
"""How a matrix is stored: rounded plainly to a format, or in codes that are known."""


class LayerwiseModel:
    """Runs our tensors (by our names) in float32."""

    def __init__(self, tensors: Mapping[str, LazyTensor], config: DecoderConfig, kv: KVSpec) -> None:
        self._tensors = tensors
        self._config = config
        self._kv = kv
        self._tables = rotary_tables(config)
        self._carried = Carried(config)

    @property
    def vocab_size(self) -> int:
        return self._config.vocab_size

    @property
    def num_layers(self) -> int:
        return self._config.num_layers

    def hidden(
        self, texts: Sequence[NDArray[np.int64]], on_states: Callable[[Hidden], None] | None = None
    ) -> list[Hidden]:
        """Texts, each of ids [b, t] without past → hidden states float32 [b, t, e] for each, what the head's matrix
        multiplies. The weights are read once.

        ``on_states`` hears the states [b, t, d] after each layer for the first text.
        """
        states = list[Hidden]()
        for states in self._layers(texts):
            if on_states is not None:
                on_states(self.hidden_states(states[0]))
        return [*self.final(states)]

    def hidden_states(self, x: Hidden) -> Hidden:
        """The hidden states [b, t, d] of what a layer gives, which has columns for later layers too."""
        return self._carried.hidden(x)

    def states(self, ids: NDArray[np.int64]) -> Iterator[Hidden]:
        """ids [b, t] without past → the hidden states [b, t, d] after each layer, layer by layer."""
        return (self.hidden_states(x) for (x,) in self._layers([ids]))

    def _layers(self, texts: Sequence[NDArray[np.int64]]) -> Iterator[list[Hidden]]:
        """Yield the result of each layer, [b, t, columns] for each text."""
        states = [*self.embedded(texts)]
        for layer in range(self._config.num_layers):
            with self.layer(layer, max(ids.shape[1] for ids in texts)) as run:
                states = [run(x) for x in states]
            yield states

    def with_tensors(self, tensors: Mapping[str, LazyTensor]) -> "LayerwiseModel":
        """The same model made of other tensors."""
        return LayerwiseModel(tensors, self._config, self._kv)

    def logits(self, hidden: NDArray[np.float32], stored: Stored = FLOATS) -> NDArray[np.float32]:
        """hidden [n, d] → logits float32 [n, vocab].

        ``stored``: how the head's matrix is, and with it what is multiplied.
        """
        logits = np.empty((len(hidden), self._config.vocab_size), np.float32)

        def add(slab: HeadSlab) -> None:
            logits[:, slab.ids] = slab.logits(hidden, stored)

        for _ in in_threads(add, self.head_slabs()):
            pass
        return logits

    def head_slabs(self) -> Iterator["HeadSlab"]:
        """The head, read slab by slab."""
        head = self._tensors["embed.weight" if self._config.tied_head else "head.weight"]
        bias = self._tensors.get("head.bias")
        for start, stop, rows in head.slabs():
            part = None if bias is None else bias.rows(start, stop)
            yield HeadSlab(slice(start, stop), rows, part, self._config.logit_softcap)

    def embed(self, ids: NDArray[np.int64], stored: Mapping[str, Stored] | None = None) -> Hidden:
        """``embedded`` of one text."""
        return next(self.embedded([ids], stored=stored))

    def embedded(
        self,
        texts: Sequence[NDArray[np.int64]],
        firsts: Sequence[NDArray[np.int64]] | None = None,
        stored: Mapping[str, Stored] | None = None,
    ) -> Iterator[Hidden]:
        """Texts, each of ids [b, t] → what the first layer takes, [b, t, columns] for each; at the positions from 0, or
        from those of ``firsts``, each [b], on.

        ``stored``: how the tables "embed", "embed_per_layer" and "positions" are stored, where they differ from the
        model's.
        """
        tables, stored = dict(self._tensors), stored or {}
        # Only the rows in use, so that the table is never read whole.
        used = [np.unique(ids) for ids in texts]
        most = max(map(len, used))

        def rows(name: str, which: NDArray[np.int64]) -> Hidden:
            table, found = self._tensors[name], np.zeros((most, self._tensors[name].shape[1]), np.float32)
            which = np.where(which < table.shape[0], which, 0)  # see PerLayerEmbedding
            found[: len(which)] = _as_stored(
                _rows(table, which), stored.get(name.removesuffix(".weight"), FLOATS), which
            )
            return found

        looked_up = [name for name in ("embed.weight", "embed_per_layer.weight") if name in self._tensors]
        for name in looked_up:
            tables[name] = LazyTensor.from_array(np.zeros((most, tables[name].shape[1]), np.float32))
        if "positions" in stored:
            values = _as_stored(tables["positions.weight"].read(), stored["positions"], slice(None))
            tables["positions.weight"] = LazyTensor.from_array(values)
        params = FedParameters(tables)
        g = GraphBuilder("embed")
        shape = ["batch", "tokens"]
        numbers = g.input("ids", "int64", shape)
        model = ModelGraph(g, params, self._config)
        stream = embedding(model, numbers, g.input("at", "int64", shape))
        x = added(g, stream)
        columns = [x, *stream.others, *filter(None, [per_layer_inputs(model, numbers, Stream(x))])]
        x = g.op.Concat(*columns, axis=2) if columns[1:] else x
        run = _Graph(g, x, params)
        starts = firsts or [np.zeros(len(ids), np.int64) for ids in texts]
        for ids, which, start in zip(texts, used, starts, strict=True):
            positions = start[:, None] + np.arange(ids.shape[1], dtype=np.int64)
            feeds = {
                "ids": np.searchsorted(which, ids),
                "at": positions,
                **{name: rows(name, which) for name in looked_up},
            }
            yield self._carried.with_room(run(feeds))

    @contextmanager
    def layer(
        self,
        layer: int,
        tokens: int,
        taps: Sequence[str] = (),
        changed: Mapping[str, LazyTensor] | None = None,
        blocks: Mapping[str, Blocks] | None = None,
        *,
        kernels: bool = False,
        in_int8: bool = False,
        cache_only: bool = False,
    ) -> Generator["LayerRun"]:
        """One layer over sequences of ``tokens``, its weights read; tensors of ``changed`` replace the model's.

        ``taps``: fused names of modules whose inputs are wanted too (:meth:`LayerRun.tapped`); ``blocks``: matrices by
        fused name that are quantized, and multiplied as in the bundle; ``kernels``: by edgegen's own, where there are
        any; ``in_int8``: so with all matrices but experts, rounded plainly to 8 bits, which takes a third of the time;
        ``cache_only``: nothing but what makes keys and values (:meth:`LayerRun.keys_and_values`).
        """
        tensors = {**self._tensors, **changed} if changed else self._tensors
        if in_int8:
            kernels, modules = True, layer_products(self._config, layer)
            blocks = {fused_name(each): rounded_plainly(fused_weight(tensors, each), EIGHT_BITS) for each in modules}
        params = FedParameters(tensors, blocks, ternary=self._config.ternary)
        carried, caches, g = self._carried, kv_layers(self._kv, layer), GraphBuilder(f"layer {layer}")
        x = g.input("x", "float32", _SHAPE)
        classes = {cache.cache_class: self._kv.classes[cache.cache_class] for cache in caches}
        model_graph = ModelGraph(g, params, self._config)
        step = step_inputs(model_graph, replace(self._kv, classes=classes), x)
        step = carried.entering(g, x, step, layer, self._config.layers[layer].source)
        stream = decoder_block(LayerGraph(g, params, self._config, layer, self._kv, step), carried.stream(g, x))
        g.output(_RESULT, carried.leaving(g, x, stream, step, layer), "float32", _SHAPE)
        for tap in taps:
            g.output(f"{_TAP}{tap}", g.op.Identity(g.multiplied(f"{tap}.weight")), "float32", (*_SHAPE[:2], tap))
        rotary: dict[str, NDArray[Any]] = {}
        for table in self._tables.values():
            rotary[table.cos], rotary[table.sin] = rotary_table(table, tokens)
        model = g.model()
        if cache_only:
            _keep_outputs(model, {caches[0].present_key, caches[0].present_value})
            params.forget_all_but({each.name for each in model.graph.input})
        model = _with_constants(model, params.constants)
        states = [state for state in self._kv.fixed if state.layer == layer]
        fixed = params.feeds() | rotary
        run = LayerRun(model, self._kv, caches, states, fixed, taps, kernels=kernels, constants=params.constants)
        try:
            yield run
        finally:
            run.close()
            del params
        for name, tensor in self._tensors.items():
            if name.startswith((f"layers.{layer}.", self._config.stored(layer))):
                tensor.release()

    def final(self, states: Sequence[Hidden], *, projected: bool = True) -> Iterator[Hidden]:
        """Yield for each text, from the result of the last layer, the input of the head's matrix, or of the projection
        before it."""
        params = FedParameters(self._tensors)
        g = GraphBuilder("final norm")
        stream = self._carried.stream(g, g.input("x", "float32", _SHAPE))
        model = ModelGraph(g, params, self._config)
        hidden = final_hidden(model, stream)
        hidden = in_embedding_width(model, hidden) if projected else hidden
        if hidden == stream.residual:
            yield from map(self.hidden_states, states)
        else:
            run = _Graph(g, hidden, params)
            yield from (run({"x": x}) for x in states)


@dataclass(frozen=True, slots=True, eq=False)
class HeadSlab:
    """Part of the head, for the logits of ``ids``: rows [ids, d] of its matrix, their bias [ids], the softcap."""

    ids: slice
    rows: Hidden
    bias: NDArray[np.float32] | None
    softcap: float | None

    def logits(self, hidden: NDArray[np.float32], stored: Stored = FLOATS) -> NDArray[np.float32]:
        """hidden [n, d] → logits float32 [n, ids].

        ``stored``: how the head's matrix is, and with it what is multiplied.
        """
        if stored != FLOATS:
            hidden = rounded_inputs(hidden, _block_size(stored, hidden.shape[1]))
        with np.errstate(all="ignore"):  # the caller checks the logits
            logits: NDArray[np.float32] = hidden @ _as_stored(self.rows, stored, self.ids).T
            if self.bias is not None:
                logits += self.bias
            if self.softcap is not None:
                np.multiply(np.tanh(logits / np.float32(self.softcap)), np.float32(self.softcap), out=logits)
        return logits


class LayerRun:
    """One layer of the model, ready to run over hidden states.

    ONNX Runtime's arrays keep the whole arena that they lie in, a hundred megabytes, beyond the session: states, which
    are kept, are copies.
    """

    def __init__(
        self,
        model: ModelProto,
        kv: KVSpec,
        caches: Sequence[KVLayer],
        states: Sequence[FixedState],
        fixed: Mapping[str, NDArray[Any]],
        taps: Sequence[str],
        *,
        kernels: bool,
        constants: Mapping[str, NDArray[np.generic]],
    ) -> None:
        """``caches``, ``states``: what the layer reads, of ``kv``, a cache of its own first; ``fixed``: inputs that are
        the same in every run; ``kernels``: whether it runs on edgegen's own; ``constants``: of its external
        initializers."""
        graph, self._constants = model.SerializeToString(), constants
        self._session = open_session(graph, keep_spinning=False, kernels=kernels, constants=constants)
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._kv, self._caches, self._states = kv, caches, states
        self._fixed = fixed
        self._taps = taps

    def close(self) -> None:
        """Free the session and the weights; nothing can be run any more."""
        del self._session, self._fixed, self._constants

    def __call__(self, x: Hidden) -> Hidden:
        """Hidden states [b, t, d] before the layer → after it."""
        return self._run(x, [_RESULT])[0].copy()

    def tapped(self, x: Hidden) -> tuple[Hidden, dict[str, Hidden]]:
        """The hidden states after the layer, and the inputs [b · t, columns] of the tapped modules, by fused name; all
        for the moment, since they keep the session's arena."""
        result, *inputs = self._run(x, [_RESULT, *(f"{_TAP}{tap}" for tap in self._taps)])
        flat = (array.reshape(-1, array.shape[-1]) for array in inputs)
        return result, dict(zip(self._taps, flat, strict=True))

    def cached(self, x: Hidden) -> tuple[Hidden, NDArray[Any], NDArray[Any]]:
        """The hidden states after the layer, and keys and values as in the KV cache, [b, kv_heads, t, head_dim]."""
        assert self._caches, "the layer has no attention"
        result, keys, values = self._run(x, [_RESULT, self._caches[0].present_key, self._caches[0].present_value])
        return result.copy(), keys, values

    def keys_and_values(self, x: Hidden) -> tuple[NDArray[Any], NDArray[Any]]:
        """Keys and values as in the KV cache, [b, kv_heads, t, head_dim]."""
        keys, values = self._run(x, [self._caches[0].present_key, self._caches[0].present_value])
        return keys, values

    def _run(self, x: Hidden, outputs: list[str]) -> list[NDArray[Any]]:
        batch, tokens, _ = x.shape
        feeds: dict[str, NDArray[Any]] = {
            "x": x,
            GraphContract().position_ids: np.tile(np.arange(tokens, dtype=np.int64), (batch, 1)),
            **{state.past: np.zeros((batch, *state.shape), np.float32) for state in self._states},
        }
        for cache in self._caches:
            past = np.zeros((batch, cache.kv_heads, tokens, cache.head_dim), self._kv.dtype)
            seqlens, total = self._kv.classes[cache.cache_class].length_inputs
            feeds |= {cache.past_key: past, cache.past_value: past}
            feeds |= {seqlens: np.full(batch, tokens - 1, np.int32), total: np.array(tokens, np.int32)}
        taken = {name: array for name, array in {**feeds, **self._fixed}.items() if name in self._inputs}
        return self._session.run(outputs, taken)


_SHAPE = ("batch", "tokens", "hidden")
_RESULT, _TAP = "result", "input of "


def _rows(table: LazyTensor, used: NDArray[np.int64]) -> Hidden:
    """The rows ``used`` of ``table``."""
    rows = np.empty((len(used), table.shape[1]), np.float32)
    for n, i in enumerate(used.tolist()):
        rows[n] = table.rows(i, i + 1)[0]
        table.release()  # each row mapped its neighbours too
    return rows


def _as_stored(rows: Hidden, stored: Stored, which: slice | NDArray[np.int64]) -> Hidden:
    """The rows ``which`` of a matrix, as its codes have them."""
    if isinstance(stored, Blocks):
        return stored.rows(which).values()
    return rows if stored == FLOATS else round_rows(rows, stored.bits, _block_size(stored, rows.shape[1])).values()


def _block_size(stored: Stored, columns: int) -> int:
    return stored.codes.shape[2] if isinstance(stored, Blocks) else block_size_for(columns, stored.block_size)


def _keep_outputs(model: ModelProto, names: set[str]) -> None:
    """Remove all outputs but those of ``names``, and what only the others need."""
    graph, needed, nodes = model.graph, set(names), list[NodeProto]()
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            inner = (each for attribute in node.attribute for each in attribute.g.node)
            needed.update(node.input, *(each.input for each in inner))
            nodes.append(node)
    outputs = [each for each in graph.output if each.name in names]
    inputs = [each for each in graph.input if each.name in needed]
    del graph.node[:], graph.output[:], graph.input[:]
    graph.node.extend(nodes[::-1])
    graph.output.extend(outputs)
    graph.input.extend(inputs)


def _with_constants(model: ModelProto, constants: Mapping[str, NDArray[np.generic]]) -> ModelProto:
    """``model``, the inputs of these names external initializers instead, whose values the session is given: in the
    graph itself they would be copied several times."""
    inputs = [each for each in model.graph.input if each.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    for name, array in constants.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, dims=array.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=name)
        model.graph.initializer.append(tensor)
    return model


class _Graph:
    """Session of the graph ``g`` with the output ``result``, fed with ``params``."""

    def __init__(self, g: GraphBuilder, result: Value, params: FedParameters) -> None:
        g.output(_RESULT, result, "float32", _SHAPE)
        self._session = open_session(g.model().SerializeToString(), keep_spinning=False)
        self._fixed = params.feeds()

    def __call__(self, feeds: Mapping[str, NDArray[Any]]) -> Hidden:
        return self._session.run([_RESULT], {**self._fixed, **feeds})[0]
