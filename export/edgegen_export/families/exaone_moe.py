"""EXAONE 4 MoE (K-EXAONE): EXAONE 4 with norms before each sublayer, and experts routed as in DeepSeek-V3 with shared
ones."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.exaone4 import EXAONE4, read_exaone4
from edgegen_export.families.qwen3_moe import BESIDE_MLP, qwen_mlp_tensors
from edgegen_export.reading.experts import SHARED_EXPERTS, behind_dense, read_mlp_types, with_deepseek_experts
from edgegen_export.reading.tensor_names import QK_NORM


def read_exaone_moe(read: ConfigReader) -> DecoderConfig:
    """``ExaoneMoeConfig``."""
    config = replace(read_exaone4(read), block="sequential")
    dense = behind_dense(read, "first_k_dense_replace", config.num_layers)
    sparse = read_mlp_types(read, config.num_layers, dense)
    return with_deepseek_experts(read, config, sparse, count_key="num_experts", shared_key="num_shared_experts")


def tensors(config: DecoderConfig) -> TensorMap:
    bias: TensorMap = {"layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.e_score_correction_bias"}
    return {**BESIDE_MLP, **QK_NORM, **qwen_mlp_tensors(config, {**SHARED_EXPERTS, **bias})}


EXAONE_MOE = Architecture(
    model_types=("exaone_moe",),
    classes=("ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"),
    read=read_exaone_moe,
    tensors=tensors,
    defaults={
        **EXAONE4.defaults,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 1024,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "num_shared_experts": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "n_group": 1,
        "topk_group": 1,
    },
    heads=(r"mtp.*",),
    aliases={"num_local_experts": "num_experts"},
)
