"""The parts of a decoder graph in the order of its tokens: embedding, layers, head.

Shapes: b rows (batch), t new tokens per row, d hidden size, e width of the embedding, v vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace

from edgegen.bundle.manifest import KVSpec
from edgegen_export.architecture.components.altup import AltUp
from edgegen_export.architecture.components.block_residual import BlockResidual
from edgegen_export.architecture.components.channel_mix import ChannelMix
from edgegen_export.architecture.components.experts import Experts
from edgegen_export.architecture.components.gated_memory import GatedMemory
from edgegen_export.architecture.components.latent_attention import LatentAttention
from edgegen_export.architecture.components.laurel import Laurel
from edgegen_export.architecture.components.layer_scale import LayerScale
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.components.per_layer import PerLayerEmbedding
from edgegen_export.architecture.components.relative_attention import RelativeAttention
from edgegen_export.architecture.components.shared_block import SharedUse
from edgegen_export.architecture.components.sublayer_convs import ATTENTION_CONV, MLP_CONV, SublayerConvs
from edgegen_export.architecture.components.time_mix import TimeMix
from edgegen_export.architecture.config import DecoderConfig, LearnedPositions
from edgegen_export.graph.altup import corrected, first_streams, merged, predicted
from edgegen_export.graph.attention import StepInputs, attention
from edgegen_export.graph.block_residual import Sublayers, final_sum, over_blocks
from edgegen_export.graph.builder import NONE, GraphBuilder, Value
from edgegen_export.graph.channel_mix import channel_mix
from edgegen_export.graph.experts import expert_mlp
from edgegen_export.graph.gated_memory import gated_memory
from edgegen_export.graph.kept_state import fixed_states, kv_layers, past_name
from edgegen_export.graph.latent_attention import latent_attention
from edgegen_export.graph.laurel import with_laurel
from edgegen_export.graph.matrices import linear, rows
from edgegen_export.graph.mixer import mixer
from edgegen_export.graph.mlp import mlp
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.pass_start import started
from edgegen_export.graph.per_layer import of_part
from edgegen_export.graph.relative_attention import relative_attention
from edgegen_export.graph.repeated import of_layer
from edgegen_export.graph.short_conv import convolved
from edgegen_export.graph.softcap import softcap
from edgegen_export.graph.stream import Stream, added, norm, normalized
from edgegen_export.graph.time_mix import time_mix


def embedding(g: GraphBuilder, params: Parameters, config: DecoderConfig, ids: Value, positions: Value) -> Stream:
    """Token embedding, projected and normalized where the model does so, plus learned positions; both int64 [b, t].
    Where there are several residual streams, all of them."""
    x = rows(g, params.matrix("embed"), ids)
    if config.embedding_size not in (None, config.hidden_size):
        x = linear(g, params.matrix("embed_in"), x)
    if config.embedding_norm:
        x = normalized(g, params, config.norm, x, "embed_norm")
    if isinstance(config.positions, LearnedPositions):
        return Stream(x, rows(g, params.matrix("positions"), positions))
    if altup := config.extra(AltUp):
        with g.scope("altup"):
            x, *others = first_streams(g, params, config, altup, x)
        return Stream(x, others=tuple(others))
    return Stream(x)


def decoder_block(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    layer: int,
    stream: Stream,
    kv: KVSpec,
    step: StepInputs,
) -> Stream:
    """A decoder layer: :func:`_block`, between prediction and correction where there are several residual streams; and
    before it what a further pass over layers starts from."""
    altup, per_layer = config.layers[layer].extra(AltUp), config.layers[layer].extra(PerLayerEmbedding)
    params = of_layer(params, config, layer)
    if start := config.layers[layer].extra(PassStart):
        with g.scope(f"layers.{layer}"), g.scope("start"):
            stream = started(g, params, config, start, stream)
    if altup is None:
        made = _block(g, params, config, layer, stream, kv, step)
        return made if made.others else replace(made, others=stream.others)
    with g.scope(f"layers.{layer}"), g.scope("altup"):
        streams = predicted(g, params, config, altup, layer, (added(g, stream), *stream.others))
    made = added(g, _block(g, params, config, layer, Stream(streams[altup.active]), kv, step))
    with g.scope(f"layers.{layer}"), g.scope("altup"):
        first, *others = streams = corrected(g, params, config, altup, layer, streams, made)
        if per_layer:
            x = streams[altup.active]
            x = g.op.Mul(x, g.weight(params.vector(f"layers.{layer}.altup.scale.weight"))) if altup.scaled else x
            own = of_part(g, params, config, per_layer, layer, x, step.per_layer[layer])
            others = [g.op.Add(each, own) for each in others]
    return Stream(first, others=tuple(others))


def _block(
    g: GraphBuilder,
    params: Parameters,
    config: DecoderConfig,
    layer: int,
    stream: Stream,
    kv: KVSpec,
    step: StepInputs,
) -> Stream:
    """A decoder layer of one residual stream, by kind of block:

    - ``sequential``: ``x += attn(norm(x)); x += mlp(norm(x))``, both convolved over the last tokens in some models
    - ``sandwich``: ``x += norm(attn(norm(x))); x += norm(mlp(norm(x)))``, then what the layer makes of an embedding of
      its own, then ``x *= scale``, where there are such; with a learned residual behind attention
    - ``post_norm``: ``x += norm(attn(x)); x += norm(mlp(x))``
    - ``norm_after_sum``: ``x = norm(x + attn(x)); x = norm(x + mlp(x))``
    - ``normed_residual``: ``x = norm(x); x += attn(x); x = norm(x); x += mlp(x)``
    - ``interpolated``: ``x = norm(x); x += rate · (norm(attn(x)) - x); x = norm(x); x += rate · (norm(mlp(x)) - x)``
    - ``parallel``: ``y = norm(x); x += attn(y) + mlp(y)``
    - ``parallel_two_norms``: ``x += attn(norm(x)) + mlp(norm(x))``
    - ``single``: ``x += attn(norm(x))``, or ``x += mlp(norm(x))``
    - ``over_blocks``, ``over_blocks_apart``: sums within blocks of layers, over all of which sublayers attend
      (:class:`BlockResidual`); queries, keys and values have one norm, or one each
    - ``shared_before_mixer``: ``x += mixer(norm(x))``; with attention, which takes x and the embedding e, ``x +=
      mixer(norm(x + linear(mlp(norm(attn(norm(concat(x, e))))))))``

    Where the layer has a mixer instead of attention, ``attn`` is that; where it has both, their sum.
    """
    name, own = f"layers.{layer}", config.layers[layer]

    def mix(x: Value) -> Stream:
        assert own.mixer, "a layer that mixes has a mixer"
        with g.scope(own.mixer.name):
            if isinstance(own.mixer, GatedMemory):
                return gated_memory(g, params, own.mixer, layer, x, *stream.others)
            states = fixed_states(kv, layer, own.mixer, config.hidden_size)
            if isinstance(own.mixer, TimeMix):
                return time_mix(g, params, own.mixer, layer, x, states, *(stream.others or (NONE,)))
            return mixer(g, params, own.mixer, layer, x, states)

    def attend(x: Value, *others: Value, alone: bool = False) -> Stream:
        """``others``: what keys and values are projected of, where that is not x."""
        made: list[Stream] = [] if alone or own.mixer is None else [mix(x)]
        if own.attention:
            caches, attending = kv_layers(kv, layer), own.attention
            with g.scope("attn"):
                if isinstance(attending, RelativeAttention):
                    states, inputs = fixed_states(kv, layer, attending, config.hidden_size), (x, *others)
                    read = relative_attention(g, params, config, layer, inputs, caches[0], states, step)
                    made.append(read)
                elif isinstance(attending, LatentAttention):
                    made.append(latent_attention(g, params, attending, layer, x, caches[0], step))
                else:
                    made.append(attention(g, params, config, layer, x, caches, step))
        return made[0] if len(made) == 1 else _both(g, NONE, *made)

    def think(x: Value, residual: Value) -> Stream:
        with g.scope("mlp"):
            if isinstance(own.mlp, Experts):
                return expert_mlp(g, params, config, own.mlp, layer, x, residual)
            assert own.mlp, "a layer that thinks has an MLP"
            if isinstance(own.mlp, ChannelMix):
                states = fixed_states(kv, layer, own.mlp, config.hidden_size)
                return channel_mix(g, params, own.mlp, layer, x, states)
            return mlp(g, params, own.mlp, layer, x, use=own.extra(SharedUse))

    def over_tokens(part: Stream, conv: str) -> Stream:
        """What a sublayer gives, convolved where the layer does that."""
        convs = own.extra(SublayerConvs)
        if convs is None:
            return part
        with g.scope(conv):
            found = fixed_states(kv, layer, convs, config.hidden_size)
            (state,) = (each for each in found if each.past == past_name(conv, layer))
            return Stream(NONE, convolved(g, params, f"{name}.{conv}", _made(g, part), state))

    with g.scope(name):
        match config.block_of(layer):
            case "sequential":
                x, residual = norm(g, params, config, stream, f"{name}.attn_norm")
                mixed = over_tokens(attend(x), ATTENTION_CONV)
                x, residual = norm(g, params, config, replace(mixed, residual=residual), f"{name}.mlp_norm")
                made = over_tokens(think(x, residual), MLP_CONV)
                return replace(made, residual=residual, others=mixed.others)
            case "sandwich":
                x, residual = norm(g, params, config, stream, f"{name}.attn_norm")
                post = _post_norm(g, params, config, attend(x), f"{name}.attn_post_norm")
                both = Stream(residual, post)
                if own.extra(Laurel):
                    with g.scope("laurel"):
                        both = Stream(with_laurel(g, params, config, layer, x, residual, post))
                x, residual = norm(g, params, config, both, f"{name}.mlp_norm")
                stream = Stream(residual, _post_norm(g, params, config, think(x, residual), f"{name}.mlp_post_norm"))
                if (per_layer := own.extra(PerLayerEmbedding)) and not own.extra(AltUp):
                    with g.scope("per_layer"):
                        x = added(g, stream)
                        part = of_part(g, params, config, per_layer, layer, x, step.per_layer[layer])
                        stream = Stream(g.op.Add(x, part))
                if own.extra(LayerScale):
                    return Stream(g.op.Mul(added(g, stream), g.weight(params.vector(f"{name}.scale"))))
                return stream
            case "post_norm":
                x = added(g, stream)
                x = added(g, Stream(x, _post_norm(g, params, config, attend(x), f"{name}.attn_post_norm")))
                return Stream(x, _post_norm(g, params, config, think(x, x), f"{name}.mlp_post_norm"))
            case "norm_after_sum":
                x = added(g, stream)
                x, _ = norm(g, params, config, replace(attend(x), residual=x), f"{name}.attn_norm")
                x, _ = norm(g, params, config, replace(think(x, x), residual=x), f"{name}.mlp_norm")
                return Stream(x)
            case "normed_residual":
                x, _ = norm(g, params, config, stream, f"{name}.attn_norm")
                x, _ = norm(g, params, config, replace(attend(x), residual=x), f"{name}.mlp_norm")
                return replace(think(x, x), residual=x)
            case "interpolated":
                x, _ = norm(g, params, config, stream, f"{name}.attn_norm")
                made = _post_norm(g, params, config, attend(x), f"{name}.attn_post_norm")
                both = Stream(x, _towards(g, params, x, made, f"{name}.attn_rate"))
                x, _ = norm(g, params, config, both, f"{name}.mlp_norm")
                made = _post_norm(g, params, config, think(x, x), f"{name}.mlp_post_norm")
                return Stream(x, _towards(g, params, x, made, f"{name}.mlp_rate"))
            case "parallel":
                x, residual = norm(g, params, config, stream, f"{name}.attn_norm")
                return _both(g, residual, attend(x), think(x, residual))
            case "parallel_two_norms":
                x, residual = norm(g, params, config, stream, f"{name}.attn_norm")
                y = normalized(g, params, config.norm, residual, f"{name}.mlp_norm")
                return _both(g, residual, attend(x), think(y, residual))
            case "single":
                x, residual = norm(g, params, config, stream, f"{name}.norm")
                return replace(think(x, residual) if own.mlp else attend(x), residual=residual)
            case "shared_before_mixer":
                x = residual = added(g, stream)
                if own.attention:
                    both = g.op.Concat(x, *stream.others, axis=2)
                    both = normalized(g, params, config.norm, both, f"{name}.attn_norm")
                    read = _post_norm(g, params, config, attend(both, alone=True), f"{name}.mlp_norm")
                    x = g.op.Add(x, linear(g, params.matrix(f"{name}.linear"), _made(g, think(read, x))))
                return replace(mix(normalized(g, params, config.norm, x, f"{name}.norm")), residual=residual)
            case "over_blocks" | "over_blocks_apart":

                def attended(inputs: Sequence[Value]) -> Value:
                    return _made(g, over_tokens(attend(*inputs), ATTENTION_CONV))

                def thought(x: Value) -> Value:
                    return _made(g, over_tokens(think(x, x), MLP_CONV))

                return over_blocks(g, params, config, layer, stream, Sublayers(attended, thought))


def _post_norm(g: GraphBuilder, params: Parameters, config: DecoderConfig, part: Stream, module: str) -> Value:
    """The normalized output of a sublayer."""
    return normalized(g, params, config.norm, _made(g, part), module)


def _made(g: GraphBuilder, part: Stream) -> Value:
    """The output of a sublayer, with its bias."""
    return g.op.Add(part.delta, g.weight(part.bias)) if part.bias else part.delta


def _towards(g: GraphBuilder, params: Parameters, x: Value, made: Value, rate: str) -> Value:
    """What brings x nearer to what a sublayer made."""
    return g.op.Mul(g.op.Sub(made, x), g.weight(params.vector(rate)))


def _both(g: GraphBuilder, residual: Value, first: Stream, second: Stream) -> Stream:
    """The stream with the outputs of both sublayers."""
    delta = g.op.Add(first.delta, second.delta)
    if first.bias:
        delta = g.op.Add(delta, g.weight(first.bias))
    return Stream(residual, delta, second.bias)


def final_hidden(g: GraphBuilder, params: Parameters, config: DecoderConfig, stream: Stream) -> Value:
    """The stream after the last layer, or all of them together, normalized: [b, t, d]."""
    if altup := config.extra(AltUp):
        with g.scope("altup"):
            stream = Stream(merged(g, params, config, altup, (added(g, stream), *stream.others)))
    if blocks := config.layers[-1].extra(BlockResidual):
        with g.scope("taken"):
            stream = Stream(final_sum(g, params, config, blocks, stream))
    return norm(g, params, config, stream, "final_norm")[0] if config.final_norm else added(g, stream)


def projected(g: GraphBuilder, params: Parameters, config: DecoderConfig, hidden: Value) -> Value:
    """hidden [b, t, d] in the embedding's width, [b, t, e]."""
    if config.embedding_size in (None, config.hidden_size):
        return hidden
    return linear(g, params.matrix("head_in"), hidden)


def head(g: GraphBuilder, params: Parameters, config: DecoderConfig, hidden: Value) -> Value:
    """The logits [b, t, v] of hidden [b, t, e]."""
    logits = linear(g, params.matrix("embed" if config.tied_head else "head"), hidden, params.bias("head"))
    return softcap(g, config.logit_softcap, logits) if config.logit_softcap else logits
