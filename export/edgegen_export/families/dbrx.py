"""DBRX: LayerNorm without a bias, clamped q, k and v, and experts that are stored one below the other."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Concatenated, ExpertStack
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.experts import with_experts
from edgegen_export.reading.rope import read_rope

_ATTENTION = {"kv_n_heads": 1, "clip_qkv": None}
_EXPERTS = {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1, "moe_normalize_expert_weights": 1.0}


def read_dbrx(read: ConfigReader) -> DecoderConfig:
    """``DbrxConfig``."""
    plain = read_heads(read, hidden_key="d_model", heads_key="n_heads")
    heads, positions = plain.heads, read.positive("max_seq_len")
    own = _part(read, "attn_config", _ATTENTION)
    theta = own.optional("rope_theta", float)
    rope = read_rope(read.with_defaults({"rope_theta": 10000.0 if theta is None else theta}), plain.head_dim, positions)
    own.agree("rope_theta", rope.theta, "rope_parameters.rope_theta")
    kv_heads = own.kv_heads(heads, "n_heads", "kv_n_heads")
    read.agree("num_key_value_heads", kv_heads, "attn_config.kv_n_heads")
    experts = _part(read, "ffn_config", _EXPERTS)
    experts.ignore("hidden_size", "moe_jitter_eps", "moe_loss_weight")
    experts.refuse("ffn_act_fn", ({"name": "silu"},), "experts are supported with silu only")
    experts.refuse("moe_normalize_expert_weights", (1.0,), "the weights of experts add up to one, or are as they are")
    read.ignore("emb_pdrop", "output_router_logits")
    attention = replace(plain, kv_heads=kv_heads, rope=rope, clip=own.limit("clip_qkv"))
    layer = Layer(attention, MLP(experts.positive("ffn_hidden_size"), "silu", gated=True))
    layers, norm = [layer] * read.count("n_layers"), Norm("layer", 1e-5)
    config = read_decoder(read, layers, norm, rope, hidden_key="d_model", positions_key="max_seq_len")
    normalized = experts.has("moe_normalize_expert_weights")
    return with_experts(experts, config, "moe_num_experts", normalized=normalized, per_token_key="moe_top_k")


def _part(read: ConfigReader, key: str, defaults: Mapping[str, float | None]) -> ConfigReader:
    """The config under ``key``; one of its class's defaults where there is none."""
    own = read.inner(key, defaults) or ConfigReader({}, defaults)
    own.ignore("tie_word_embeddings")  # older writers of it repeat what every config class has
    return own


def tensors(config: DecoderConfig) -> TensorMap:
    assert config.experts
    attention, experts = "blocks.{i}.norm_attn_norm", "blocks.{i}.ffn.experts.mlp"
    return {
        "embed.weight": "wte.weight",
        "layers.{i}.attn_norm.weight": f"{attention}.norm_1.weight",
        tuple(f"layers.{{i}}.attn.{x}.weight" for x in "qkv"): Concatenated(f"{attention}.attn.Wqkv.weight"),
        "layers.{i}.attn.o.weight": f"{attention}.attn.out_proj.weight",
        "layers.{i}.mlp_norm.weight": f"{attention}.norm_2.weight",
        "layers.{i}.mlp.router.weight": "blocks.{i}.ffn.router.layer.weight",
        "layers.{i}.mlp.gate.weight": f"{experts}.w1",
        "layers.{i}.mlp.up.weight": f"{experts}.v1",
        "layers.{i}.mlp.down.weight": ExpertStack(f"{experts}.w2", config.experts.count, flat=True),
        "final_norm.weight": "norm_f.weight",
        "head.weight": "lm_head.weight",
    }


DBRX = Architecture(
    model_types=("dbrx",),
    classes=("DbrxForCausalLM",),
    read=read_dbrx,
    tensors=tensors,
    defaults={"d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048, "vocab_size": 32000},
    prefixes=("", "transformer."),
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "max_position_embeddings": "max_seq_len",
    },
)
