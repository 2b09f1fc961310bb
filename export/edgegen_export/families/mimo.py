"""MiMo: Qwen2 with layers that propose further tokens, which are left out.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

from dataclasses import replace

from edgegen_export.families.qwen import QWEN2

MIMO = replace(QWEN2, model_types=("mimo",), classes=("MiMoForCausalLM",), ignored=(r"mtp_layers\..*",))
