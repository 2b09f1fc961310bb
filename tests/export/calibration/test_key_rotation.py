"""Queries and keys turned alike: no score changes, and the angles spare what an int8 cache would lose."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen_export.architecture.components.differential_attention import DifferentialAttention
from edgegen_export.architecture.components.latent_attention import LatentAttention
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.rope import Rope
from edgegen_export.calibration.key_rotation import best_angles, turned, turned_rows
from edgegen_export.tensors.lazy import LazyTensor
from edgegen_export.tensors.sum import Sum
from tests.export.quantize.test_smoothing import decoders, logits, random_tensors

Array = NDArray[np.float32]

POSITIONS = 64
SLOW = Rope(1e8, 8)
"""Of its pairs the first turns, the last three hardly do within 64 positions."""

ROTATED = [
    pytest.param(config, id=name)
    for name, config in decoders()
    if (own := config.layers[0].attention)
    # Those are not turned: keys that no rows make alone, and pairs of keys.
    and not isinstance(own, LatentAttention | DifferentialAttention)
    and own.rope
    and not own.qk_norm
    and own.clip is None
]


@pytest.mark.parametrize("config", ROTATED)
def test_the_logits_stay(config: DecoderConfig) -> None:
    tensors = random_tensors(config)
    before, rng, after = logits(tensors, config), np.random.default_rng(2), dict(tensors)
    for i, own in config.attentions.items():
        if own.rope is None:
            continue
        angles = rng.uniform(0, 6, (own.kv_heads, own.rope.dim // 2))
        for name, count in {"q": own.heads, "k": own.kv_heads}.items():
            of_heads = np.repeat(angles, count // own.kv_heads, axis=0)
            for tensor in (f"layers.{i}.attn.{name}.weight", f"layers.{i}.attn.{name}.bias"):
                if tensor in tensors:
                    after[tensor] = turned_rows(tensors[tensor], of_heads, own.rope, own.head_dim)
    np.testing.assert_allclose(logits(after, config), before, rtol=0, atol=3e-4 * np.abs(before).max())


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim", [4, 12])
def test_turned_rows_make_turned_keys(interleaved: bool, dim: int) -> None:
    rng, rope = np.random.default_rng(0), Rope(100.0, dim, interleaved)
    weight, x = rng.standard_normal((3 * 12, 20)).astype(np.float32), rng.standard_normal((7, 20)).astype(np.float32)
    angles = rng.uniform(0, 6, (3, dim // 2))
    made = x @ turned_rows(LazyTensor.from_array(weight), angles, rope, 12).read().T
    expected = (x @ weight.T).reshape(7, 3, 12)
    pairs = expected[..., :dim].reshape(7, 3, -1, 2) if interleaved else None
    first, second = (
        (pairs[..., 0], pairs[..., 1]) if pairs is not None else np.split(expected[..., :dim].copy(), 2, axis=-1)
    )
    by_hand = (first + 1j * second) * np.exp(1j * angles)
    found = made.reshape(7, 3, 12)
    both = found[..., :dim].reshape(7, 3, -1, 2) if interleaved else None
    real, imaginary = (both[..., 0], both[..., 1]) if both is not None else np.split(found[..., :dim], 2, axis=-1)
    np.testing.assert_allclose(real + 1j * imaginary, by_hand, atol=1e-4)
    np.testing.assert_allclose(found[..., dim:], expected[..., dim:], atol=1e-5)


def score_error(queries: Array, keys: Array) -> float:
    """Root mean square of what int8 keys, a scale per channel, change in the scores by the slow pairs."""
    scales = np.abs(keys).max(axis=0) / 127
    rounded: Array = np.rint(keys / scales) * scales - keys
    slow = [1, 2, 3, 5, 6, 7]
    changes: Array = np.einsum("nhc,mhc->nmh", queries[..., slow], rounded[..., slow])
    return float(np.sqrt(np.square(changes).mean()))


def test_the_angles_spare_scores_where_keys_stay_on_one_side() -> None:
    rng = np.random.default_rng(0)
    keys, queries = (rng.standard_normal((400, 2, 8)).astype(np.float32) for _ in "kq")
    keys += 30 * np.array(2 * [0, 1, 1, 1], np.float32)  # as much in the second as in the first: on the diagonal
    queries[..., :4] *= 5
    queries[..., 4:] -= queries[..., :4]  # which look across it
    angles = best_angles(queries, keys, SLOW, POSITIONS)
    assert (angles[:, 0] == 0).all(), "a pair that goes round gains nothing"
    assert (angles[:, 1:] > 0).all()
    turned_both = turned(queries, angles, SLOW), turned(keys, angles, SLOW)
    assert score_error(*turned_both) < 0.7 * score_error(queries, keys)


def test_keys_without_a_side_stay() -> None:
    rng = np.random.default_rng(0)
    around = rng.uniform(0, 2 * np.pi, (400, 2, 4))
    keys = np.concatenate([np.cos(around), np.sin(around)], axis=-1).astype(np.float32)
    queries = rng.standard_normal((400, 2, 8)).astype(np.float32)
    assert not best_angles(queries, keys, SLOW, POSITIONS).any()
    assert not best_angles(0 * queries, 0 * keys, SLOW, POSITIONS).any()


def test_query_heads_that_share_a_key_head_are_counted_together() -> None:
    rng = np.random.default_rng(0)
    keys, queries = rng.standard_normal((400, 2, 8)), rng.standard_normal((400, 6, 8))
    keys[:, :, [2, 6]] += 30
    queries[:, 5, 2] += 50  # of the three heads of the second, one looks along one channel
    first, second = best_angles(queries.astype(np.float32), keys.astype(np.float32), SLOW, POSITIONS)
    alone = best_angles(queries[:, 5:].astype(np.float32), keys[:, 1:].astype(np.float32), SLOW, POSITIONS)
    assert second[2] == pytest.approx(alone[0, 2], abs=0.1)
    assert abs(first[2] - second[2]) > 0.3


def test_a_sum_is_that_of_its_rows_and_columns() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((6, 9)).astype(np.float32) for _ in "ab")
    both = Sum(LazyTensor.from_array(a), LazyTensor.from_array(b))
    np.testing.assert_array_equal(both.read(), a + b)
    np.testing.assert_array_equal(both.rows(2, 5), (a + b)[2:5])
    np.testing.assert_array_equal(both.transposed().read(), (a + b).T)
    np.testing.assert_array_equal(both.take(1, 4, axis=1).read(), (a + b)[:, 1:4])
    assert both.names == ("array",)
    with pytest.raises(ValueError, match="are not added"):
        Sum(LazyTensor.from_array(a), LazyTensor.from_array(b.T))
