"""Apertus: Llama with QK norm and an MLP without gate, whose xIELU has trained numbers in every layer."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA3_SCALING, LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.parts import ACTIVATIONS, with_qk_norm, without_gate
from edgegen_export.reading.tensor_names import QK_NORM


def read_apertus(read: ConfigReader) -> DecoderConfig:
    """``ApertusConfig``."""
    config = read_llama(read, activations={**ACTIVATIONS, "xielu": "xielu"})
    read.refuse("qk_norm", (True,), "only models with QK norm are known")
    read.refuse(
        "output_vocab_size", (read.positive("vocab_size"),), "a head smaller than the embedding is not supported"
    )
    read.refuse("post_norm", (False,), "norms after attention and MLP are not known of this family")
    return with_qk_norm(without_gate(config))


APERTUS = Architecture(
    model_types=("apertus",),
    classes=("ApertusForCausalLM",),
    read=read_apertus,
    tensors={
        **LLAMA_TENSORS,
        **QK_NORM,
        "layers.{i}.attn_norm.weight": "layers.{i}.attention_layernorm.weight",
        "layers.{i}.mlp_norm.weight": "layers.{i}.feedforward_layernorm.weight",
        **{f"layers.{{i}}.mlp.act.{x}": f"layers.{{i}}.mlp.act_fn.{x}" for x in ("alpha_p", "alpha_n", "beta")},
    },
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 131072,
        "intermediate_size": 14336,
        "hidden_act": "xielu",
        "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-5,
        "rope_theta": 12000000.0,
        "rope_scaling": LLAMA3_SCALING,
    },
    ignored=(r"layers\.\d+\.mlp\.act_fn\.eps",),
)

APERTUS1P5 = replace(
    APERTUS,
    model_types=("apertus1p5_text",),
    classes=("Apertus1p5TextForCausalLM",),
    defaults={**APERTUS.defaults, "vocab_size": 266752},
)
