"""MiMo: Qwen2 with a layer that proposes further tokens.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

from dataclasses import replace

from edgegen_export.architecture.components.draft_input import DraftInput
from edgegen_export.architecture.draft_head import DraftHead
from edgegen_export.families.qwen import QWEN2

DRAFT_HEAD = DraftHead(
    "mtp_layers.0.",
    {
        "draft_in": "mtp_layers.0.input_proj",
        "draft_embed_norm": "mtp_layers.0.token_layernorm",
        "draft_hidden_norm": "mtp_layers.0.hidden_layernorm",
        "final_norm": "mtp_layers.0.final_layernorm",
    },
    takes=DraftInput(hidden_first=True),
)

MIMO = replace(
    QWEN2,
    model_types=("mimo",),
    classes=("MiMoForCausalLM",),
    heads=(r"mtp_layers\..*",),
    draft_head=DRAFT_HEAD,
)
