"""Scratch: arrays in temporary files, so that what calibration keeps is on disk, and memory holds what is in use."""

import math
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


class Scratch:
    """Makes arrays in files of ``folder``, by default the system's folder of temporary files.

    A file goes with its array. The system writes pages to it when it needs their memory elsewhere.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.nbytes = 0
        """Bytes of all arrays made so far."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """An array of zeros [shape].

        Raises:
            OSError: the disk has no room.
        """
        if not math.prod(shape):
            return np.zeros(shape, dtype)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            array = np.memmap(file, dtype, "w+", shape=shape)
        self.nbytes += array.nbytes
        return np.asarray(array)

    def kept(self, array: NDArray[Scalar]) -> NDArray[Scalar]:
        """A copy of ``array``."""
        copy = self.empty(array.shape, array.dtype)
        copy[...] = array
        return copy
