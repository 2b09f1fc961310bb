"""DeepSeekMoE, and Ling of the first generation: Llama with experts after the first layers, weighed by a softmax, with
shared ones.

transformers does not have it: its checkpoints bring code of their own, which is never run.
"""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen3_moe import BESIDE_MLP, qwen_mlp_tensors
from edgegen_export.reading.experts import SHARED_EXPERTS, behind_dense, with_experts, without_experts


def read_deepseek(read: ConfigReader) -> DecoderConfig:
    """``DeepseekConfig``."""
    config = read_llama(read)
    read.ignore("ep_size", "seq_aux", "aux_loss_alpha")  # of training and serving
    read.refuse("moe_layer_freq", (1,), "all layers behind the dense ones have experts in this family")
    read.refuse("scoring_func", ("softmax",), "experts are weighed by a softmax only in this family")
    layers = behind_dense(read, "first_k_dense_replace", config.num_layers)
    if not layers:
        without_experts(read, "n_routed_experts", "n_shared_experts")
        return config
    width, normalized = read.positive("moe_intermediate_size"), read.flag("norm_topk_prob")
    config = with_experts(read, config, "n_routed_experts", normalized=normalized, width=width, layers=layers)
    routing = Routing(epsilon=1e-20 if normalized else 0.0)
    shared = width * read.count("n_shared_experts")
    return config.each_experts(lambda own: replace(own, routing=routing, shared_width=shared))


def tensors(config: DecoderConfig) -> TensorMap:
    return {**BESIDE_MLP, **qwen_mlp_tensors(config, SHARED_EXPERTS)}


DEEPSEEK = Architecture(
    model_types=("deepseek",),
    classes=("DeepseekForCausalLM",),
    read=read_deepseek,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 102400,
        "moe_intermediate_size": 1407,
        "num_key_value_heads": 32,
        "first_k_dense_replace": 0,
        "norm_topk_prob": False,
    },
    aliases={"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"},
)
