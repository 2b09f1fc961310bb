"""Checkpoints: a model's config and weights in a folder, a GGUF file or a hub repository, opened without reading them.

``Checkpoint.open`` reads a local folder or file or a hub id: config, files and ``LazyTensor``s by name.
Safetensors and GGUF files are read; pickled weights are refused, never opened. ``Adapter.open`` does the same for a
LoRA adapter, and ``merge_adapter`` makes one checkpoint of the two. ``unpacked`` gives a quantized checkpoint the names
and shapes that it had before it was quantized.
"""

from edgegen.bundle.manifest import Source
from edgegen_export.checkpoint.base_names import BaseNames
from edgegen_export.checkpoint.checkpoint import Checkpoint
from edgegen_export.checkpoint.listing import Listing
from edgegen_export.checkpoint.lora.adapter import Adapter, merge_adapter
from edgegen_export.checkpoint.packed_modules import unpacked
from edgegen_export.checkpoint.quantization_config import read_quantization
from edgegen_export.checkpoint.ternary import Ternary

__all__ = [
    "Adapter",
    "BaseNames",
    "Checkpoint",
    "Listing",
    "Source",
    "Ternary",
    "merge_adapter",
    "read_quantization",
    "unpacked",
]
