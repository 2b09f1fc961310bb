"""EXAONE 3 and 3.5: Llama whose keys and tensors have other names."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama

_LAYER = "h.{i}"

EXAONE = Architecture(
    model_types=("exaone",),
    classes=("ExaoneForCausalLM", "LlamaForCausalLM"),
    read=read_llama,
    tensors={
        "embed.weight": "wte.weight",
        "layers.{i}.attn_norm.weight": f"{_LAYER}.ln_1.weight",
        **{f"layers.{{i}}.attn.{x}.weight": f"{_LAYER}.attn.attention.{x}_proj.weight" for x in "qkv"},
        "layers.{i}.attn.o.weight": f"{_LAYER}.attn.attention.out_proj.weight",
        "layers.{i}.mlp_norm.weight": f"{_LAYER}.ln_2.weight",
        "layers.{i}.mlp.gate.weight": f"{_LAYER}.mlp.c_fc_0.weight",
        "layers.{i}.mlp.up.weight": f"{_LAYER}.mlp.c_fc_1.weight",
        "layers.{i}.mlp.down.weight": f"{_LAYER}.mlp.c_proj.weight",
        "final_norm.weight": "ln_f.weight",
        "head.weight": "lm_head.weight",
    },
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 102400,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
    },
    prefixes=("", "transformer."),
    aliases={
        "num_layers": "num_hidden_layers",
        "layer_norm_epsilon": "rms_norm_eps",
        "activation_function": "hidden_act",
    },
)
