"""The model families edgegen exports, each as data in its own file."""

from edgegen_export.architecture import Architecture
from edgegen_export.families.gpt2 import GPT2

FAMILIES: tuple[Architecture, ...] = (GPT2,)
