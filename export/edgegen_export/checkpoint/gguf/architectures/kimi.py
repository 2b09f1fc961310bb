"""Kimi delta attention, among layers of latent attention: Kimi Linear."""

from dataclasses import replace

from edgegen_export.checkpoint.gguf.architecture import modules
from edgegen_export.checkpoint.gguf.architectures.experts_behind_dense import as_deepseek
from edgegen_export.checkpoint.gguf.architectures.latent import DEEPSEEK2, LATENT, latent_sizes
from edgegen_export.checkpoint.gguf.architectures.llama_like import NORMS, PREFIX, TOP
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Each, Kernels, Parameter, Rates
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader


def _delta_attention(read: MetadataReader) -> Entries:
    """Layers without key heads have it, with as many heads as the others."""
    attends = read.layers_with_attention()
    return {
        "linear_attn_config": {
            "head_dim": read.integer("kda.head_dim"),
            "num_heads": read.integer("attention.head_count"),
            "short_conv_kernel_size": read.integer("ssm.conv_kernel"),
            "kda_layers": [i + 1 for i, attending in enumerate(attends) if not attending],
            "full_attn_layers": [i + 1 for i, attending in enumerate(attends) if attending],
        }
    }


def _normalized(read: MetadataReader) -> Entries:
    """Always so in llama.cpp, and nothing in its files says it."""
    read.refuse("expert_weights_norm", (True,), "the weights of experts add up to one in this architecture")
    return {"norm_topk_prob": True}


_MOE = "block_sparse_moe"
KIMI_LINEAR = replace(
    DEEPSEEK2,
    model_type="kimi_linear",
    hf_class="KimiLinearForCausalLM",
    modules=modules(
        TOP,
        {
            **NORMS,
            **LATENT,
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            **{f"ssm_conv1d_{x}": Kernels(f"self_attn.{x}_conv1d") for x in "qkv"},
            **{f"ssm_{x}": f"self_attn.{x}_proj" for x in ("f_a", "f_b", "g_a", "g_b")},
            "ssm_beta": "self_attn.b_proj",
            "ssm_a": Rates("self_attn.A_log", before=2, after=1),
            "ssm_dt": Parameter("self_attn.dt"),
            "ssm_norm": "self_attn.o_norm",
            **{f"ffn_{x}": f"{_MOE}.{x}_proj" for x in ("gate", "up", "down")},  # as transformers 5 writes them
            "ffn_gate_inp": f"{_MOE}.gate",
            "exp_probs_b": Parameter(f"{_MOE}.gate.e_score_correction"),
            **{
                f"ffn_{x}_exps": Each(f"{_MOE}.experts.{{n}}.{name}")
                for x, name in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
            },
            **{f"ffn_{x}_shexp": f"{_MOE}.shared_experts.{x}_proj" for x in ("gate", "up", "down")},
        },
        PREFIX,
    ),
    rules=(_delta_attention, latent_sizes, *as_deepseek("num_experts", "num_shared_experts"), _normalized),
)
