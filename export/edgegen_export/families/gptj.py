"""GPT-J: parallel blocks with one norm, partial RoPE on adjacent pairs, head with a bias. CodeGen: GPT-J whose queries,
values and keys are fused in four shares."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.rope import Rope
from edgegen_export.architecture.tensor_layouts import Interleaved
from edgegen_export.families.gpt2 import GPT2_ALIASES, GPT2_DEFAULTS, read_gpt2
from edgegen_export.reading.layer_types import rotating
from edgegen_export.reading.tensor_names import named, named_parts


def read_gptj(read: ConfigReader) -> DecoderConfig:
    """``GPTJConfig``, whose keys are those of GPT-2."""
    read.refuse("scale_attn_weights", (True,), "unscaled attention is not part of this family")
    read.refuse("scale_attn_by_inverse_layer_idx", (False,), "scores scaled by layer are not part of this family")
    config = read_gpt2(read)
    rotated = read.optional("rotary_dim", int) or config.attention.head_dim
    if (rotated % 2 or not 0 < rotated <= config.attention.head_dim) and read.sound("head_dim"):
        read.problem(f"rotary_dim = {rotated}: of a head of {config.attention.head_dim}, an even number can be rotated")
    read.ignore("rotary")
    rope = Rope(10000.0, rotated, interleaved=True)
    config = rotating(config, rope, [True] * config.num_layers)
    return replace(config, block="parallel", extras=())


GPTJ_TENSORS = {
    "embed.weight": "wte.weight",
    **named("layers.{i}.attn_norm", "h.{i}.ln_1"),
    **named_parts("layers.{i}.attn", "h.{i}.attn", {x: f"{x}_proj" for x in "qkv"}),
    **named("layers.{i}.attn.o", "h.{i}.attn.out_proj"),
    **named("layers.{i}.mlp.up", "h.{i}.mlp.fc_in"),
    **named("layers.{i}.mlp.down", "h.{i}.mlp.fc_out"),
    **named("final_norm", "ln_f"),
    **named("head", "lm_head"),
}

GPTJ = Architecture(
    model_types=("gptj",),
    classes=("GPTJForCausalLM",),
    read=read_gptj,
    tensors=GPTJ_TENSORS,
    defaults={
        **GPT2_DEFAULTS,
        "vocab_size": 50400,
        "n_positions": 2048,
        "n_embd": 4096,
        "n_layer": 28,
        "n_head": 16,
        "rotary_dim": 64,
        "tie_word_embeddings": False,
    },
    prefixes=("", "transformer."),
    ignored=(r"h\.\d+\.attn\.(bias|masked_bias|embed_positions)",),
    aliases=GPT2_ALIASES,
)


SHARES = 4
"""The processors that each model was trained on, whose shares are stored one after the other."""


def read_codegen(read: ConfigReader) -> DecoderConfig:
    """``CodeGenConfig``."""
    config = read_gptj(read)
    if config.attention.heads % SHARES:
        read.problem(f"n_head = {config.attention.heads}: a multiple of {SHARES} expected, as attention is stored so")
    return config


CODEGEN = replace(
    GPTJ,
    model_types=("codegen",),
    classes=("CodeGenForCausalLM",),
    read=read_codegen,
    tensors={
        **{ours: theirs for ours, theirs in GPTJ_TENSORS.items() if not str(ours).startswith("layers.{i}.attn.")},
        tuple(f"layers.{{i}}.attn.{x}.weight" for x in "qvk"): Interleaved("h.{i}.attn.qkv_proj.weight", SHARES),
        "layers.{i}.attn.o.weight": "h.{i}.attn.out_proj.weight",
    },
    ignored=(r"h\.\d+\.attn\.(causal_mask|bias|masked_bias|embed_positions)",),
)
