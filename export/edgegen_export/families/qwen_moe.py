"""Qwen3 MoE: Qwen3 with experts."""

from dataclasses import replace

from edgegen_export.architecture import Architecture, TensorMap
from edgegen_export.config import DecoderConfig, QKNorm
from edgegen_export.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_PREFIXES, LLAMA_TENSORS, read_llama
from edgegen_export.families.qwen import QWEN_DEFAULTS
from edgegen_export.families.shared import QK_NORM, read_window, sliding
