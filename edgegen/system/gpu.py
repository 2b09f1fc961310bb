"""Free memory of a CUDA GPU, by ``nvidia-smi``, which comes with the driver."""

from edgegen.system.source import LOCAL, Source

_MEBIBYTE = 1 << 20


def available_gpu_memory(source: Source = LOCAL) -> int | None:
    """Bytes of free memory of the first GPU; None where that is unknown."""
    told = source.call("nvidia-smi memory.free")
    first = told.decode(errors="replace").split("\n")[0].strip() if told else ""
    return int(first) * _MEBIBYTE if first.isdecimal() else None
