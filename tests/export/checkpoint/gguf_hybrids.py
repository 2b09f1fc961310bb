"""How checkpoints of families with fixed states, Gemma 3n and 4, and families of transformers 5 become GGUF files."""

from dataclasses import dataclass

from tests.export.checkpoint import gguf_steps_of_hybrids as steps
from tests.export.checkpoint.gguf_steps import (
    Describe,
    Rearrange,
    experts,
    flat_gate,
    flat_kernels,
    granite,
    kv_heads,
    lfm2,
    llama,
    merged,
    rope,
    sizes,
    split_heads,
)


@dataclass(frozen=True)
class Family:
    """How checkpoints of a family become GGUF files; ``left``: variants that llama.cpp's format cannot say;
    ``oracles``: the versions of transformers whose names the files have, where they are not the case's first;
    ``named_like``: an architecture with the same names of tensors, where the ``gguf`` library does not know this."""

    arch: str
    describe: tuple[Describe, ...]
    rearrange: tuple[Rearrange, ...]
    left: tuple[str, ...] = ()
    oracles: tuple[int, ...] = ()
    named_like: str = ""


FAMILIES_OF_FILES = {
    "exaone": Family("exaone", (sizes, kv_heads, rope, llama), ()),
    "jais2": Family("jais2", (sizes, kv_heads, rope, llama), ()),
    "granitemoehybrid": Family(
        "granitehybrid",
        (sizes, rope, granite, steps.granitehybrid),
        (*steps.PERMUTED_HYBRID, steps.split_mlps),
        ("attention everywhere", "rotation", "theta", "linear scaling"),
    ),
    "bamba": Family("granitehybrid", (sizes, rope, steps.bamba), steps.PERMUTED_HYBRID, ("attention everywhere",)),
    "falcon_h1": Family(
        "falcon-h1",
        (sizes, kv_heads, rope, steps.falcon_h1),
        (*steps.HYBRID, steps.multiplied),
        ("norm before the gate", "groups", "epsilon", "tied", "linear scaling", "biases"),
    ),
    "nemotron_h": Family(
        "nemotron_h",
        (sizes, steps.nemotron_h),
        (steps.mamba2(lambda config: config.n_groups), steps.of_backbone),
        ("silu", "relu"),
    ),
    "mamba2": Family("mamba2", (steps.mamba2_alone,), (steps.mamba2(lambda config: config.n_groups),)),
    "mamba": Family("mamba", (steps.mamba1_alone,), (steps.mamba1,)),
    "falcon_mamba": Family("mamba", (steps.mamba1_alone,), (steps.mamba1,), ("epsilon of mixers",)),
    "jamba": Family("jamba", (sizes, steps.jamba), (steps.mamba1, steps.merged_in_model), ("gelu",)),
    "kimi_linear": Family(
        "kimi-linear",
        (steps.kimi_linear,),
        (merged, split_heads, steps.of_delta_attention),
        ("sizes by name", "groups", "need not add up", "listed experts"),
    ),
    "bailing_hybrid": Family(
        "bailingmoe3",
        (rope, steps.ling),
        (merged, split_heads, steps.of_ling, steps.of_delta_attention),
        named_like="kimi-linear",
    ),
    "lfm2_moe": Family(
        "lfm2moe",
        (sizes, rope, lfm2, experts, steps.lfm2_moe),
        (merged, flat_kernels, steps.named_choice_bias),
        ("need not add up", "neither", "scaled", "bias of convolutions", "untied"),
    ),
    "nemotron_h_moe": Family(
        "nemotron_h_moe",
        (sizes, steps.nemotron_h_moe),
        (steps.mamba2(lambda config: config.n_groups), steps.of_backbone, steps.stacked_experts),
        ("silu",),
    ),
    "qwen3_next": Family(
        "qwen3next",
        (sizes, kv_heads, rope, experts, steps.delta_nets),
        (merged, flat_gate, steps.one_plus_but_of_nets, steps.ungrouped_by_key),
        ("attention first", "weights that do not add up", "experts in one layer", "no experts in any layer"),
    ),
    "qwen3_5_text": Family(
        "qwen35",
        (sizes, kv_heads, steps.delta_nets, steps.qwen3_5),
        (steps.one_plus_but_of_nets, steps.tiled_values),
        ("attention first",),
    ),
    "qwen3_5_moe_text": Family(
        "qwen35moe",
        (sizes, kv_heads, experts, steps.delta_nets, steps.qwen3_5),
        (merged, flat_gate, steps.one_plus_but_of_nets, steps.tiled_values),
        ("attention first",),
    ),
    "gemma3n_text": Family(
        "gemma3n",
        (sizes, steps.gemma3n),
        (steps.stacked_streams,),
        ("unscaled", "at its mean", "attention bias", "gelu"),
        oracles=(5,),
    ),
    "gemma4_text": Family(
        "gemma4",
        (sizes, steps.gemma4),
        (steps.proportional,),
        (
            "slower rotation",
            "plain rotation",
            "gelu",
            "attention bias",
            "E2B, wide table",
            "last layer with a window",
            "expert",
        ),
    ),
}
