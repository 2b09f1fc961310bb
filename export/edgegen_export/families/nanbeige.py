"""Nanbeige 4.2: a Llama whose layers all run again, after the final norm, with a KV cache for each pass."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.pass_start import PassStart
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.passes import in_passes

_OTHERS = """
    emb_neighbor_num enable_depth_attention enable_double_loop_split enable_h_res_identity enable_hyper_connection
    enable_mhc insert_ngram_layer_idx loop_middle_layers loop_share_kv ngram_insert_all_layers qk_layernorm
"""


def read_nanbeige(read: ConfigReader) -> DecoderConfig:
    """``NanbeigeConfig``."""
    config = read_llama(read)
    if config.attentions and read.has("kv_channels"):
        read.agree("kv_channels", config.attention.head_dim, "head_dim")
    for key in _OTHERS.split():
        read.refuse(key, (False, 0, []), "no published model has it, and it is not supported")
    read.ignore("loop_loss_weights")  # of training
    passes, layers = read.count("num_loops"), config.num_layers
    start = PassStart(normed=not read.flag("skip_loop_final_norm"))
    order = [*range(layers)] * passes
    return in_passes(config, order, dict.fromkeys(range(layers, len(order), layers), start))


NANBEIGE = Architecture(
    model_types=("nanbeige",),
    classes=("NanbeigeForCausalLM",),
    read=read_nanbeige,
    tensors={**LLAMA_TENSORS, "pass_norm.weight": "norm.weight"},
    defaults={**LLAMA_DEFAULTS, "num_loops": 1},
)
