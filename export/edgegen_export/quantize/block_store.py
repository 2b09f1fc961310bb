"""BlockStore: quantized matrices in a folder, so that a layer that is done need not stay in memory."""

import re
from pathlib import Path

import numpy as np

from edgegen.bundle.manifest import MatrixFormat
from edgegen.system import retry_in_use
from edgegen_export.quantize.blockwise import Blocks

_FILE = re.compile(r"(.+)\.\d+-\d+(?:-zeros)?\.npz")
_OF_LAYER = re.compile(r"layers\.(\d+)\.")


class BlockStore:
    """One file per matrix, by its (fused) module, and per format; a file that is there is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, module: str, form: MatrixFormat, blocks: Blocks) -> None:
        path = self._path(module, form)
        zeros = np.empty(0, np.uint8) if blocks.zeros is None else blocks.zeros
        partial, shape = path.with_suffix(".partial.npz"), np.array([blocks.bits, blocks.columns])
        np.savez(partial, codes=blocks.codes, scales=blocks.scales, zeros=zeros, shape=shape, lost=blocks.lost)
        retry_in_use(lambda: partial.replace(path))

    def has(self, module: str, form: MatrixFormat) -> bool:
        """Return whether :meth:`get` finds the matrix."""
        return self._path(module, form).exists()

    def get(self, module: str, form: MatrixFormat) -> Blocks | None:
        """The matrix, or None where there is none."""
        path = self._path(module, form)
        if not path.exists():
            return None
        with np.load(path) as arrays:
            bits, columns = arrays["shape"].tolist()
            zeros = arrays["zeros"]
            zeros, lost = zeros if zeros.size else None, float(arrays["lost"])
            return Blocks(arrays["codes"], arrays["scales"], zeros, bits, columns, lost=lost)

    def layers_done(self) -> int:
        """Number of layers that are quantized: of those that have matrices here, all but the last are whole; the last
        is if its ``mlp.down``, or what comes after the layers, is here."""
        names = [found[1] for path in self._folder.iterdir() if (found := _FILE.fullmatch(path.name))]
        numbers = [int(found[1]) for name in names if (found := _OF_LAYER.match(name))]
        if not numbers:
            return 0
        last = max(numbers)
        after = any(not _OF_LAYER.match(name) for name in names)
        return last + (after or f"layers.{last}.mlp.down" in names)

    def _path(self, module: str, form: MatrixFormat) -> Path:
        kind = f"{form.bits}-{form.block_size}{'' if form.symmetric else '-zeros'}"
        return self._folder / (re.sub(r"[^\w.+]", "_", module) + f".{kind}.npz")
