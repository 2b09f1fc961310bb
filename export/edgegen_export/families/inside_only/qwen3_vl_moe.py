"""The language model of Qwen3-VL MoE: Qwen3 MoE, whose experts are stored in one tensor for each matrix."""

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import ExpertStack, Shape
from edgegen_export.families.llama import BESIDE_MLP, DENSE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen import qwen3_moe_tensors, read_qwen_experts
from edgegen_export.reading.experts import by_layer, stacked_expert_tensors
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM


def read_qwen3_vl_moe(read: ConfigReader) -> DecoderConfig:
    """``Qwen3VLMoeTextConfig``. Without pictures, its positions in three dimensions are one."""
    config = read_llama(read)
    read.refuse("norm_topk_prob", (True,), "the weights of the chosen experts must sum to one")
    return read_qwen_experts(read, with_qk_norm(config))


def stacked_tensors(config: DecoderConfig, down: Shape) -> TensorMap:
    """All experts are in one tensor: as [in, out] in published files and those that transformers 4.57 writes, as
    [out, in] in those of transformers 5.24. ``down``: the shape of a stack, which tells how all are stored."""
    if config.experts is None:
        return qwen3_moe_tensors(config)
    count, width, ours, theirs = config.experts.count, config.experts.width, "layers.{i}.mlp", "layers.{i}.mlp.experts"
    both, outputs_first = (f"{ours}.gate.weight", f"{ours}.up.weight"), (count, config.hidden_size, width)
    if down == outputs_first and width != config.hidden_size:
        experts = stacked_expert_tensors(config, ours)
    else:
        experts = {
            f"{ours}.router.weight": f"{ours}.gate.weight",
            both: ExpertStack(f"{theirs}.gate_up_proj", count, in_turns=False),
            f"{ours}.down.weight": ExpertStack(f"{theirs}.down_proj", count),
        }
    return {**BESIDE_MLP, **QK_NORM, **by_layer(config, experts, DENSE_MLP)}


QWEN3_VL_MOE_TEXT = Architecture(
    model_types=("qwen3_vl_moe_text",),
    classes=("Qwen3VLMoeTextModel",),
    read=read_qwen3_vl_moe,
    tensors=qwen3_moe_tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": 128000,
        "rope_theta": None,  # the classes of transformers 4.57 and 5.24 have different ones
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 1408,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
    },
    aliases={"num_local_experts": "num_experts"},
    variant=("experts.down_proj", stacked_tensors),
)
