"""CodeGen: GPT-J whose queries, values and keys are fused in four shares."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Interleaved
from edgegen_export.families.gpt2 import GPT2_ALIASES
from edgegen_export.families.gptj import GPTJ, GPTJ_TENSORS, read_gptj

SHARES = 4
"""The processors that each model was trained on, whose shares are stored one after the other."""


def read_codegen(read: ConfigReader) -> DecoderConfig:
    """``CodeGenConfig``."""
    config = read_gptj(read)
    if config.attention.heads % SHARES:
        read.problem(f"n_head = {config.attention.heads}: a multiple of {SHARES} expected, as attention is stored so")
    return config


CODEGEN = Architecture(
    model_types=("codegen",),
    classes=("CodeGenForCausalLM",),
    read=read_codegen,
    tensors={
        **{ours: theirs for ours, theirs in GPTJ_TENSORS.items() if not str(ours).startswith("layers.{i}.attn.")},
        tuple(f"layers.{{i}}.attn.{x}.weight" for x in "qvk"): Interleaved("h.{i}.attn.qkv_proj.weight", SHARES),
        "layers.{i}.attn.o.weight": "h.{i}.attn.out_proj.weight",
    },
    defaults=GPTJ.defaults,
    prefixes=GPTJ.prefixes,
    ignored=(r"h\.\d+\.attn\.(causal_mask|bias|masked_bias|embed_positions)",),
    aliases=GPT2_ALIASES,
)
