"""KV caches for tests: small specs, and what a graph's run does to a cache, a number per position."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import CacheClass, KVLayer, KVSpec
from edgegen.model.concat_cache import ConcatCache
from edgegen.model.kv_cache import KVCache
from edgegen.model.ort_session import Buffer
from edgegen.model.sliding_window import CHUNK, SlidingWindow


def spec_of(*shapes: tuple[int, int]) -> KVSpec:
    """A cache of layers with these (kv_heads, head_dim)."""
    names = [tuple(f"{name}.{i}" for name in ("pk", "pv", "rk", "rv")) for i in range(len(shapes))]
    layers = tuple(KVLayer("full", heads, dim, *four) for (heads, dim), four in zip(shapes, names, strict=True))
    return KVSpec("float32", "in_place", {"full": CacheClass(None, "seqlens", "total")}, layers)


SHAPES = [(2, 3), (1, 4)]
"""(kv_heads, head_dim) of the layers."""

SPEC = spec_of(*SHAPES)
POSITION_BYTES = SPEC.bytes_per_token


def arrays(cache: KVCache) -> list[NDArray[Any]]:
    """Keys and values of every layer, all slots."""
    return [buffer.array for buffer in cache.buffers(0, cache.slots)]


def append(cache: KVCache, slot: int, values: list[float]) -> None:
    """Write positions as a graph would: in place, after the slot's length, a value per position."""
    start = int(cache.lengths[slot])
    for i, array in enumerate(arrays(cache)):
        for at, value in enumerate(values, start):
            array[slot, :, at] = value + i
    cache.lengths[slot] += len(values)


def read(cache: KVCache, slot: int) -> list[float]:
    """The values of a slot, after a look at whether all layers, heads and dimensions agree."""
    length = int(cache.lengths[slot])
    for i, array in enumerate(arrays(cache)):
        valid = array[slot, :, :length]
        assert (valid == (arrays(cache)[0][slot, :1, :length, :1] + i)).all()
    return arrays(cache)[0][slot, 0, :length, 0].tolist()


# Windows.

WINDOW = SlidingWindow(size=20, step=8)
ROOM = WINDOW.room(CHUNK)
NEAR_BYTES, FAR_BYTES = 2 * 2 * 3 * 4, 2 * 1 * 4 * 4


def windowed_cache(context: int = 100_000) -> KVCache:
    """A layer with a window, and one without."""
    near, far = SPEC.layers
    classes = {"near": CacheClass(WINDOW.size, "s.near", "t.near"), "far": CacheClass(None, "s.far", "t.far")}
    layers = (replace(near, cache_class="near"), replace(far, cache_class="far"))
    return KVCache(replace(SPEC, classes=classes, layers=layers), context, windows={"near": WINDOW})


def put(cache: KVCache, slot: int, values: list[float]) -> None:
    """As a run does: room is made, and every layer appends where the slot ends."""
    cache.make_room(slot, 1, len(values))
    near_key, near_value, far_key, far_value = arrays(cache)
    for at, value in enumerate(values, int(cache.lengths[slot])):
        for name, pair in (("near", (near_key, near_value)), ("far", (far_key, far_value))):
            place = at - int(cache.bases[name][slot])
            pair[0][slot, :, place] = value
            pair[1][slot, :, place] = value + 1
    cache.lengths[slot] += len(values)


def kept(cache: KVCache, name: str, slot: int) -> list[float]:
    """Return the values that a class keeps of a slot, after a check that its arrays agree."""
    key, value = arrays(cache)[:2] if name == "near" else arrays(cache)[2:]
    held = int(cache.lengths[slot] - cache.bases[name][slot])
    assert (key[slot, :, :held] + 1 == value[slot, :, :held]).all()
    assert (key[slot, :, :held] == key[slot, :1, :held, :1]).all()
    return key[slot, 0, :held, 0].tolist()


# Caches of graphs that return the whole past.

NAMES = ("past_key", "past_value", "present_key", "present_value")
CONCAT_SPEC = KVSpec(
    "float32",
    "concat",
    {"full": CacheClass(None, None, None)},
    tuple(KVLayer("full", heads, dim, *NAMES) for heads, dim in SHAPES),
)


def returned(values: list[float]) -> list[Buffer]:
    """Return a graph's outputs: keys and values whose every element at a position is that position's value."""
    column = np.array(values, np.float32)[None, None, :, None]
    shapes = [(1, heads, len(values), dim) for heads, dim in SHAPES for _ in "kv"]
    return [Buffer(np.ascontiguousarray(np.broadcast_to(column, shape)) + i) for i, shape in enumerate(shapes)]


def read_concat(cache: ConcatCache, slot: int) -> list[float]:
    past = cache.past(slot)
    for i, (buffer, expected) in enumerate(zip(past, returned(past[0].array[0, 0, :, 0].tolist()), strict=True)):
        assert np.array_equal(buffer.array, expected.array), i
        assert buffer.ortvalue.shape() == list(buffer.array.shape)
    return past[0].array[0, 0, :, 0].tolist()
