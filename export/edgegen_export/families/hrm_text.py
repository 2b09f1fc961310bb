"""HRM-Text: two stacks of layers that take turns, each in several passes over what both have made so far."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Gate
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.passes import in_passes, of_layer
from edgegen_export.reading.tensor_names import named


def read_hrm_text(read: ConfigReader) -> DecoderConfig:
    """``HrmTextConfig``. The low stack's layers are the first ones, the high stack's those after them."""
    high, low = read.count("H_cycles"), read.count("L_cycles")
    config = read_llama(read, norm=Norm("rms", read.number("rms_norm_eps", least=0), weight=False))
    stack, slots = config.num_layers, high * (low + 1)
    if read.has("num_layers_per_stack"):
        stack = read.count("num_layers_per_stack")
        read.agree("num_hidden_layers", stack * slots, "num_layers_per_stack, once for each pass")
    if read.flag("prefix_lm"):
        read.problem(
            "prefix_lm = True: its attention to the prompt is not causal; with false, it is exported with causal "
            "attention, as without token types"
        )
    read.ignore("L_bp_cycles")  # of training
    read.refuse("num_key_value_heads", (config.attention.heads,), "every query head has keys and values of its own")
    config = config.each_attention(lambda own: replace(own, kv_heads=own.heads, gate=Gate("channel")))
    passes = ([*range(stack)] * low + [*range(stack, 2 * stack)]) * high
    scale = read.optional("embedding_scale", float)
    return in_passes(
        replace(
            config,
            layers=config.layers[:1] * 2 * stack,
            embedding_multiplier=1 / read.above_zero("initializer_range") if scale is None else scale,
        ),
        passes,
        {at: _start(at // stack, low) for at in range(0, len(passes), stack)},
    )


def _start(number: int, low: int) -> PassStart:
    """Return the start of a pass: the high stack's comes after ``low`` of the low stack's."""
    if number == 0:
        return PassStart("begins", normed=False, offset=True)
    return PassStart("stays" if number % (low + 1) in range(1, low) else "change", offset=True)


_AROUND: TensorMap = {
    "embed.weight": "embed_tokens.weight",
    "pass_offset.weight": "z_L_init",
    "head.weight": "lm_head.weight",
}
_LAYER: TensorMap = {
    **{ours: theirs for ours, theirs in LLAMA_TENSORS.items() if ".attn." in ours or ".mlp." in ours},
    **named("layers.{i}.attn.gate", "layers.{i}.self_attn.gate_proj"),
}
_FUSED: TensorMap = {
    tuple(f"layers.{{i}}.attn.{x}.weight" for x in ("gate", "q", "k", "v")): Concatenated(
        "layers.{i}.attn.gqkv_proj.weight"
    ),
    **named("layers.{i}.attn.o", "layers.{i}.attn.o_proj"),
    tuple(f"layers.{{i}}.mlp.{x}.weight" for x in ("gate", "up")): Concatenated("layers.{i}.mlp.gate_up_proj.weight"),
    **{ours: theirs for ours, theirs in _LAYER.items() if "mlp.down" in str(ours)},
    **{ours: theirs for ours, theirs in _LAYER.items() if str(ours).endswith(".bias") and "attn.o" not in str(ours)},
}
"""Names of the fused layout. Fused matrices have no bias there; transformers writes biases all the same."""


def tensors(config: DecoderConfig) -> TensorMap:
    """As transformers names them."""
    return _of_stacks(config, _LAYER)


def _of_stacks(config: DecoderConfig, layer: TensorMap) -> TensorMap:
    found, stored = dict(_AROUND), [*config.passes]
    for number, ours in enumerate(stored):
        stack, theirs = divmod(number, len(stored) // 2)
        found |= of_layer(layer, ours, f"{'LH'[stack]}_module.layers.{theirs}")
    return found


HRM_TEXT = Architecture(
    model_types=("hrm_text",),
    classes=("HrmTextForCausalLM",),
    read=read_hrm_text,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 151808,
        "hidden_size": 1536,
        "intermediate_size": 4096,
        "num_hidden_layers": 16,
        "num_attention_heads": 12,
        "head_dim": 128,
        "initializer_range": 0.02,
        "H_cycles": 2,
        "L_cycles": 3,
        "prefix_lm": True,
    },
    # As the model's own code writes them.
    variant=("attn.gqkv_proj.weight", lambda config, _: _of_stacks(config, _FUSED)),
)
