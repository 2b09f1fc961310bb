"""Tensors read slab by slab from mapped files: lazy, stacked, summed, of groups of codes, with low-rank updates."""
