"""OPT: learned positions with an offset of two, separate projections; the 350m model has post-norm layers and a smaller
embedding size."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.learned_positions import LearnedPositions
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Skipping
from edgegen_export.reading.decoder import read_decoder, read_heads
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.tensor_names import named, named_parts


def read_opt(read: ConfigReader) -> DecoderConfig:
    """``OPTConfig``."""
    affine = read.flag("layer_norm_elementwise_affine")
    before = read.flag("do_layer_norm_before")
    read.ignore("dropout", "activation_dropout", "layerdrop", "init_std", "enable_bias")
    mlp = MLP(read.positive("ffn_dim"), read.choice("activation_function", ACTIVATIONS, "relu"))
    layers = [Layer(read_heads(read), mlp)] * read.count("num_hidden_layers")
    config = read_decoder(read, layers, Norm("layer", 1e-5, weight=affine, bias=affine))
    return replace(
        config,
        block="sequential" if before else "norm_after_sum",
        extras=(LearnedPositions(config.max_positions),),
        embedding_size=read.positive("word_embed_proj_dim", config.hidden_size),
        final_norm=before and not read.flag("_remove_final_layer_norm"),
    )


OPT_LAYERS: TensorMap = {
    "embed.weight": "embed_tokens.weight",
    "positions.weight": Skipping("embed_positions.weight", rows=2),
    **named("layers.{i}.attn_norm", "layers.{i}.self_attn_layer_norm"),
    **named_parts("layers.{i}.attn", "layers.{i}.self_attn", {x: f"{x}_proj" for x in "qkv"}),
    **named("layers.{i}.attn.o", "layers.{i}.self_attn.out_proj"),
    **named("layers.{i}.mlp_norm", "layers.{i}.final_layer_norm"),
    **named("layers.{i}.mlp.up", "layers.{i}.fc1"),
    **named("layers.{i}.mlp.down", "layers.{i}.fc2"),
}
"""Names of tensors of embeddings and layers."""

OPT = Architecture(
    model_types=("opt",),
    classes=("OPTForCausalLM",),
    read=read_opt,
    tensors={
        **OPT_LAYERS,
        "embed_in.weight": "project_in.weight",
        **named("final_norm", "final_layer_norm"),
        "head_in.weight": "project_out.weight",
        "head.weight": "lm_head.weight",
    },
    defaults={
        "vocab_size": 50272,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "ffn_dim": 3072,
        "max_position_embeddings": 2048,
        "do_layer_norm_before": True,
        "num_attention_heads": 12,
        "layer_norm_elementwise_affine": True,
        "tie_word_embeddings": True,
    },
    prefixes=("", "model.decoder.", "decoder."),
)
