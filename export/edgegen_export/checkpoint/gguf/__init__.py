"""GGUF files: a header that is checked, tensors that are dequantized as they are read, and the original in them."""

from edgegen_export.checkpoint.gguf.file import GgufFile, open_gguf
from edgegen_export.checkpoint.gguf.original import original_tensors, read_original

__all__ = ["GgufFile", "open_gguf", "original_tensors", "read_original"]
