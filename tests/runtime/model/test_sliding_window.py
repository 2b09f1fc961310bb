"""SlidingWindow: where a cache may start, and how much it keeps."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.bundle.kv_format import KV_FORMATS, KVDtype
from edgegen.bundle.manifest import CacheClass, KVLayer, KVSpec
from edgegen.model.sliding_window import BEHIND, CHUNK, SlidingWindow, bytes_needed, window_step, windows_of

MIB = 1 << 20
windows = st.builds(SlidingWindow, size=st.integers(1, 5000), step=st.integers(1, 2000))


@given(window=windows, length=st.integers(0, 100_000))
def test_a_base_leaves_the_next_query_and_those_a_little_before_it_all_they_may_see(
    window: SlidingWindow, length: int
) -> None:
    base = window.base(length)
    assert base % window.step == 0
    assert base <= max(0, length - BEHIND - window.size + 1)
    assert length - base < BEHIND + window.size + window.step  # and not much more


@given(window=windows, tokens=st.integers(1, 3000), length=st.integers(0, 100_000))
def test_after_a_slide_there_is_room(window: SlidingWindow, tokens: int, length: int) -> None:
    assert length - window.base(length) + tokens <= window.room(tokens)


@given(window=windows, tokens=st.integers(1, 3000))
def test_a_slide_copies_little_for_each_token_it_makes_room_for(window: SlidingWindow, tokens: int) -> None:
    """Positions moved, over the tokens of the time until the next slide of a text that comes token by token."""
    length = window.room(tokens)
    moved, free = length - window.base(length), window.base(length)
    assert moved <= window.size + BEHIND + window.step
    assert free >= max(tokens, window.size // 4)


@pytest.mark.parametrize(
    ("dtype", "head_dim", "l2", "step"),
    [
        # l2 / (32 · head_dim), which are powers of two.
        ("float32", 256, MIB, 128),
        ("float32", 128, MIB, 256),
        ("float32", 64, MIB, 512),
        ("float32", 16, MIB, 2048),
        ("float32", 256, 2 * MIB, 256),
        ("int8", 64, MIB, 512),
        ("int8", 256, MIB // 4, 32),
        # Products of float32 matrices are cut at 128, or later where heads are narrow.
        ("float32", 256, MIB // 4, 128),
        ("float32", 64, MIB // 4, 256),
        ("float32", 256, 5 * MIB // 4, math.lcm(160, 128)),
        # No power of two: 341 = MiB // (32 · 96).
        ("int8", 96, MIB, 4 * 341),
        ("float32", 96, MIB, 128 * 341),
        # Unknown: as if it were 256 KiB.
        ("int8", 64, None, 128),
        ("float32", 64, None, 256),
    ],
)
def test_steps_are_whole_blocks_of_the_operator(dtype: KVDtype, head_dim: int, l2: int | None, step: int) -> None:
    assert window_step(KV_FORMATS[dtype], [head_dim], l2, kernels=False) == step
    assert window_step(KV_FORMATS[dtype], [head_dim], l2, kernels=True) == 256


def test_a_step_suits_all_heads_of_its_class() -> None:
    assert window_step(KV_FORMATS["int8"], [64, 96], MIB, kernels=False) == math.lcm(512, 4 * 341)


def test_each_class_with_a_window_has_its_own() -> None:
    layer = KVLayer("near", 1, 256, "pk", "pv", "rk", "rv")
    classes = {name: CacheClass(size, f"s.{name}", f"t.{name}") for name, size in {"near": 512, "all": None}.items()}
    kv = KVSpec("float32", "in_place", classes, (layer, replace(layer, cache_class="all", head_dim=64)))
    assert windows_of(kv, MIB, kernels=False) == {"near": SlidingWindow(512, 128)}


def test_memory_grows_with_the_text_until_the_windows_are_full() -> None:
    layer = KVLayer("near", 2, 256, "pk", "pv", "rk", "rv")
    classes = {name: CacheClass(size, f"s.{name}", f"t.{name}") for name, size in {"near": 512, "all": None}.items()}
    kv = KVSpec("int8", "in_place", classes, (layer, replace(layer, cache_class="all", kv_heads=1)))
    windows = {"near": SlidingWindow(512, 128)}
    full = 512 + BEHIND + 128 + CHUNK
    assert (kv.bytes_per_token, kv.lasting_bytes_per_token) == (3 * 512, 512)
    assert [kv.bytes_seen(tokens) for tokens in (0, 100, 512)] == [tokens * 3 * 512 for tokens in (0, 100, 512)]
    assert kv.bytes_seen(4000) == 512 * 2 * 512 + 4000 * 512
    assert [bytes_needed(kv, windows, tokens) for tokens in (1, 100, full, full + 1, 100_000)] == [
        3 * 512,
        100 * 3 * 512,
        full * 3 * 512,
        full * 3 * 512 + 512,
        full * 2 * 512 + 100_000 * 512,
    ]
