"""Free memory of a GPU, from what nvidia-smi says."""

import pytest

from edgegen.system import available_gpu_memory
from tests.runtime.system.recorded import Recorded


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (b"7823\n", 7823 << 20),
        (b"7823\n40000\n", 7823 << 20),
        (b"[N/A]\n", None),
        (b"", None),
        (None, None),
    ],
)
def test_gpu_memory_is_the_first_gpus_in_mebibytes(told: bytes | None, expected: int | None) -> None:
    calls = {} if told is None else {"nvidia-smi memory.free": told}
    assert available_gpu_memory(Recorded(calls=calls)) == expected
