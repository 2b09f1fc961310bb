"""ERNIE 4.5: Llama that rotates adjacent pairs; every matrix may have a bias. ERNIE 4.5 MoE: ERNIE 4.5 with experts in
some layers, chosen with a bias of each, and shared ones."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Interleaved
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.families.qwen import qwen_mlp_tensors
from edgegen_export.reading.experts import with_experts, without_experts
from edgegen_export.reading.tensor_names import GATED, named_parts


def read_ernie(read: ConfigReader) -> DecoderConfig:
    """``Ernie4_5Config``."""
    read.ignore("use_bias")  # the checkpoint's tensors show it
    return read_llama(read, interleaved=True)


ERNIE4_5 = Architecture(
    model_types=("ernie4_5",),
    classes=("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"),
    read=read_ernie,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 103424,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
)


def read_ernie_moe(read: ConfigReader) -> DecoderConfig:
    """``Ernie4_5_MoeConfig``."""
    config = read_ernie(read)
    read.ignore("moe_capacity")  # of the training
    read.refuse("moe_gate", ("topk",), "experts are chosen by the greatest scores in this family")
    read.refuse("moe_use_aux_free", (True,), "experts are chosen with a bias of each in this family")
    read.refuse("use_rmsnorm", (True,), "norms are RMSNorm in this family")
    sparse = _sparse_layers(read, config.num_layers)
    if not sparse:
        without_experts(read, "moe_num_shared_experts", "moe_norm_min")
        return config
    width, shared = read.positive("moe_intermediate_size"), read.get("moe_num_shared_experts", int, 0)
    if shared < 0:
        read.problem(f"moe_num_shared_experts: must be at least 0, found {shared}")
    routing = Routing(choice_bias=True, least_sum=read.number("moe_norm_min", least=0))
    config = with_experts(read, config, "num_experts", normalized=True, width=width, layers=sparse)
    return config.each_experts(lambda own: replace(own, routing=routing, shared_width=max(0, shared) * width))


def _sparse_layers(read: ConfigReader, layers: int) -> list[int]:
    """Every ``moe_layer_interval``-th layer from ``moe_layer_start_index`` to ``moe_layer_end_index``."""
    first, last = read.get("moe_layer_start_index", int, 0), read.get("moe_layer_end_index", int, -1)
    step = read.positive("moe_layer_interval")
    return [i for i in range(layers) if first <= i <= (layers if last == -1 else last) and (i + 1) % step == 0]


def _moe_tensors(config: DecoderConfig) -> TensorMap:
    beside: TensorMap = {
        "layers.{i}.mlp.router.choice_bias": Interleaved(
            "layers.{i}.mlp.moe_statics.e_score_correction_bias", groups=1, stacked=True
        ),
        **named_parts("layers.{i}.shared", "layers.{i}.mlp.shared_experts", GATED),
    }
    return {**BESIDE_MLP, "head.bias": "lm_head.bias", **qwen_mlp_tensors(config, beside)}


ERNIE4_5_MOE = Architecture(
    model_types=("ernie4_5_moe",),
    classes=("Ernie4_5_MoeForCausalLM",),
    read=read_ernie_moe,
    tensors=_moe_tensors,
    defaults={
        **{key: value for key, value in ERNIE4_5.defaults.items() if key != "head_dim"},
        "hidden_size": 2560,
        "intermediate_size": 12288,
        "num_hidden_layers": 28,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 1536,
        "num_experts_per_tok": 6,
        "num_experts": 64,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "moe_layer_interval": 1,
        "moe_norm_min": 1e-12,
    },
    heads=(r"mtp.*",),
    aliases={
        "moe_num_experts": "num_experts",
        "num_local_experts": "num_experts",
        "moe_k": "num_experts_per_tok",
    },
)
