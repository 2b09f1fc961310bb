"""BlockStore: quantized matrices in a folder, so that a layer that is done need not stay in memory."""

import re
from pathlib import Path

import numpy as np

from edgegen_export.quantize.blockwise import Blocks


class BlockStore:
    """One file per matrix, by its (fused) module; a file that is there is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, module: str, blocks: Blocks) -> None:
        zeros = np.empty(0, np.uint8) if blocks.zeros is None else blocks.zeros
        draft, form = self._path(module).with_suffix(".partial.npz"), np.array([blocks.bits, blocks.columns])
        np.savez(draft, codes=blocks.codes, scales=blocks.scales, zeros=zeros, form=form)
        draft.replace(self._path(module))

    def has(self, module: str) -> bool:
        return self._path(module).exists()

    def get(self, module: str) -> Blocks | None:
        """The matrix, or None where there is none."""
        if not self.has(module):
            return None
        with np.load(self._path(module)) as arrays:
            bits, columns = arrays["form"].tolist()
            zeros = arrays["zeros"]
            return Blocks(arrays["codes"], arrays["scales"], zeros if zeros.size else None, bits, columns)

    def _path(self, module: str) -> Path:
        return self._folder / (re.sub(r"[^\w.+]", "_", module) + ".npz")
