"""Falcon in its three variants: 7b (parallel, multi-query attention), 40b and 180b (parallel with two norms, GQA with
fused QKV), rw (sequential, ALiBi).

Falcon-H1: Llama with a Mamba-2 mixer beside the attention of every layer, and multipliers of most matrices.
"""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Alibi
from edgegen_export.architecture.components.mamba2 import Mamba2
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.config import Block, DecoderConfig, Layer, Multiplier
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.bamba import BAMBA_TENSORS
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.families.mamba2 import MIXER_DEFAULTS, read_mixer
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.parts import ACTIVATIONS, alibi_slopes, layer_norm
from edgegen_export.reading.rope import read_rope
from edgegen_export.reading.tensor_names import megatron_layer, named


def read_falcon(read: ConfigReader) -> DecoderConfig:
    """``FalconConfig``."""
    attention = read_heads(read, kv_key="num_kv_heads")
    new, multi_query = read.flag("new_decoder_architecture"), read.flag("multi_query")
    rope = read_rope(read, attention.head_dim, read.positive("max_position_embeddings"))
    read.ignore("bias")
    read.refuse(
        "apply_residual_connection_post_layernorm", (False,), "residuals taken after the norm are not supported"
    )
    heads = attention.heads
    attention = replace(attention, rope=rope, kv_heads=attention.kv_heads if new else 1 if multi_query else heads)
    if read.flag("alibi"):  # the model's own code rounds slope · position to bfloat16, and scales it with the scores
        rounded = Alibi(alibi_slopes(heads, bfloat16=True), attention.scale, bfloat16=True)
        attention = replace(attention, rope=None, alibi=rounded)
    inner = read.positive("ffn_hidden_size", 4 * read.positive("hidden_size"))
    layers = [Layer(attention, MLP(inner, read.choice("activation", ACTIVATIONS, "gelu")))]
    norm = layer_norm(read.number("layer_norm_epsilon", least=0))
    config = read_decoder(read, layers * read.count("num_hidden_layers"), norm, attention.rope)
    return replace(config, block=_block(read, new))


def _block(read: ConfigReader, new: bool) -> Block:
    parallel, norms = read.flag("parallel_attn"), read.get("num_ln_in_parallel_attn", int, 2 if new else 1)
    if (new and not parallel) or norms not in (1, 2) or (norms == 2 and parallel and not new):
        read.problem(
            f"new_decoder_architecture = {new} with parallel_attn = {parallel} and {norms} norms: "
            "no released model is built so"
        )
    if not parallel:
        return "sequential"
    return "parallel_two_norms" if norms == 2 else "parallel"


def _falcon_tensors(config: DecoderConfig) -> TensorMap:
    first, second = {
        "sequential": ("input_layernorm", "post_attention_layernorm"),
        "parallel": ("input_layernorm", ""),
    }.get(config.block, ("ln_attn", "ln_mlp"))
    return {
        "embed.weight": "word_embeddings.weight",
        **megatron_layer("h.{i}", "self_attention", config.attention.kv_heads),
        **named("layers.{i}.attn_norm", f"h.{{i}}.{first}"),
        **named("layers.{i}.mlp_norm", f"h.{{i}}.{second}"),
        **named("final_norm", "ln_f"),
        "head.weight": "lm_head.weight",
    }


FALCON = Architecture(
    model_types=("falcon",),
    classes=("FalconForCausalLM",),
    read=read_falcon,
    tensors=_falcon_tensors,
    defaults={
        "vocab_size": 65024,
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "layer_norm_epsilon": 1e-5,
        "multi_query": True,
        "parallel_attn": True,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    },
    prefixes=("", "transformer."),
    aliases={"n_embed": "hidden_size"},
)


def read_falcon_h1(read: ConfigReader) -> DecoderConfig:
    """``FalconH1Config``."""
    config = read_llama(read)
    mixer = _mixer(read, config)
    read.refuse("mamba_use_mlp", (True,), "layers without an MLP are not supported")
    read.refuse("attn_layer_indices", (), "layers without attention are not supported")
    read.refuse("sliding_window", (), "windows are not supported")
    read.ignore("projectors_bias")  # the checkpoint's tensors show it
    read.ignore("num_logits_to_keep", "mlp_expansion_factor", "layers_block_type", "layer_types")
    embedding = read.number("embedding_multiplier")
    if not embedding:
        read.problem("embedding_multiplier: must not be zero")
    return replace(
        config.each_layer(lambda own: replace(own, mixer=mixer)),
        embedding_multiplier=embedding,
        logit_multiplier=read.number("lm_head_multiplier"),
        multipliers=_multipliers(read),
    )


def _mixer(read: ConfigReader, config: DecoderConfig) -> Mamba2:
    mixer = read_mixer(read, config)
    before = read.flag("mamba_norm_before_gate", True)
    if not read.flag("mamba_rms_norm"):
        return replace(mixer, eps=None)
    return replace(mixer, gate_last=before)


def _multipliers(read: ConfigReader) -> tuple[Multiplier, ...]:
    mlp = read.factors("mlp_multipliers", 2) if read.has("mlp_multipliers") else (1.0,) * 2
    ssm = read.factors("ssm_multipliers", 5) if read.has("ssm_multipliers") else (1.0,) * 5
    attended, mixed = read.number("attention_in_multiplier"), read.number("ssm_in_multiplier")
    return (
        Multiplier("attn.q", attended),
        Multiplier("attn.k", attended, read.number("key_multiplier")),
        Multiplier("attn.v", attended),
        Multiplier("attn.o", gives=read.number("attention_out_multiplier")),
        *(Multiplier(f"mamba.{name}", mixed, each) for name, each in zip(("z", "x", "b", "c", "dt"), ssm, strict=True)),
        Multiplier("mamba.out", gives=read.number("ssm_out_multiplier")),
        Multiplier("mlp.gate", gives=mlp[0]),
        Multiplier("mlp.down", gives=mlp[1]),
    )


FALCON_H1 = Architecture(
    model_types=("falcon_h1",),
    classes=("FalconH1ForCausalLM",),
    read=read_falcon_h1,
    tensors=BAMBA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 128000,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "mamba_d_ssm": 1024,
        **MIXER_DEFAULTS,
        **{
            f"{name}_multiplier": 1.0
            for name in ("embedding", "lm_head", "key", "attention_in", "attention_out", "ssm_in", "ssm_out")
        },
    },
)
