"""RWKV-7, without attention: its time mixing and channel mixing."""

from collections.abc import Mapping

from edgegen_export.checkpoint.gguf.architecture import LAYER_NORM_EPS, OF_STREAM, GgufArchitecture
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Blends, ByNetHead, NetHeads, Parameter
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader


def _heads(read: MetadataReader) -> Entries:
    """No attention, and so no heads of it: those of time mixing."""
    read.attends = False
    read.refuse("attention.head_count", (0,), "this architecture has none")
    read.refuse("token_shift_count", (2,), "both halves of a layer take the token before in this architecture")
    size = read.integer("wkv.head_size")
    if read.hidden_size % size:
        read.wrong("wkv.head_size", f"embedding_length = {read.hidden_size} is not a multiple of {size}")
    heads = max(1, read.hidden_size // size)
    read.net = NetHeads(heads, heads, size, size)
    return {"head_dim": size}


_LOW_RANK = {f"time_mix_{x}{place}": f"attn.{x}_lora.lora.{k}" for x in "wavg" for place, k in ((1, 0), (2, 2))}

RWKV7 = GgufArchitecture(
    model_type="rwkv7",
    integers={
        **OF_STREAM,
        "feed_forward_length": "intermediate_size",
        "attention.decay_lora_rank": "decay_low_rank_dim",
        "attention.iclr_lora_rank": "a_low_rank_dim",
        "attention.value_residual_mix_lora_rank": "v_low_rank_dim",
        "attention.gate_lora_rank": "gate_low_rank_dim",
    },
    reals={LAYER_NORM_EPS: "norm_eps"},
    layer={
        "attn_norm": "attn_norm",
        "attn_norm_2": "ffn_norm",
        **_LOW_RANK,
        **{f"time_mix_{x}0": Parameter(f"attn.{x}_lora.lora.2.bias") for x in "wav"},
        "time_mix_lerp_fused": Blends("attn.x_{part}", "rwkvag"),
        "time_mix_k_k": Parameter("attn.k_k"),
        "time_mix_k_a": Parameter("attn.k_a"),
        "time_mix_r_k": ByNetHead("attn.r_k"),
        "time_mix_receptance": "attn.r_proj",
        "time_mix_key": "attn.k_proj",
        "time_mix_value": "attn.v_proj",
        "time_mix_output": "attn.o_proj",
        "time_mix_ln": "attn.g_norm",
        "channel_mix_lerp_k": Parameter("ffn.x_k"),
        "channel_mix_key": "ffn.key",
        "channel_mix_value": "ffn.value",
    },
    top={
        "token_embd": "model.embeddings",
        "token_embd_norm": "model.layers.0.pre_norm",
        "output_norm": "model.norm",
        "output": "lm_head",
    },
    rules=(_heads,),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "rwkv7": RWKV7,
}
