"""Attention over a KV cache: against NumPy and the stock operator, in other pieces, and with inputs that lie."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.kernels import nibbles
from tests.kernels.material import Array, instruction_sets, same_bits, session_of
from tests.kernels.stock import needs_kernels

pytestmark = needs_kernels

INPUTS = (
    *("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"),
    *("cosines", "sines", "position_ids", "bias", "sink", "key_scales", "value_scales"),
)
INITIALIZERS = ("scales", "means")
OUTPUTS = ("y", "present_key", "present_value")
TYPES = {
    "float32": TensorProto.FLOAT,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}
Cache = Literal["float32", "int8", "int4"]
OPERATORS = {
    "float32": ("CachedAttention", TensorProto.FLOAT),
    "int8": ("CachedAttentionInt8", TensorProto.INT8),
    "int4": ("CachedAttentionInt4", TensorProto.UINT8),
}


@dataclass(frozen=True)
class Case:
    """Sizes of a graph, and how long its rows are before ``tokens`` more."""

    heads: int = 4
    kv_heads: int = 2
    size: int = 32
    past: tuple[int, ...] = (0,)
    tokens: int = 5
    spare: int = 3
    packed: bool = False
    pairs: int = 0
    interleaved: bool = False
    window: int = -1
    cap: float = 0.0
    bias: bool = False
    sink: bool = False
    means: bool = False
    cache: Cache = "float32"

    @property
    def capacity(self) -> int:
        return max(self.past) + self.tokens + self.spare

    def feeds(self) -> dict[str, Array]:
        """Random inputs; the past has numbers after its rows' ends as well, which no kernel may read."""
        rng = np.random.default_rng(0)
        b, t, s = len(self.past), self.tokens, self.size
        made: dict[str, Array] = {
            name: rng.normal(size=(b, t, heads * s)).astype(np.float32)
            for name, heads in {"query": self.heads, "key": self.kv_heads, "value": self.kv_heads}.items()
        }
        if self.packed:
            made = {"query": np.concatenate(list(made.values()), -1)}
        for name in ("past_key", "past_value"):
            past = rng.normal(size=(b, self.kv_heads, self.capacity, s)).astype(np.float32)
            if self.cache == "int8":
                made[name] = (past * 40).clip(-128, 127).astype(np.int8)
            else:
                made[name] = nibbles.packed(nibbles.mixed(past)) if self.cache == "int4" else past
        made["seqlens_k"] = np.array([past + t - 1 for past in self.past], np.int32)
        made["total_sequence_length"] = np.array(max(self.past) + t, np.int32)
        if self.pairs:
            angles = np.arange(self.capacity)[:, None] * 0.5 ** np.arange(self.pairs)
            made |= {"cosines": np.cos(angles).astype(np.float32), "sines": np.sin(angles).astype(np.float32)}
            made["position_ids"] = np.array([np.arange(past, past + t) for past in self.past], np.int64)
        if self.bias:
            slopes = 2.0 ** -np.arange(1, self.heads + 1)
            made["bias"] = np.tile(slopes[None, :, None, None] * np.arange(max(self.past) + t), (1, 1, t, 1)).astype(
                np.float32
            )
        if self.sink:
            made["sink"] = rng.normal(size=self.heads).astype(np.float32)
        if self.means:
            made["key_means"] = 3 * rng.normal(size=(self.kv_heads, s)).astype(np.float32)
        if self.cache == "int8":
            for name in ("key_scales", "value_scales"):
                made[name] = rng.uniform(0.01, 0.04, self.kv_heads * s).astype(np.float32)
        return made


def session(
    case: Case, feeds: dict[str, Array], *, stock: bool = False, isa: str | None = None, threads: int = 1
) -> Any:
    known: dict[str, Any] = {
        "num_heads": case.heads,
        "kv_num_heads": case.kv_heads,
        "scale": case.size**-0.5,
        "local_window_size": case.window,
        "softcap": case.cap,
        "do_rotary": int(case.pairs > 0),
        "rotary_interleaved": int(case.interleaved),
    }
    if stock and case.cache == "int8":
        known |= {"kv_cache_bit_width": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
    operator, cached = OPERATORS[case.cache]
    operator = "GroupQueryAttention" if stock else operator
    domain = "com.microsoft" if stock else "edgegen"
    names = ["key_means" if name == "key_scales" and case.means else name for name in INPUTS]
    names = [name if name in feeds else "" for name in names]
    node = cast(Any, helper).make_node(operator, names, OUTPUTS, domain=domain, **known)
    scales = [name for name in feeds if name.endswith(INITIALIZERS)]
    tensors = [
        helper.make_tensor(n, TYPES[feeds[n].dtype.name], feeds[n].shape, feeds[n].tobytes(), raw=True) for n in scales
    ]
    ins = [helper.make_tensor_value_info(n, TYPES[feeds[n].dtype.name], None) for n in feeds if n not in scales]
    outs = [helper.make_tensor_value_info(n, cached if n != "y" else TensorProto.FLOAT, None) for n in OUTPUTS]
    graph = helper.make_graph([node], "attention", ins, outs, tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return session_of(model.SerializeToString(), isa=isa, threads=threads)


def asked(feeds: dict[str, Array]) -> dict[str, Array]:
    return {name: array for name, array in feeds.items() if not name.endswith(INITIALIZERS)}


def run(case: Case, *, stock: bool = False, isa: str | None = None, threads: int = 1) -> list[Array]:
    feeds = case.feeds()
    return session(case, feeds, stock=stock, isa=isa, threads=threads).run(None, asked(feeds))


def split(case: Case, feeds: dict[str, Array]) -> list[Array]:
    """Queries, keys and values as float64 [b, t, heads, size]."""
    parts = [feeds["query"], feeds.get("key"), feeds.get("value")]
    if case.packed:
        parts = np.split(feeds["query"], np.cumsum([case.heads, case.kv_heads]) * case.size, -1)
    return [cast(Array, p).reshape(len(case.past), case.tokens, -1, case.size).astype(np.float64) for p in parts]


def rotated(case: Case, x: Array, feeds: dict[str, Array]) -> Array:
    if not case.pairs:
        return x
    c, s = (feeds[name][feeds["position_ids"]][:, :, None].astype(np.float64) for name in ("cosines", "sines"))
    first = slice(0, 2 * case.pairs, 2) if case.interleaved else slice(0, case.pairs)
    second = slice(1, 2 * case.pairs, 2) if case.interleaved else slice(case.pairs, 2 * case.pairs)
    y = x.copy()
    y[..., first], y[..., second] = x[..., first] * c - x[..., second] * s, x[..., second] * c + x[..., first] * s
    return y


def check_nibbles(found: Array, wanted: Array, size: int) -> None:
    for level, expected in zip(nibbles.levels_of(found), nibbles.levels_of(wanted), strict=True):
        np.testing.assert_allclose(level, expected, rtol=2**-7)
    off = np.abs(nibbles.codes_of(found, size) - nibbles.codes_of(wanted, size))
    assert off.max() <= 1
    assert np.mean(off) < 0.01


def check(case: Case, found: list[Array]) -> None:
    """``found`` is what the definition says, in float64; codes may be one off where a number is halfway, and with
    codes of 4 bits their levels where a float is. What is subtracted from all keys is added to all of them again: it
    makes no difference but in the cache."""
    feeds = case.feeds()
    queries, keys, values = split(case, feeds)
    queries, keys = rotated(case, queries, feeds), rotated(case, keys, feeds)
    caches = list[Array]()
    for name, new, present in zip(("key", "value"), (keys, values), found[1:], strict=True):
        wanted = feeds[f"past_{name}"].astype(np.float64)
        scales = feeds[f"{name}_scales"].reshape(case.kv_heads, case.size) if case.cache == "int8" else np.ones(1)
        means = feeds["key_means"] if case.means and name == "key" else np.zeros(1)
        for b, past in enumerate(case.past):
            put = ((new[b] - means) / scales).transpose(1, 0, 2)
            if case.cache != "float32":
                put = nibbles.packed(nibbles.mixed(put)) if case.cache == "int4" else np.rint(put).clip(-128, 127)
            wanted[b, :, past : past + case.tokens] = put
        if case.cache == "int8":
            assert np.abs(present - wanted).max() <= 1
            assert np.mean(present != wanted) < 0.01
        elif case.cache == "int4":
            check_nibbles(present, wanted.astype(np.uint8), case.size)
            present = nibbles.numbers(present, case.size)
        else:
            np.testing.assert_allclose(present, wanted, atol=1e-6)
        # Of the past, whose numbers are random, the means are part of what is seen.
        caches.append(
            present * scales[:, None] if case.cache == "int8" else present + means.reshape(-1, 1, means.shape[-1])
        )
    for b, past in enumerate(case.past):
        for t in range(case.tokens):
            own = past + t
            seen = slice(max(0, own + 1 - case.window) if case.window > 0 else 0, own + 1)
            for h in range(case.heads):
                g = h // (case.heads // case.kv_heads)
                score = caches[0][b, g, seen] @ queries[b, t, h] * case.size**-0.5
                if case.cap:
                    score = case.cap * np.tanh(score / case.cap)
                if case.bias:
                    score = score + feeds["bias"][0, h, t, seen]
                sink = [float(feeds["sink"][h])] if case.sink else []
                weights = np.exp(score - max([score.max(), *sink]))
                total = weights.sum() + sum(np.exp(x - max(score.max(), x)) for x in sink)
                y = weights @ caches[1][b, g, seen] / total
                at = slice(h * case.size, (h + 1) * case.size)
                np.testing.assert_allclose(found[0][b, t, at], y, atol=2e-5 if case.cache == "float32" else 3e-4)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads = draw(st.integers(1, 3))
    size = draw(st.integers(1, 16)) * 8
    means = draw(st.booleans())
    return Case(
        heads=kv_heads * draw(st.integers(1, 7)),
        kv_heads=kv_heads,
        size=size,
        past=tuple(draw(st.lists(st.integers(0, 140) | st.integers(240, 540), min_size=1, max_size=3))),
        tokens=draw(st.integers(1, 12)),
        spare=draw(st.integers(0, 70)),
        packed=draw(st.booleans()),
        pairs=draw(st.integers(0, size // 2)),
        interleaved=draw(st.booleans()),
        window=draw(st.sampled_from([-1, 0, 1, 3, 63, 64, 65, 100, 300])),
        cap=0.0 if means else draw(st.sampled_from([0.0, 0.0, 5.0, 50.0])),
        bias=draw(st.booleans()),
        sink=not means and draw(st.booleans()),
        means=means,
        cache="int4" if means else draw(st.sampled_from(["float32", "int8", "int4"])),
    )


@settings(max_examples=60, derandomize=True)
@given(cases())
def test_the_definition(case: Case) -> None:
    check(case, run(case))


ROTARY = Case(heads=6, past=(70, 70), tokens=9, pairs=16)
KINDS = {
    "plain": Case(),
    "packed": replace(ROTARY, packed=True),
    "interleaved": replace(ROTARY, interleaved=True),
    "partial": replace(ROTARY, pairs=8),
    "lengths": replace(ROTARY, past=(70, 3, 130), tokens=1),
    "window": replace(ROTARY, window=16),
    "window of a key": replace(ROTARY, window=1),
    "softcap": replace(ROTARY, cap=5.0),
    "bias": replace(ROTARY, bias=True, pairs=0),
    "sink": replace(ROTARY, sink=True),
    "parts": Case(heads=6, past=(505, 258), tokens=9, size=72, sink=True),
    "parts of a window": replace(ROTARY, past=(505, 258), window=250),
    # Rows enough for tiles of AMX, whole ones and what is left, of a head that is one, two, or a part of one.
    "tiles": Case(heads=6, past=(250, 3), tokens=23, size=64, sink=True),
    "wide tiles": Case(past=(70,), tokens=25, size=128),
    "parts of tiles": Case(heads=6, past=(3,), tokens=40, size=96, window=70),
    "no tiles": Case(past=(70,), tokens=40, size=80),
}
caches = pytest.mark.parametrize("cache", ["float32", "int8", "int4"])
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("cache", ["float32", "int8"])
@kinds
@pytest.mark.parametrize("past", [(70,), (0, 0)], ids=["a past", "no past"])
def test_the_stock_operator(kind: str, past: tuple[int, ...], cache: Cache) -> None:
    """The stock operator takes several rows with a past only for one token each, which "lengths" has."""
    case = replace(KINDS[kind], cache=cache)
    if case.tokens > 1:
        case = replace(case, past=past)
    (y, *caches), (stock, *stocks) = run(case), run(case, stock=True)
    np.testing.assert_allclose(y, stock, atol=3e-4 if cache == "int8" else 2e-5)
    for name, ours, theirs in zip(("past_key", "past_value"), caches, stocks, strict=True):
        for b, before in enumerate(case.past):
            end = before + case.tokens
            np.testing.assert_allclose(ours[b, :, :end], theirs[b, :, :end], atol=0 if cache == "int8" else 1e-6)
            assert np.array_equal(ours[b, :, end:], case.feeds()[name][b, :, end:])


@caches
@kinds
def test_instruction_sets_and_threads_give_the_same_bits(kind: str, cache: Cache) -> None:
    case = replace(KINDS[kind], cache=cache)
    expected = run(case, isa="portable")
    ways = [(isa, 1) for isa in instruction_sets()] + [(instruction_sets()[0], threads) for threads in (2, 4)]
    for isa, threads in ways:
        for a, b in zip(run(case, isa=isa, threads=threads), expected, strict=True):
            assert np.array_equal(a, b) if a.dtype != np.float32 else same_bits(a, b), (isa, threads)


@caches
def test_slices_give_the_same_bits(cache: Cache) -> None:
    """Few rows are split along the cache, and joined by the last thread; rows enough for all threads are not."""
    case = Case(heads=6, past=(600, 530, 255, 256, 3) * 6, tokens=1, spare=0, cache=cache, sink=True)
    feeds = asked(case.feeds())
    whole = session(case, case.feeds(), threads=2)
    y = whole.run(None, feeds)[0]
    for b in range(5):
        row = {n: a[b : b + 1] if a.ndim and n != "sink" else a for n, a in feeds.items()}
        assert all(same_bits(whole.run(None, row)[0], y[b : b + 1]) for _ in range(3))


@caches
def test_what_is_no_number_is_told(cache: Cache) -> None:
    case = Case(cache=cache, past=(70,))
    feeds = case.feeds()
    whole = session(case, feeds)
    y = whole.run(None, asked(feeds))[0].reshape(case.tokens, case.heads, case.size)
    feeds["query"][0, 2, 3] = np.nan
    wrong = whole.run(None, asked(feeds))[0].reshape(y.shape)
    assert np.isnan(wrong[2, 0]).all()
    wrong[2, 0] = y[2, 0]
    assert same_bits(wrong, y)


PER_TOKEN = {"query": 1, "key": 1, "value": 1, "position_ids": 1, "bias": 2}


@caches
@pytest.mark.parametrize("kind", ["packed", "window", "softcap", "bias", "sink", "parts", "parts of a window"])
@pytest.mark.parametrize("chunks", [[1] * 72, [7] * 10 + [2], [64, 8], [1, 7, 64]], ids=["1", "7", "64", "mixed"])
def test_chunks_give_the_same_bits(kind: str, cache: Cache, chunks: list[int]) -> None:
    past = 480 if kind.startswith("parts") else 5
    case = replace(KINDS[kind], cache=cache, past=(past, past), tokens=72)
    feeds = asked(case.feeds())
    whole = session(case, case.feeds())
    y, *caches = whole.run(None, feeds)
    own, at, parts = dict(feeds), 0, list[Array]()
    for count in chunks:
        for name in PER_TOKEN.keys() & feeds.keys():
            own[name] = np.take(feeds[name], np.arange(at, at + count), PER_TOKEN[name])
        at += count
        own["seqlens_k"] = feeds["seqlens_k"] - case.tokens + at
        part, own["past_key"], own["past_value"] = whole.run(None, own)
        parts.append(part)
    assert same_bits(np.concatenate(parts, 1), y)
    assert np.array_equal(own["past_key"], caches[0])
    assert np.array_equal(own["past_value"], caches[1])


@caches
def test_rows_alone_and_in_place_give_the_same_bits(cache: Cache) -> None:
    case = Case(heads=6, past=(70, 3, 130), pairs=16, cache=cache)
    feeds = case.feeds()
    whole = session(case, feeds)
    y, *caches = whole.run(None, asked(feeds))
    single = {"total_sequence_length", "cosines", "sines"}
    for b in range(3):
        row = {name: array if name in single else array[b : b + 1] for name, array in asked(feeds).items()}
        alone = whole.run(None, row)
        assert same_bits(alone[0], y[b : b + 1])
        assert all(np.array_equal(a, c[b : b + 1]) for a, c in zip(alone[1:], caches, strict=True))
    binding = whole.io_binding()
    values = {name: cast(Any, ort).OrtValue.ortvalue_from_numpy(array) for name, array in asked(feeds).items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    for name in ("key", "value"):
        binding.bind_ortvalue_output(f"present_{name}", values[f"past_{name}"])
    whole.run_with_iobinding(binding)
    assert same_bits(binding.get_outputs()[0].numpy(), y)
    assert all(np.array_equal(values[n].numpy(), c) for n, c in zip(("past_key", "past_value"), caches, strict=True))


FULL = Case(past=(4, 2), pairs=8, bias=True, sink=True)


LIES: list[tuple[str, Callable[[Array], Array], str]] = [
    ("query", lambda x: x[0], "3 dimensions"),
    ("query", lambda x: x[:, :, 1:], "what the heads say"),
    ("key", lambda x: x[:, 1:], "keys and values are"),
    ("value", lambda x: x[..., None], "keys and values are"),
    ("past_key", lambda x: x[:, 1:], "the same 4"),
    ("past_value", lambda x: x[0], "the same 4"),
    ("seqlens_k", lambda x: x[:1], "one length for each row"),
    ("seqlens_k", lambda x: x + 4, "between the tokens and the capacity"),
    ("seqlens_k", lambda x: x - 4, "between the tokens and the capacity"),
    ("seqlens_k", lambda x: x * 0 - 7, "between the tokens and the capacity"),
    ("seqlens_k", lambda x: x * 0 + (2**31 - 1), "between the tokens and the capacity"),
    ("cosines", lambda x: x[:, 1:], "cosines and sines"),
    ("position_ids", lambda x: x + 100, "no cosines"),
    ("position_ids", lambda x: x - 100, "no cosines"),
    ("position_ids", lambda x: x[:, 1:], r"positions are"),
    ("bias", lambda x: x[..., 1:], "too few keys"),
    ("bias", lambda x: x[:, 1:], "the bias is"),
    ("sink", lambda x: x[1:], "one sink for each head"),
]


@caches
@pytest.mark.parametrize(("name", "change", "words"), LIES)
def test_inputs_that_lie(name: str, change: Callable[[Array], Array], words: str, cache: Cache) -> None:
    feeds = replace(FULL, cache=cache).feeds()
    ours = session(replace(FULL, cache=cache), feeds)
    before = ours.run(None, asked(feeds))
    with pytest.raises(Exception, match=words):
        ours.run(None, asked(feeds) | {name: change(feeds[name])})
    assert all(np.array_equal(a, b) for a, b in zip(ours.run(None, asked(feeds)), before, strict=True))


@caches
@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (3, 7), (5, 0), (0,), (2,), (1, 0), (1, 1, 1)], ids=str)
def test_lengths_of_another_shape_than_one_row(shape: tuple[int, ...], cache: Cache) -> None:
    """None is read, however many zeros the shape has."""
    case = replace(FULL, past=(4,), cache=cache)
    feeds = case.feeds() | {"seqlens_k": np.zeros(shape, np.int32)}
    ours = session(case, feeds)
    with pytest.raises(Exception, match="one length for each row"):
        ours.run(None, asked(feeds))


def test_graphs_that_lie() -> None:
    with pytest.raises(Exception, match="multiple of kv_num_heads"):
        run(replace(FULL, heads=5))
    feeds = replace(FULL, cache="int8").feeds()
    with pytest.raises(Exception, match="different counts of scales"):
        session(replace(FULL, cache="int8"), feeds | {"key_scales": feeds["key_scales"][1:]})
    nibble = replace(FULL, cache="int4")
    feeds4 = nibble.feeds()
    wide = {name: feeds4[name].repeat(2, -1) for name in ("past_key", "past_value")}
    with pytest.raises(Exception, match="capacity, row"):
        session(nibble, feeds4).run(None, asked(feeds4) | wide)
    less = replace(nibble, means=True, cap=0.0, sink=False)
    for wrong in (replace(less, sink=True), less):
        feeds4 = wrong.feeds()
        feeds4["key_means"] = feeds4["key_means"] if wrong.sink else feeds4["key_means"][:, 1:]
        with pytest.raises(Exception, match=r"kv_num_heads \* size means of keys, and no sinks"):
            session(wrong, feeds4).run(None, asked(feeds4))
    with pytest.raises(Exception, match="and scores not capped"):
        session(replace(less, cap=5.0), less.feeds())
    short = {name: feeds[name][1:] for name in ("key_scales", "value_scales")}
    with pytest.raises(Exception, match=r"kv_num_heads \* size scales"):
        session(replace(FULL, cache="int8"), feeds | short).run(None, asked(feeds))
