"""Each tensor layout against dense NumPy; wrong shapes and missing tensors are refused by name."""

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.errors import TensorError
from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.binding import bind
from edgegen_export.architecture.components.attention import QKNorm
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.tensor_layouts import (
    Concatenated,
    ExpertStack,
    Interleaved,
    Joined,
    PairedHeads,
    Same,
    Skipping,
    Stacked,
    SwappedHalves,
    TensorLayout,
    UnitRows,
    WithAxes,
    transposed,
)
from edgegen_export.architecture.tensors import decoder_tensors
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.flat_model import Model, ModelLayer

Array = NDArray[np.float32]
sizes = st.integers(1, 5)


def array(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def view_of(layout: TensorLayout, theirs: Sequence[Array], ours: Sequence[tuple[int, ...]]) -> list[Array]:
    """Our tensors, read back after the shapes are checked as in ``bind``."""
    assert all(x.shape == layout.shape(ours) for x in theirs)
    parts = layout.apply([LazyTensor.from_array(x) for x in theirs], ours)
    assert [part.shape for part in parts] == list(ours)
    return [part.read() for part in parts]


@given(shape=st.lists(sizes, min_size=1, max_size=3))
def test_same_is_the_tensor_itself(shape: list[int]) -> None:
    whole = array(*shape)
    (part,) = view_of(Same("x"), [whole], [tuple(shape)])
    np.testing.assert_array_equal(part, whole)


@given(rows=st.lists(sizes, min_size=1, max_size=4), columns=st.none() | sizes, stored=st.booleans())
def test_concatenated_parts_lie_one_after_the_other(rows: list[int], columns: int | None, stored: bool) -> None:
    stored = stored and columns is not None
    whole = array(sum(rows)) if columns is None else array(sum(rows), columns)
    parts = view_of(
        Concatenated("x", transposed=stored),
        [np.ascontiguousarray(whole.T) if stored else whole],
        [(n, *whole.shape[1:]) for n in rows],
    )
    for part, expected in zip(parts, np.split(whole, np.cumsum(rows)[:-1]), strict=True):
        np.testing.assert_array_equal(part, expected)


@given(rows=sizes, columns=sizes)
def test_transposed_is_a_matrix_stored_in_out(rows: int, columns: int) -> None:
    stored = array(columns, rows)
    (part,) = view_of(transposed("x"), [stored], [(rows, columns)])
    np.testing.assert_array_equal(part, stored.T)


@given(groups=sizes, shares=st.lists(sizes, min_size=1, max_size=3), columns=st.none() | sizes)
@settings(deadline=None)
def test_interleaved_parts_take_their_share_of_every_group(groups: int, shares: list[int], columns: int | None) -> None:
    inner = () if columns is None else (columns,)
    whole = array(groups, sum(shares), *inner)
    found = view_of(
        Interleaved("x", groups), [whole.reshape(-1, *inner)], [(groups * share, *inner) for share in shares]
    )
    for part, expected in zip(found, np.split(whole, np.cumsum(shares)[:-1], axis=1), strict=True):
        np.testing.assert_array_equal(part, expected.reshape(-1, *inner))


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (8, 1)])
def test_interleaved_is_how_falcon_and_neox_fuse_their_heads(heads: int, kv_heads: int) -> None:
    head_dim, width, shared = 3, 5, heads // kv_heads
    q, k, v = array(heads, head_dim, width), array(kv_heads, head_dim, width), array(kv_heads, head_dim, width)
    groups: list[Array] = []
    for g in range(kv_heads):
        groups += [*q[shared * g : shared * (g + 1)], k[g] + 0.25, v[g] + 0.5]
    ours = [(heads * head_dim, width), (kv_heads * head_dim, width), (kv_heads * head_dim, width)]
    parts = view_of(Interleaved("x", kv_heads), [np.concatenate(groups)], ours)
    for part, expected in zip(parts, (q, k + 0.25, v + 0.5), strict=True):
        np.testing.assert_array_equal(part, expected.reshape(part.shape))


@given(skipped=st.integers(0, 4), rows=sizes, columns=sizes)
def test_skipping_leaves_the_first_rows_out(skipped: int, rows: int, columns: int) -> None:
    whole = array(skipped + rows, columns)
    (part,) = view_of(Skipping("x", skipped), [whole], [(rows, columns)])
    np.testing.assert_array_equal(part, whole[skipped:])


@given(heads=sizes, half=sizes, columns=st.none() | sizes)
def test_swapped_halves_change_places_in_every_head(heads: int, half: int, columns: int | None) -> None:
    whole = array(heads, 2, half, *(() if columns is None else (columns,)))
    stored = whole.reshape(-1, *whole.shape[3:])
    (part,) = view_of(SwappedHalves("x", heads), [stored], [stored.shape])
    np.testing.assert_array_equal(part, np.stack([whole[:, 1], whole[:, 0]], axis=1).reshape(stored.shape))


@given(pairs=sizes, size=sizes, columns=st.none() | sizes)
def test_paired_heads_are_one_of_each_half_in_turns(pairs: int, size: int, columns: int | None) -> None:
    whole = array(2, pairs, size, *(() if columns is None else (columns,)))
    stored = whole.reshape(-1, *whole.shape[3:])
    (part,) = view_of(PairedHeads("x", 2 * pairs), [stored], [stored.shape])
    np.testing.assert_array_equal(part, np.stack([whole[0], whole[1]], axis=1).reshape(stored.shape))


@given(rows=sizes, columns=sizes)
def test_unit_rows_have_a_norm_of_one_or_are_zero(rows: int, columns: int) -> None:
    whole = array(rows, columns)
    (part,) = view_of(UnitRows("x"), [whole], [whole.shape])
    np.testing.assert_allclose(np.linalg.norm(part, axis=1), np.any(whole, axis=1), rtol=1e-6)
    np.testing.assert_allclose(part * np.linalg.norm(whole, axis=1)[:, None], whole, rtol=1e-6)


@given(count=sizes, inner=st.lists(sizes, min_size=1, max_size=2))
def test_stacked_rows_are_tensors_of_their_own(count: int, inner: list[int]) -> None:
    whole = array(count, *inner)
    layout = Stacked("layers.{i}.norms.{n}.weight", count)
    assert layout.for_layer(3).names == tuple(f"layers.3.norms.{n}.weight" for n in range(count))
    (part,) = view_of(layout, list(whole), [whole.shape])
    np.testing.assert_array_equal(part, whole)


@given(count=sizes, rows=sizes, columns=sizes, in_turns=st.booleans())
@settings(deadline=None)
def test_stacked_experts_have_inputs_first(count: int, rows: int, columns: int, in_turns: bool) -> None:
    gate, up = array(count, rows, columns), array(count, rows, columns) + 0.5
    both = np.stack([gate, up], axis=2 if in_turns else 1).reshape(count, 2 * rows, columns)
    found = view_of(
        ExpertStack("x", count, in_turns=in_turns),
        [np.ascontiguousarray(both.transpose(0, 2, 1))],
        [(count * rows, columns)] * 2,
    )
    for part, expected in zip(found, (gate, up), strict=True):
        np.testing.assert_array_equal(part, expected.reshape(-1, columns))


@given(rows=st.lists(sizes, min_size=1, max_size=4), width=sizes, cuts=st.randoms())
def test_joined_parts_may_be_cut_anywhere(rows: list[int], width: int, cuts: Random) -> None:
    layout = Joined("h.{i}.{n}.weight", tuple((f"part{k}", size) for k, size in enumerate(rows)))
    assert layout.for_layer(3).names == tuple(f"h.3.part{k}.weight" for k in range(len(rows)))
    whole, asked = array(sum(rows), 1, width), [(size, 1, width) for size in rows]
    ends = sorted(cuts.randint(0, len(whole)) for _ in rows[1:])
    parts = np.split(whole, ends)
    assert [*layout.shapes([whole.shape], [part.shape for part in parts])] == [part.shape for part in parts]
    (joined,) = layout.apply([LazyTensor.from_array(part) for part in parts], [whole.shape])
    np.testing.assert_array_equal(joined.read(), whole)
    for wrong in ([(n + 1, 1, width) for n in rows], [None] * len(rows), [(n, width) for n in rows]):
        assert [*layout.shapes([whole.shape], wrong)] == asked


@given(size=sizes, before=st.integers(0, 2), after=st.integers(0, 2))
def test_axes_of_a_vector_are_left_out(size: int, before: int, after: int) -> None:
    stored = array(*[1] * before, size, *[1] * after)
    (part,) = view_of(WithAxes("x", before, after), [stored], [(size,)])
    np.testing.assert_array_equal(part, stored.ravel())


@pytest.mark.parametrize(
    "layout",
    [
        Same("h.{i}.x"),
        Concatenated("h.{i}.x", transposed=True),
        Interleaved("h.{i}.x", 2),
        Skipping("h.{i}.x", 1),
        SwappedHalves("h.{i}.x", 2),
        PairedHeads("h.{i}.x", 2),
    ],
)
def test_a_view_of_a_layer_keeps_what_else_it_says(layout: TensorLayout) -> None:
    filled = layout.for_layer(7)
    assert filled.names == ("h.7.x",)
    assert type(filled) is type(layout)
    assert filled == type(layout)(**{**{k: getattr(layout, k) for k in layout.__dataclass_fields__}, "theirs": "h.7.x"})


def test_parts_know_the_tensors_they_are_made_of() -> None:
    tensors = [LazyTensor.from_array(array(4)) for _ in range(2)]
    (stacked,) = Stacked("{n}", 2).apply(tensors, [(2, 4)])
    assert stacked.names == ("array",)


# Wrong shapes and missing tensors, through bind.

HEADS = 4
CONFIG = Model(
    layers=(ModelLayer(0.25),) * 2,
    hidden_size=32,
    num_heads=HEADS,
    num_kv_heads=HEADS,
    head_dim=8,
    intermediate_size=24,
    vocab_size=20,
    max_positions=16,
    norm=Norm("rms", 1e-6),
    activation="relu",
    tied_head=True,
    qk_norm=QKNorm(Norm("layer", 1e-5), over="each_head"),
).config()
FAMILY = Architecture(
    ("toy",),
    ("ToyForCausalLM",),
    lambda read: CONFIG,
    {
        "embed.weight": "embed.weight",
        **{f"layers.{{i}}.{x}_norm.weight": f"h.{{i}}.{x}_norm.weight" for x in ("attn", "mlp")},
        tuple(f"layers.{{i}}.attn.{x}.weight" for x in "qkv"): Interleaved("h.{i}.qkv.weight", HEADS),
        tuple(f"layers.{{i}}.attn.{x}.bias" for x in "qkv"): Interleaved("h.{i}.qkv.bias", HEADS),
        **{f"layers.{{i}}.attn.{x}_norm.weight": Stacked(f"h.{{i}}.{x}_norms.{{n}}", HEADS) for x in "qk"},
        "layers.{i}.attn.o.weight": transposed("h.{i}.o.weight"),
        **{f"layers.{{i}}.mlp.{x}.weight": f"h.{{i}}.{x}.weight" for x in ("up", "down")},
        "final_norm.weight": "norm.weight",
    },
    prefixes=("toy.",),
)


def checkpoint() -> dict[str, Array]:
    tensors = {"embed.weight": array(20, 32), "norm.weight": array(32)}
    for i in range(2):
        tensors |= {f"h.{i}.{x}_norm.weight": array(32) for x in ("attn", "mlp")}
        tensors |= {f"h.{i}.qkv.weight": array(96, 32), f"h.{i}.o.weight": array(32, 32)}
        tensors |= {f"h.{i}.{x}_norms.{n}": array(8) for x in "qk" for n in range(HEADS)}
        tensors |= {f"h.{i}.up.weight": array(24, 32), f"h.{i}.down.weight": array(32, 24)}
    return {"toy." + name: x for name, x in tensors.items()}


def bound(tensors: dict[str, Array]) -> dict[str, LazyTensor]:
    return bind(FAMILY, CONFIG, {name: LazyTensor.from_array(x) for name, x in tensors.items()})


def refusal(tensors: dict[str, Array]) -> str:
    with pytest.raises(TensorError) as caught:
        bound(tensors)
    return str(caught.value)


def test_a_checkpoint_that_fits_is_bound_to_every_tensor() -> None:
    required, optional = decoder_tensors(CONFIG)
    found = bound(checkpoint())
    assert {name: x.shape for name, x in found.items()} == required
    assert not found.keys() & optional.keys()


def test_every_missing_row_of_a_stacked_tensor_is_listed() -> None:
    tensors = checkpoint()
    for n in (0, 2, 3):
        del tensors[f"toy.h.1.k_norms.{n}"]
    message = refusal(tensors)
    assert "3 problems" in message
    for n in (0, 2, 3):
        assert f"h.1.k_norms.{n}: missing, shape [8] expected" in message


def test_every_misshapen_row_of_a_stacked_tensor_is_listed() -> None:
    tensors = checkpoint()
    tensors["toy.h.0.q_norms.1"] = array(9)
    tensors["toy.h.0.q_norms.2"] = array(8, 1)
    message = refusal(tensors)
    assert "2 problems" in message
    assert "h.0.q_norms.1: shape [9], but the config asks for [8]" in message
    assert "h.0.q_norms.2: shape [8, 1], but the config asks for [8]" in message


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("h.0.qkv.weight", (32, 96), "[96, 32]"),
        ("h.0.qkv.weight", (64, 32), "[96, 32]"),
        ("h.1.qkv.weight", (96,), "[96, 32]"),
        ("h.1.o.weight", (32, 16), "[32, 32]"),
        ("embed.weight", (21, 32), "[20, 32]"),
        ("h.0.attn_norm.weight", (), "[32]"),
    ],
)
def test_a_fused_tensor_of_another_shape_is_refused(name: str, shape: tuple[int, ...], wanted: str) -> None:
    message = refusal({**checkpoint(), "toy." + name: array(*shape)})
    assert message.endswith(f": {name}: shape {list(shape)}, but the config asks for {wanted}")


def test_a_bias_that_only_some_layers_have_is_a_broken_checkpoint() -> None:
    biases: dict[str, Any] = {f"toy.h.{i}.qkv.bias": array(96) for i in range(2)}
    assert {"layers.0.attn.q.bias", "layers.1.attn.v.bias"} <= bound(checkpoint() | biases).keys()
    del biases["toy.h.0.qkv.bias"]
    assert refusal(checkpoint() | biases).endswith("h.0.qkv.bias: missing, and other layers have it")


def test_a_name_without_the_prefix_is_not_lost() -> None:
    tensors = checkpoint()
    tensors["norm.weight"] = tensors.pop("toy.norm.weight")
    tensors["extra"] = array(1)
    assert refusal(tensors).endswith(": extra: not a tensor of this architecture")
