"""Rotary tables against NumPy in float64, and the life of their buffers."""

import numpy as np
import pytest

from edgegen.bundle.manifest import RotaryTable
from edgegen.model.rotary import RotaryTables, rotary_table


def table(name: str = "a", base: float = 10000.0, pairs: int = 8, scale: float = 1.0) -> RotaryTable:
    inverse = (np.float32(1) / np.float32(base) ** (np.arange(pairs, dtype=np.float32) / pairs)).tolist()
    return RotaryTable(f"{name}.cos", f"{name}.sin", tuple(inverse), scale)


@pytest.mark.parametrize("scale", [1.0, 1.1902380714238083])
@pytest.mark.parametrize("positions", [1, 2, 64, 131072])
def test_a_table_is_the_cosines_and_sines_of_the_float32_angles(positions: int, scale: float) -> None:
    rope = table(base=500000.0, scale=scale)
    cos, sin = rotary_table(rope, positions)
    # The angle is a float32 product, as in the models' own code; the rest is exact.
    inverse = np.array(rope.inverse_frequencies, np.float32)
    angles = (np.arange(positions, dtype=np.float32)[:, None] * inverse).astype(np.float64)
    for found, expected in ((cos, np.cos(angles)), (sin, np.sin(angles))):
        assert found.dtype == np.float32
        assert found.shape == (positions, 8)
        np.testing.assert_allclose(found, scale * expected, rtol=0, atol=2e-7)


def test_angles_stay_near_the_exact_ones_far_out() -> None:
    positions = 131072
    rope = table()
    cos, sin = rotary_table(rope, positions)
    exact = np.arange(positions, dtype=np.float64)[:, None] * np.array(rope.inverse_frequencies)
    # Half a unit in the last place of the largest angle.
    assert np.abs(cos - np.cos(exact)).max() < 0.005
    assert np.abs(sin - np.sin(exact)).max() < 0.005


def test_no_table_needs_no_buffers() -> None:
    assert RotaryTables(()).buffers(100) == {}


def test_buffers_are_the_same_until_more_positions_are_needed() -> None:
    tables = RotaryTables((table("a"), table("b", base=100.0, pairs=4)))
    first = dict(tables.buffers(64))
    assert first.keys() == {"a.cos", "a.sin", "b.cos", "b.sin"}
    assert [first[name].array.shape for name in ("a.cos", "b.sin")] == [(64, 8), (64, 4)]
    for positions in (0, 1, 63, 64):
        assert all(tables.buffers(positions)[name] is buffer for name, buffer in first.items())
    grown = dict(tables.buffers(65))
    assert all(len(buffer.array) == 65 for buffer in grown.values())
    assert all(tables.buffers(10)[name] is buffer for name, buffer in grown.items())
    for name, buffer in first.items():  # a caller that still holds the old ones has not lost them
        np.testing.assert_array_equal(buffer.array, grown[name].array[:64])


def test_the_runtime_reads_the_buffers_memory() -> None:
    (cos, _) = RotaryTables((table(),)).buffers(16).values()
    assert cos.ortvalue.data_ptr() == cos.array.ctypes.data
    assert cos.ortvalue.numpy().tobytes() == cos.array.tobytes()
