"""kv_statistics(): what calibration on text gives quantized KV caches, one number per layer, head and channel.

**Scales** of an int8 KV cache are static.

A scale is fixed at export, and values beyond 127 steps are clipped, which costs far more than coarser steps. So each
scale leaves room above the largest value in the text. Keys depend on their positions, of which a text has only the
first. The rotation of a key is known, so its largest value is taken over all positions of the context; where positions
are learned, the windows of the text are spread over all of them.

The hidden states of one text may all lie on one side, and those of another text elsewhere. So values have room for
those of other texts too, which have random ids.

**Means** of keys, which an int4 KV cache subtracts, are means over the whole context too: channels that turn fast have
none, and those that turn slowly have what is right for most positions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.kv_format import KV_FORMATS
from edgegen.bundle.manifest import KVLayer, KVSpec
from edgegen.errors import BundleError, first_line
from edgegen.model.ort_session import require_version
from edgegen_export.architecture.config import Attention, DecoderConfig
from edgegen_export.calibration.key_means import worth_subtracting
from edgegen_export.calibration.key_rotation import rotated_mean, rotated_reach, turned
from edgegen_export.graph.attention import kv_scale_names
from edgegen_export.graph.kept_state import kv_layers
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.tensors.lazy import LazyTensor

MARGIN = 1.25
"""Room above the largest value of the calibration text."""
ROTATED_MARGIN = 1.1
"""The same for rotated keys, whose largest value at any position is known."""

SPREAD = 3.8
"""Room for values of other texts, in standard deviations: with less they are clipped, with more steps are coarser."""

_LARGEST = 127
_ROWS = 2
"""Windows of the text in one batch."""
_OTHERS = (128, 4)
"""Other texts, of random ids, and their lengths: states of one text have much in common, so many short ones."""

Array = NDArray[np.float32]
Ids = NDArray[np.int64]
Entered = Mapping[int, Sequence[Array]]
"""The states before each layer, [b, t, columns]: of some windows of the text each, and then of :func:`other_texts`."""


@dataclass(frozen=True, slots=True, eq=False)
class KVStatistics:
    """Of a float32 KV cache.

    Attributes:
        scales: float32 [1, kv_heads, 1, head_dim] of each layer's keys and values, by :func:`kv_scale_names`.
        key_means: float32 [kv_heads, head_dim], by the graph's input of past keys; of no layer where some attention
            would see the difference.
    """

    scales: dict[str, LazyTensor] = field(default_factory=dict[str, LazyTensor])
    key_means: dict[str, Array] = field(default_factory=dict[str, Array])


@np.errstate(all="ignore")  # not finite: reported by the parity check
def kv_statistics(
    tensors: Mapping[str, LazyTensor],
    config: DecoderConfig,
    kv: KVSpec,
    ids: Ids,
    *,
    in_int8: bool = False,
    entered: Entered | None = None,
) -> KVStatistics:
    """Scales and means of each layer's keys and values.

    ``tensors``, ``config``, ``kv``: the model and its cache in float32; ``ids`` [windows, t]: the text; ``in_int8``:
    whether matrices are rounded to 8 bits while it runs; ``entered``: the states before each layer, where they are
    known: then of a layer nothing runs but what makes keys and values.

    Raises:
        BundleError: the installed ONNX Runtime cannot run this model's attention over such a cache.
    """
    found = KVStatistics()
    if not config.cached_layers:
        return found
    require_version(KV_FORMATS["int8"].minimum_onnxruntime, "an int8 cache")
    reference = LayerwiseModel(tensors, config, kv)
    length, known = ids.shape[1], entered is not None
    texts, firsts = _texts(ids, config)
    states, tried = [] if known else [*reference.embedded(texts, firsts)], set[str]()
    for layer in range(config.num_layers):
        if layer not in config.cached_layers:
            if not known:
                with reference.layer(layer, length, in_int8=in_int8) as run:
                    states = [run(x) for x in states]
            continue
        states = states if entered is None else [*entered[layer]]
        cache, before = kv_layers(kv, layer)[0], states[0][:1, :2]
        made = _keys_and_values(reference, layer, states, in_int8=in_int8, cache_only=known)
        of_layer = _OfLayer(cache, config.attentions[layer], _factors_after_rotation(config, tensors, layer))
        for n, (keys, values) in enumerate(made, 1):
            if n < len(states):
                of_layer.add(keys, values, firsts[:-1], config.max_positions)
            else:
                of_layer.most[1] = np.maximum(of_layer.most[1], _reached(values))
            del keys, values  # or the next windows' come on top
        for name, greatest in zip(kv_scale_names(layer), of_layer.most, strict=True):
            found.scales[name] = LazyTensor.from_array(_scales(greatest))
        if (mean := of_layer.mean_worth_subtracting()).any():
            found.key_means[cache.past_key] = mean
        if cache.cache_class not in tried:
            _try(LayerwiseModel({**tensors, **found.scales}, config, replace(kv, dtype="int8")), layer, before)
            tried.add(cache.cache_class)
    if any(own.sees_shifts for own in config.attentions.values()):
        found.key_means.clear()
    for one in kv.shared:  # whose inputs are the same keys, by other names
        source = kv_layers(kv, one.source)[0].past_key
        found.key_means.update({one.past_key: found.key_means[source]} if source in found.key_means else {})
    return found


class _OfLayer:
    """Statistics of the keys and values of a layer.

    ``most`` [kv_heads, head_dim]: how far keys reach, and values.
    """

    def __init__(self, cache: KVLayer, attention: Attention, later: Array) -> None:
        """``later`` [head_dim]: the factors of keys after their rotation."""
        self.most = [np.zeros((cache.kv_heads, cache.head_dim), np.float32) for _ in "kv"]
        self._rope, self._size, self._later = attention.rope, attention.size, later
        self._means, self._keys = list[Array](), list[Array]()

    def add(self, keys: Array, values: Array, firsts: Sequence[Ids], positions: int) -> None:
        """Add keys and values [b, kv_heads, t, head_dim] of the next windows of the text. ``firsts``: the positions of
        the first ids of all its windows; ``positions``: those that keys are turned to."""
        reached, rope, size, later = (
            (MARGIN * _largest(keys), MARGIN * _largest(values)),
            self._rope,
            self._size,
            self._later,
        )
        mean = keys.mean(axis=(0, 2), dtype=np.float64).astype(np.float32)
        if rope:
            apart, done = _apart(keys, size), sum(map(len, self._keys))
            turning = np.divide(apart[..., : rope.dim], later[: rope.dim], dtype=np.float32)
            rotated = rotated_reach(turning, rope, positions) * np.abs(later[: rope.dim])
            reached[0].reshape(-1, size)[:, : rope.dim] = ROTATED_MARGIN * rotated
            mean.reshape(-1, size)[:, : rope.dim] = rotated_mean(turning, rope, positions) * later[: rope.dim]
            turn = rope.inverse_frequencies(positions).astype(np.float64)
            there = np.concatenate(firsts)[done : done + len(keys), None, None, None] * turn
            apart[..., : rope.dim] = turned(turning, there, rope) * later[: rope.dim]
            keys = _together(apart, keys.shape)
        self._means.append(mean)
        self._keys.append(keys)
        self.most = [np.maximum(*pair) for pair in zip(self.most, reached, strict=True)]

    def mean_worth_subtracting(self) -> Array:
        """Mean of keys [kv_heads, head_dim], 0 for heads where it is not worth it."""
        mean = np.average(self._means, axis=0, weights=[len(keys) for keys in self._keys]).astype(np.float32)
        return worth_subtracting(mean, np.concatenate(self._keys))


def _keys_and_values(
    reference: LayerwiseModel, layer: int, states: list[Array], *, in_int8: bool, cache_only: bool
) -> Iterator[tuple[Array, Array]]:
    """Yield keys and values of each of ``states``, which become those after the layer unless ``cache_only``."""
    tokens = states[0].shape[1]
    with reference.layer(layer, tokens, in_int8=in_int8 and not cache_only, cache_only=cache_only) as run:
        for n, x in enumerate(states):
            if cache_only:
                keys, values = run.keys_and_values(x)
            else:
                states[n], keys, values = run.cached(x)
            yield keys, values
            del keys, values


def _apart(keys: Array, size: int) -> Array:
    """[b, kv_heads, t, head_dim] → [b, keys, t, size], where a head has several keys."""
    batch, heads, tokens, _ = keys.shape
    return np.moveaxis(keys.reshape(batch, heads, tokens, -1, size), 3, 2).reshape(batch, -1, tokens, size)


def _factors_after_rotation(config: DecoderConfig, tensors: Mapping[str, LazyTensor], layer: int) -> Array:
    """Return the factor of each channel of a rotated key, [head_dim]."""
    own = config.attentions[layer]
    factors = np.ones(own.head_dim, np.float32)
    for name in own.key_factors:
        factors = factors * tensors[f"{config.stored(layer)}{name}"].read()
    return np.where(factors == 0, np.float32(1), factors)


def _largest(x: Array) -> Array:
    """[b, kv_heads, t, head_dim] → [kv_heads, head_dim]."""
    largest: Array = np.maximum(x.max(axis=(0, 2)), -x.min(axis=(0, 2)))
    return largest


def _reached(values: Array) -> Array:
    """[b, kv_heads, t, head_dim] → how far such values reach, but for one in thousands, [kv_heads, head_dim]."""
    reach: Array = np.abs(values.mean(axis=(0, 2))) + np.float32(SPREAD) * values.std(axis=(0, 2))
    return np.where(np.isfinite(reach), reach, np.float32(0))  # rows of ids that no text has may be anything


def _scales(most: Array) -> Array:
    """[1, kv_heads, 1, head_dim] from the largest magnitudes; 1 where they are zero or not finite."""
    scales = (most / _LARGEST).astype(np.float32)[None, :, None]
    usable = np.isfinite(scales) & (scales >= np.finfo(np.float32).tiny)
    return np.where(usable, scales, np.float32(1))


def other_texts(vocab_size: int, length: int) -> Ids:
    """Random ids [texts, t], of texts of at most ``length`` ids, for which values have room too."""
    texts, few = _OTHERS
    return np.random.default_rng(0).integers(0, vocab_size, (texts, min(few, length)))


def _texts(ids: Ids, config: DecoderConfig) -> tuple[list[Ids], list[Ids]]:
    """The windows ``ids`` in batches, then other texts in one; and the position of each one's first id."""
    windows, length = ids.shape
    first: Ids = np.linspace(0, config.max_positions - length, windows, dtype=np.int64)
    batches, others = [slice(k, k + _ROWS) for k in range(0, windows, _ROWS)], other_texts(config.vocab_size, length)
    anywhere = np.random.default_rng(1).integers(0, config.max_positions - others.shape[1] + 1, len(others))
    return [*(ids[batch] for batch in batches), others], [*(first[batch] for batch in batches), anywhere]


def _together(apart: Array, shape: tuple[int, ...]) -> Array:
    """As :func:`_apart` was given it."""
    batch, heads, tokens, _ = shape
    return np.moveaxis(apart.reshape(batch, heads, -1, tokens, apart.shape[-1]), 2, 3).reshape(shape)


def _try(model: LayerwiseModel, layer: int, x: Array) -> None:
    try:
        with model.layer(layer, x.shape[1]) as run:
            run(x)
    except Exception as error:  # ONNX Runtime raises many classes of its own, with no common base
        raise BundleError(f"ONNX Runtime cannot run its attention over an int8 cache: {first_line(error)}") from error
